"""Compilers of this machine: location, allowed flags, command lines, messages."""
