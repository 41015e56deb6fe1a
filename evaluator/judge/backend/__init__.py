"""The device of a grade: memory, clock and limits, the lease of a GPU and its monitor."""
