"""What a card shows beside the verdict: baselines, own kernels, profiles, machine code, roofline."""
