"""Arithmetic of a reference: summation orders, rounding, and the detection of reduced precision."""
