"""Checks for outputs that are late, reused or precomputed."""
