"""HTML pages of a run and of a comparison: one file each, without a network, and with escaped text alone."""
