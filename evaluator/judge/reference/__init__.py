"""Reference of a problem: drawn inputs, and expected outputs in float64."""
