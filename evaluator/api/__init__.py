"""The Python API: grade one submission or many from a program."""
