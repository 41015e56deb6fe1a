"""The trusted side: it owns the problem, the seeds, the inputs, the expected outputs, the clock and the verdict."""
