"""Device and clock of a grade: lease and session of a GPU, reveal the inputs, time one call, sample memory."""
