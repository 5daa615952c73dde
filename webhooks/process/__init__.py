"""WHAT ONE PROCESS STANDS ON: parts made once, clocks, deadlines, and going on while something is away."""
