"""One worker for all."""
