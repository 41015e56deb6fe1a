"""Builds of native extensions: flags, generated files, sandboxed compilers, the build cache."""
