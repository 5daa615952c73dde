"""The arms: each function is one round of one, and returns its rows."""
