"""The page of a run, served live to local browsers."""
