"""The share of a submission's own kernels in its work, found by leaving parts of it out."""
