"""The story's ports in memory; `tests/contracts` holds them against the real parts."""
