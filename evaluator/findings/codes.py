"""The codes of findings, and what is known about each. The letter of a code says which module has its entry."""

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """The code of a finding."""

    NO_CODE = "S101"
    TOO_LARGE = "S102"
    NOT_TEXT = "S103"
    SEVERAL_BLOCKS = "S104"
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

    NO_SANDBOX = "I501"
    WALL_MISSING = "I502"

    JUDGE_MEMORY = "X601"
    JUDGE_FAILED = "X602"
    GPU_SHARED = "X603"
    GPU_THROTTLED = "X604"
    GPU_CLOCK_MOVED = "X605"
    GPU_ECC = "X606"
    GPU_MIG = "X607"


class Entry(NamedTuple):
    """What is known about a code before it happens."""

    title: str
    meaning: str
    next_step: str
