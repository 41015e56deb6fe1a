"""Doubles of a GPU for the tests of the clocks."""

from tests.unit.judge.clock.host_gpu import clock_of

__all__ = ["clock_of"]
