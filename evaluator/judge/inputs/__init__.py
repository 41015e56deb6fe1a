"""Inputs and weights of a call: distributions, changing weights, derived seeds."""
