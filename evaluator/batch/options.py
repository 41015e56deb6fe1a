"""What programs may ask of grades, by name, and what comes of it: terms, slots and problems."""

from pathlib import Path
from typing import NamedTuple, TypedDict

from evaluator.batch.handle import Slot
from evaluator.batch.inputs import Problems
from evaluator.batch.manifest import Terms
from evaluator.batch.slots import gpus_for, slots_for
from evaluator.catalog.text import did_you_mean, one_of
from evaluator.doctor import default_device
from evaluator.errors import UsageError
from evaluator.records import DeviceKind, SizeName, ToleranceRule, WeightsRule
from evaluator.request import has_walls
from evaluator.signatures.keys import SigningKey, signing_key


class GradeOptions(TypedDict, total=False):
    """The options that `grade`, `grade_many`, `grade_many_async` and `Grader` share. All may be left out.

    Attributes:
        device: cuda, emulated or cpu; None (the default) for a GPU where there is one, else the emulator;
            `grade` then takes cpu for C++ that is for nothing else.
        gpu: one of several GPUs, by index or UUID; None (the default) for all of them.
        problems: a folder of problems; None (the default) for the shipped ones.
        size: full, small or awkward; None (the default) for full on cuda, else small.
        tolerance: measured (the default) or kernelbench.
        weights: changing, from call to call, or frozen; None (the default) for what each problem says.
        timeout_s: the limit of each stage but the build, in seconds; None (the default) leaves it to the judge.
        build_timeout_s: the limit of one extension's compilation, in seconds; 600 by default.
        deadline_s: the limit of the whole grade, in seconds; None (the default) for 20 minutes more than that.
        signing_key: a file of `warpgrade keygen` to sign cards with; None (the default) for the key in the environment
            variable WARPGRADE_SIGNING_KEY, which is taken out of the environment, or for none.
    """

    device: str | None
    gpu: str | None
    problems: Path | None
    size: str | None
    tolerance: str
    weights: str | None
    timeout_s: float | None
    build_timeout_s: float
    deadline_s: float | None
    signing_key: Path | None


class Setup(NamedTuple):
    """How grades are made, who makes them, the problems they are of, and the key that signs their cards, if any."""

    terms: Terms
    slots: list[Slot]
    problems: Problems
    key: SigningKey | None


def setup_for(options: GradeOptions, jobs: int | None) -> Setup:
    """Read the options; `jobs` is how many are graded at once, None for what the device allows.

    Raises:
        TypeError: an option has a name that is not known.
        UsageError: an option says nothing that is known.
        InfraError: there is no GPU.
    """
    _refuse_unknown(options)
    terms = _terms(options)
    slots = slots_for(terms.device, jobs, gpus_for(terms.device, options.get("gpu")))
    key = signing_key(options.get("signing_key"), walls=has_walls(terms.sandbox))
    return Setup(terms, slots, Problems(options.get("problems"), terms.actual_size), key)


def _refuse_unknown(options: GradeOptions) -> None:
    """Do what Python does for arguments that are spelled out in a signature."""
    known = GradeOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"there is no option {name!r}: {did_you_mean(name, known) or one_of(known)}")


def _terms(options: GradeOptions) -> Terms:
    device, size, weights = options.get("device"), options.get("size"), options.get("weights")
    try:
        return Terms(
            device=default_device() if device is None else DeviceKind(device),
            size=SizeName(size) if size is not None else None,
            tolerance=ToleranceRule(options.get("tolerance", ToleranceRule.MEASURED)),
            timeout_s=options.get("timeout_s"),
            build_timeout_s=options.get("build_timeout_s", 600.0),
            deadline_s=options.get("deadline_s"),
            weights=WeightsRule(weights) if weights is not None else None,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
