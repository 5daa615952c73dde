"""Events on their way in: which are accepted, as which bytes, recorded before anything else."""
