"""Checks that a call itself made its output: no late, reused or precomputed values."""
