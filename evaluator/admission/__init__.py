"""Whether a problem is worth grading against: negative controls, and `warpgrade problems validate`."""
