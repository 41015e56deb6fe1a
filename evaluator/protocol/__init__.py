"""What the judge and a runner share: frames on a socket, and how a model is seeded, called and built for.

A submission's process has this package in memory, so it holds nothing of the judge and imports nothing of it.
"""
