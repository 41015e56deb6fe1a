"""Languages of kernels: a module per language, with the interface `Language`; `registry.py` lists the languages."""
