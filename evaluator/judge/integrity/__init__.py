"""Proof that an output was made in its own call: no late, reused or precomputed values."""
