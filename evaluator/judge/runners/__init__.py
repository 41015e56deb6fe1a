"""Runner processes: the client of one, the pool, build requests, sandboxed tools."""
