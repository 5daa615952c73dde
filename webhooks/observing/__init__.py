"""What happens is told as frozen values, the facts, to a list of sinks; the log is one of them."""
