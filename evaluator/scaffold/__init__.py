"""Files to start a problem or a submission from."""
