"""Small sizes of problems: a check that a size preserves the full size's difficulty, and a search for bare files."""
