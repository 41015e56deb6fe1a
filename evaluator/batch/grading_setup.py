"""Setup of grades for the Python API, from options by name: slots, problems and signing key."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from evaluator.batch.runs.problems import Problems
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.batch.workers.worker_handle import Slot
from evaluator.grade_options import GradeOptions
from evaluator.grading.resolved_request import options_for
from evaluator.signatures.keys import SigningKey, signing_key


class GradingSetup(NamedTuple):
    """Options, slots of this machine, problems and, if configured, the key that signs cards."""

    options: GradeOptions
    slots: list[Slot]
    problems: Problems
    key: SigningKey | None


def setup_for(named: Mapping[str, Any], jobs: int | None, *, on_cluster: bool = False) -> GradingSetup:
    """Parse options by name.

    Args:
        named: the options.
        jobs: number of concurrent grades; None takes the limit of the device.
        on_cluster: whether other machines grade: this machine then has no slots, and may lack a GPU.

    Raises:
        TypeError: the name of an option is unknown.
        UsageError: the value of an option is unknown.
        InfraError: this machine has no GPU.
    """
    options = options_for(named).options
    slots = [] if on_cluster else slots_for(options.device, jobs, gpus_for(options))
    key = signing_key(options.signing_key, sandboxed=options.is_sandboxed)
    return GradingSetup(options, slots, Problems(options.problems, options.sizes, entry=options.entry), key)
