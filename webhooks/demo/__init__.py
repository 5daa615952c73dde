"""The whole job on real parts, in a minute: `make demo`."""
