"""A PAGE FOR PEOPLE WHO WOULD RATHER LOOK, and the same reads and acts as a JSON API: a face on them, nothing more."""
