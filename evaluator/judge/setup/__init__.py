"""Setup of a problem: memory plan, mix of input distributions, seeds."""
