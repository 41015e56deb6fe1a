"""Comparison of a tensor with the expected tensor, and the tolerance. Pure."""
