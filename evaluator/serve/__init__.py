"""The ready judge: lasting workers behind a Unix socket of a single user, and the client of the workers."""
