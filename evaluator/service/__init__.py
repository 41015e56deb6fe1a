"""The HTTP service: a durable queue of submissions for clients with bearer tokens, and the client class."""
