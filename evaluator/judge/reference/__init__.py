"""The reference: it draws inputs and computes expected outputs in float64."""
