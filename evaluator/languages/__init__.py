"""Languages of kernels: `registry.py` lists the languages, each with the interface `Language`."""
