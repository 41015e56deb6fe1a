"""Admission of problems: negative controls, and `warpgrade problems validate`."""
