"""Timeline of a batch session: who had which worker and GPU, when, and at which stage."""
