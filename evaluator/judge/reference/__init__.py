"""Reference of a problem: inputs and weights of each call, their distributions, and expected outputs in float64."""
