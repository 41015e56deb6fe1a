"""Other baselines of a speedup: torch.compile, and another submission."""
