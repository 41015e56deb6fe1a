"""Manifest of a run. The module imports records only: printing the schema is fast."""

from typing import Annotated

import msgspec

from evaluator.grade_options import OPTION_OF, Terms
from evaluator.records import LevelNumber, Record

RUN_VERSION = 1
LevelSize = Annotated[int, msgspec.Meta(ge=1, le=10**6)]


class RunManifest(Record, frozen=True, kw_only=True):
    """Terms, problems and submissions of a run, equal for every session on the same folder.

    `level_sizes` has the number of KernelBench's problems in each level of the folder of problems.
    """

    run_version: int = RUN_VERSION
    terms: Terms
    problems: str | None
    submissions: str
    started_at: str
    warpgrade: str
    python: str
    torch: str
    host: str
    level_sizes: dict[LevelNumber, LevelSize] = {}


def command_of(manifest: RunManifest) -> str:
    """Return the command of a run: all options with other values than the defaults, and words for this machine's paths.

    >>> from evaluator.records import DeviceKind
    >>> command_of(RunManifest(terms=Terms(DeviceKind.CPU, strict=True), problems=None, submissions="answers",
    ...     started_at="", warpgrade="", python="", torch="", host=""))
    'warpgrade batch SUBMISSIONS --run RUN --device cpu --strict'
    """
    words = ["warpgrade", "batch", "SUBMISSIONS", "--run", "RUN"]
    words += [] if manifest.problems is None else ["--problems", "PROBLEMS"]
    default_terms = Terms(manifest.terms.device)
    for field in Terms.__struct_fields__:
        value = getattr(manifest.terms, field)
        option = "--" + OPTION_OF.get(field, field).replace("_", "-")
        if field == "device" or value != getattr(default_terms, field):
            words += [option] if value is True else [f"{option} {word}" for word in _values(value)]
    return " ".join(words)


def _values(value: object) -> list[str]:
    items = value if isinstance(value, tuple) else (value,)
    return [f"{item:.12g}" if isinstance(item, float) else str(item) for item in items]
