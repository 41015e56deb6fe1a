"""Type of the entries in the table of findings: texts, statuses and traits of a code."""

from enum import Flag, auto
from functools import partial
from typing import NamedTuple

from evaluator.records import Status


class Trait(Flag):
    """Facts about the findings of a code that decide what the judge does next."""

    NONE = 0
    WRONG_VALUES = auto()
    """The answer has the right form and wrong values: an equal call, or the model's other mode, may give right ones."""
    FROM_WEIGHTS = auto()
    """Other values in a weight may be the cause: a kernel refuses such values, or takes an index from them."""
    FROM_FIXED_SIZE = auto()
    """A number in the code, written for another size, may be the cause. Triton's interpreter refuses kernels late."""
    FROM_CPU_CODE = auto()
    """In C++ written for the CPU, tensors of another device may be the cause."""
    FROM_RANDOM_REFERENCE = auto()
    """Random numbers in the reference's forward may be the cause: other numbers make other values right."""
    NO_ANSWER = auto()
    """The process ended or was stopped before its answer, so nothing is known about the answer."""
    DISTURBED_CLOCK = auto()
    """Another user of the GPU may be the cause: a submission is refused only if several tries end so."""


class Entry(NamedTuple):
    """Statuses, texts and traits of a code.

    `statuses` are those that the code may be the reason of; none for a remark, which never decides a verdict.
    `other_steps` are next steps for some of the code's messages.
    """

    statuses: frozenset[Status]
    title: str
    meaning: str
    next_step: str
    other_steps: tuple[str, ...] = ()
    traits: Trait = Trait.NONE

    @property
    def status(self) -> Status:
        """The only status of the code. Raises ValueError for a remark, and for a code of several statuses."""
        (status,) = self.statuses
        return status

    @property
    def explanation(self) -> str:
        """The code's statuses and its meaning, for readers."""
        named = " or ".join(status.value for status in Status if status in self.statuses)
        return f"{f'Status: {named}.' if named else 'A remark: never the reason of a verdict.'} {self.meaning}"


remark = partial(Entry, frozenset[Status]())
wrong_result = partial(Entry, frozenset({Status.WRONG_RESULT}))
build_error = partial(Entry, frozenset({Status.BUILD_ERROR}))
runtime_error = partial(Entry, frozenset({Status.RUNTIME_ERROR}))
timeout = partial(Entry, frozenset({Status.TIMEOUT}))
rejected = partial(Entry, frozenset({Status.REJECTED}))
inconclusive = partial(Entry, frozenset({Status.INCONCLUSIVE}))
infra_error = partial(Entry, frozenset({Status.INFRA_ERROR}))
