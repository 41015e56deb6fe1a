"""Runner processes: client, pool, fork servers, build requests, sandboxed tools, call timeouts."""
