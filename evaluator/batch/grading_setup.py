"""What programs ask of grades, by name, and what comes of it: options, slots, problems and a key."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from evaluator.batch.runs.inputs import Problems
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.batch.workers.worker_handle import Slot
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Unread
from evaluator.grading.resolved_request import options_for
from evaluator.records import Finding
from evaluator.signatures.keys import SigningKey, signing_key
from evaluator.submission.read import Submission


class Setup(NamedTuple):
    """How grades are made, who makes them, the problems they are of, and the key that signs their cards, if any.

    `remarks` are the findings on how the device was chosen.
    """

    options: GradeOptions
    slots: list[Slot]
    problems: Problems
    key: SigningKey | None
    remarks: tuple[Finding, ...] = ()


def setup_for(named: Mapping[str, Any], jobs: int | None, submission: Submission | Unread | None = None) -> Setup:
    """Read options by name.

    Args:
        named: the options.
        jobs: how many are graded at once, None for what the device allows.
        submission: the one submission that there is, None where there may be many.

    Raises:
        TypeError: an option has a name that is not known.
        UsageError: an option has a value that is not known.
        InfraError: there is no GPU.
    """
    options, remarks = options_for(named, submission)
    slots = slots_for(options.device, jobs, gpus_for(options))
    key = signing_key(options.signing_key, walls=options.has_walls)
    return Setup(options, slots, Problems(options.problems, options.actual_size), key, remarks)
