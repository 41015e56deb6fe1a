"""Comparison of one tensor with the expected one, and its tolerance. Pure."""
