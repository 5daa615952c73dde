"""WHAT ONE PROCESS STANDS ON: parts made once, clocks, deadlines, one reading of a Redis URL, how it ends."""
