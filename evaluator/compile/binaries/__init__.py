"""Facts read from the bytes of a built library: kernels, imported symbols, cubins, resource usage."""
