"""Languages of kernels: one module for each, with the interface `Language`; `registry.py` lists the languages."""
