"""The Python API: grade submissions from a program."""
