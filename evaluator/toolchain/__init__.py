"""Compilers on the grading machine: flags, headers, messages."""
