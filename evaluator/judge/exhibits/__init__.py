"""Evidence beside a verdict: baselines, share of own kernels, profiles, machine code, roofline."""
