"""WHAT ALL WORKERS MUST AGREE ON NOW: the breakers and lanes, in Redis."""
