"""Share of own kernels in a submission's work: ablation, count of operations, verdict."""
