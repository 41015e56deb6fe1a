"""A submission as text: finding it, and what can be said of it without running it."""
