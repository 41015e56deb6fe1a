"""Timeline of a batch session: submissions and their stages on workers and GPUs."""
