"""Setup of a problem: terms, seeds, mix of input distributions, memory plan."""
