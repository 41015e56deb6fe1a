"""Setup of a problem before its first call: terms, traits, distributions, seeds, evidence, memory plan."""
