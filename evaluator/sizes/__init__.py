"""Small sizes of problems: whether one still asks what the full size does, and finding one for a bare file."""
