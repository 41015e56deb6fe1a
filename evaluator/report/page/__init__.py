"""HTML pages of a run and of a comparison: a single file each, without network access, with escaped text only."""
