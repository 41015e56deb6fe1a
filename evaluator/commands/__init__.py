"""The commands, by subject; `main.py` is the command line that joins them."""
