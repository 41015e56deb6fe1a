"""The version of Warpgrade, defined only in this file."""

__version__ = "0.1.0"
