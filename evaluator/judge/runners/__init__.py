"""Runner processes: client, pool, fork servers, build requests, call timeouts, and the meaning of failures."""
