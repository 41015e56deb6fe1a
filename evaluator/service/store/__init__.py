"""Durable storage of the HTTP service: the journal of all grades."""
