"""Compilers of this machine, their flags, their headers and their messages."""
