"""Samples of runs, for the statistics of a report."""

from evaluator.records import Status
from evaluator.report.run.summary import Device, RunSample

GPU = Device("cuda", "a GPU", timed=True)
EMULATED = Device("emulated", "a processor", timed=False)


def sample(name="s0", speedup=None, status=Status.CORRECT, *, problem="relu", level=1, device=GPU, noise=0.01, **more):
    """Make a sample whose interval is `noise` wide on either side; None for a speedup without an interval."""
    low, high = (None, None) if None in (speedup, noise) else (speedup * (1 - noise), speedup * (1 + noise))
    made = RunSample(problem, level, name, device, status, built=True, speedup=speedup, **more)
    return made._replace(speedup_low=low, speedup_high=high)
