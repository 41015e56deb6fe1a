"""Tools for agents that write kernels: a server of the Model Context Protocol."""
