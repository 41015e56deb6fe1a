"""PLACEHOLDER until the engine lands."""


def runtime_sources():
    return []


def runtime_flags():
    return []


def header_files():
    return []
