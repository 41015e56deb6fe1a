"""The page of a run, served live to a browser of this machine."""
