"""Languages of kernels: `table.py` lists the languages, each with the interface `Language`."""
