"""WHAT SHOULD HAPPEN: pure rules; no clock, no dice, no I/O."""
