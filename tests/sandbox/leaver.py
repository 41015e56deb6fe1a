"""A module that ends the process at its import."""

raise SystemExit(3)
