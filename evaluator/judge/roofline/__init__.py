"""Roofline of a problem on the current GPU: required traffic, measured peaks, and the check of a time."""
