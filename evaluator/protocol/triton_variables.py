"""Environment variables of Triton."""


def names_variables(source: str) -> bool:
    """Return whether a submission's text may set a variable that Triton reads at import.

    >>> names_variables("os.environ['TRITON_INTERPRET'] = '1'")
    True
    """
    return "TRITON_" in source
