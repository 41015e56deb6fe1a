"""Commands, by subject; `main.py` joins the commands to a command line."""
