"""The ready judge: lasting workers behind a Unix socket of one user, and the client that uses them."""
