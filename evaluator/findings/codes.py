"""Codes of findings, and the form of a code's entry."""

from enum import Flag, StrEnum, auto
from functools import partial
from typing import NamedTuple

from evaluator.records import Status


class Code(StrEnum):
    """Code of a finding."""

    NO_CODE = "S101"
    TOO_LARGE = "S102"
    NOT_TEXT = "S103"
    LEFT_OUT = "S104"
    CUT_OFF = "S105"
    GRADED_ON_CPU = "S106"
    SIZE_FOUND = "S107"
    INTERPRETED = "S108"
    BAD_FILES = "S109"
    FAILURE_WORKED_AROUND = "S111"
    LIBRARY_IN_FORWARD = "S112"
    KERNEL_NOT_LAUNCHED = "S113"
    SECOND_STREAM = "S114"
    THREADS = "S115"
    PATCHED = "S116"
    FILES = "S117"
    NETWORK = "S118"
    INTERNALS = "S119"
    ADDRESSED_TEXT = "S120"
    NOT_LOOKED_AT = "S121"
    WRONG_FORM = "S122"
    OTHER_ENTRY = "S123"

    NO_MODEL_NEW = "B201"
    IMPORT_FAILED = "B202"
    COMPILE_FAILED = "B203"
    FLAG_REFUSED = "B204"
    FAILED_BUILD_IGNORED = "B205"
    NOT_ON_THIS_DEVICE = "B206"
    COMPILER_TIMED_OUT = "B207"
    BUILD_REQUEST_REFUSED = "B208"
    NOT_EMULATED = "B209"
    HARD_CODED_SIZE = "B210"
    TOO_MANY_BUILDS = "B211"
    BUILD_TOO_LARGE = "B212"
    BINDING = "B213"
    PACKAGE_MISSING = "B214"
    KERNEL_REFUSED = "B215"
    LANGUAGE_MISSING = "B216"

    CONSTRUCTOR_FAILED = "R301"
    FORWARD_FAILED = "R302"
    RUNNER_DIED = "R303"
    TIMED_OUT = "R304"
    OUT_OF_MEMORY = "R305"
    OUTPUT_FLOOD = "R306"
    WEIGHTS_NOT_COPIED = "R307"
    MALFORMED_FRAME = "R308"
    ILLEGAL_ACCESS = "R309"
    BARRIER = "R310"
    LANE_OUTSIDE_MASK = "R311"
    DEVICE_ASSERT = "R312"
    NO_LAUNCH = "R313"
    TOO_LITTLE_OWN = "R314"
    OWN_SHARE_UNKNOWN = "R315"
    NOT_STOPPED = "R316"
    DEADLINE = "R317"
    WEIGHTS_ASSUMED = "R318"
    SET_TO_TRAINING = "R319"
    FEWER_CALLS = "R320"
    SIZE_REFUSED = "R321"
    SHARED_RACE = "R322"

    WRONG_STRUCTURE = "C401"
    WRONG_SHAPE = "C402"
    WRONG_DTYPE = "C403"
    NOT_A_TENSOR = "C404"
    WRONG_VALUES = "C405"
    NOT_FINITE = "C406"
    NO_GRADIENT = "C407"
    INPUT_CHANGED = "C408"
    OUTPUT_REUSED = "C409"
    NOT_FLOAT64 = "C410"
    WRONG_DEVICE = "C411"
    LATE_OUTPUT = "C412"
    DIFFERS = "C413"
    LOWER_PRECISION = "C414"
    STOOD_BEFORE = "C415"
    WIDE_TOLERANCE = "C416"
    VALUES_UNTRIED = "C417"
    ROUNDING_UNTRIED = "C418"
    STALE_WEIGHTS = "C419"
    SHARED_ELEMENTS = "C420"
    WEIGHTS_NOT_CHANGED = "C421"
    WRONG_ON_OTHER_VALUES = "C422"
    FIXED_INPUTS = "C423"
    REDUCED_INSTRUCTIONS = "C425"
    ROUNDING_DECIDES = "C426"
    RANDOM_REFERENCE = "C427"
    CHECK_REFUSES = "C428"
    NOT_UNIQUE = "C429"

    REFERENCE_DRIFTED = "T301"
    IMPOSSIBLE = "T302"
    BELOW_RESOLUTION = "T303"
    OUTPUT_COPIED = "T304"
    NOT_QUIET = "T305"
    WORK_AFTER_DONE = "T306"
    OUTLIERS = "T307"
    FIRST_CALL_SLOW = "T308"
    HOST_BOUND = "T309"
    BEATS_TARGET = "T310"
    FLOOR_DOUBTED = "T311"
    NO_ROOFLINE = "T312"
    BASELINE_FAILED = "T313"
    NOT_PROFILED = "T314"
    NO_NCU = "T315"
    COUNTERS_REFUSED = "T316"
    NOT_COUNTED = "T317"
    SHARED_WORK = "T318"
    NOT_TIMED = "T319"
    TIME_UNEARNED = "T320"
    CASES_LEFT_OUT = "T321"

    NO_SANDBOX = "I501"
    WALL_MISSING = "I502"
    CACHE_UNUSABLE = "I503"

    JUDGE_MEMORY = "X601"
    JUDGE_FAILED = "X602"
    GPU_SHARED = "X603"
    GPU_THROTTLED = "X604"
    GPU_CLOCK_MOVED = "X605"
    GPU_ECC = "X606"
    GPU_MIG = "X607"
    OWN_FAULT = "X608"


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
