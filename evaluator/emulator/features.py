"""PLACEHOLDER until the front end lands."""


def hard_coded(source, full_constants, small_constants):
    return []
