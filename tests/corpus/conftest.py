"""The entries are data: pytest must not import them, because that would build them."""

collect_ignore_glob = ["*/*.py"]
