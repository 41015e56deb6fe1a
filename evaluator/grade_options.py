"""The options of a grade: one record for the command line, the library, the batch and the judge.

A new option is a field of one of the two records below, and a click option in `evaluator/commands/options.py`. The
library takes every field as a keyword; no code between library and judge copies fields.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from enum import EnumMeta
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import UsageError
from evaluator.records import (
    BaselineKind,
    CaseName,
    DeviceKind,
    GradeMode,
    L2Rule,
    ProfilerKind,
    Record,
    SandboxMode,
    SizeName,
    ToleranceRule,
    ValuesRule,
    WeightsRule,
)
from evaluator.submission.model_new import entries_of, entry_name
from evaluator.submission.read import Submission, read_submission

AUTO = "auto"
"""The command line's device name for an automatic choice; programs pass None."""
_MOST_CASES = 1000
BESIDE_BUILDS_S = 1200.0
"""Default time limit of a grade, without its builds."""
OPTION_OF = {
    "baselines": "baseline",
    "timeout_s": "timeout",
    "build_timeout_s": "build_timeout",
    "deadline_s": "deadline",
    "signing_key": "sign",
}
"""Options of the command line, in Python's spelling, with other names than the fields."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def seconds(value: float) -> None:
    """Raise ValueError unless `value` is a duration: a finite number of seconds above zero."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{value} is not a positive number of seconds")


def share(value: float) -> None:
    """Raise ValueError unless `value` is a share: above 0, at most 1."""
    if not 0 < value <= 1:
        raise ValueError(f"{value} is not a share above 0 and at most 1")


def _forms_of_the_reference(kinds: tuple[BaselineKind, ...]) -> None:
    if BaselineKind.SUBMISSION in kinds:
        raise ValueError("submission is not a form of the reference: use speedup_of")


def _few(names: tuple[str, ...]) -> None:
    if len(names) > _MOST_CASES:
        raise ValueError(f"{len(names)} names; a grade has at most {_MOST_CASES} cases")


Seconds = Annotated[float, seconds]
Share = Annotated[float, share]
EntryName = Annotated[str, entry_name]


class Terms(Record, frozen=True):
    """How the submissions of a batch are graded; the same for all of them.

    `size` is None for the device's own, `weights` and `l2` for what each problem says. `case` has names of cases, `all`
    or `hidden`; none for `size`.
    """

    device: DeviceKind
    size: SizeName | None = None
    tolerance: ToleranceRule = ToleranceRule.MEASURED
    sandbox: Annotated[str, SandboxMode] = SandboxMode.FULL.value
    timeout_s: Seconds | None = None
    build_timeout_s: Seconds = 600.0
    require_own_kernel: Share | None = None
    strict: bool = False
    baselines: Annotated[tuple[BaselineKind, ...], _forms_of_the_reference] = ()
    deadline_s: Seconds | None = None
    weights: WeightsRule | None = None
    values: ValuesRule = ValuesRule.ALL
    l2: L2Rule | None = None
    mode: GradeMode = GradeMode.FULL
    entry: EntryName | None = None
    case: Annotated[tuple[CaseName, ...], _few] = ()
    stop_at_failure: bool = False
    budget_s: Seconds | None = None


class GradeOptions(Terms, frozen=True):
    """The options of a grade; the functions that grade and `Grader` take each option as a keyword.

    All options are optional, and None selects the default. A run's manifest stores the fields of `Terms`: every session
    on the run's folder has the same values.

    Attributes:
        device: cuda, emulated or cpu; by default a GPU if present, else the emulator. A single submission with C++ for
            the CPU only is graded on cpu by default.
        gpu: one of several GPUs, by index or UUID; by default all GPUs, and the first for a single grade.
        problems: a folder of problems; by default the shipped problems.
        size: full, small or awkward; by default full on cuda, small on cpu, and small and awkward on emulated.
        case: names of the problem's cases, or all, or hidden: a list, or one text with commas. One grade, one card; the
            first is the card's own. By default the size, and hidden cases where the problem declares them.
        stop_at_failure: leave the cases after the first failing one out. Without `case`, always so.
        budget_s: seconds on the device after which no further case begins; the heaviest weights come first. By default
            all cases are graded.
        tolerance: measured (the default), kernelbench, or benchmark: the rule of the problem's own benchmark.
        weights: changing, from call to call, or frozen; by default as defined by each problem.
        values: all (the default), so some calls have other input values than the problem draws, or own.
        l2: cold, the inputs of a timed call are not in the GPU's L2 cache, or warm, as far as they fit; by default as
            defined by each problem.
        mode: full (the default), or check: without times, so a card has no speedup.
        entry: name of the class that a submission defines; by default ModelNew, else Model.
        sandbox: full (the default) or none, which is for trusted code only.
        strict: refuse to grade if a sandbox layer is missing.
        require_own_kernel: the least share of the work, above 0 and at most 1, required in own kernels of a submission;
            by default no share is required.
        baselines: forms of the reference to time as well: eager, compile, compile-max-autotune.
        speedup_of: the file of another submission to time as well.
        profile: torch or ncu: the profiler for one additional call of a correct submission; by default none.
        timeout_s: seconds for the import, and for each call of the submission; beyond, the status is `timeout`.
            By default 60 s for an import; for a call 20 times the reference's time, at least 10 s, 2 s on cuda.
            CPU time except on cuda, with a wall limit of six times as much.
        build_timeout_s: seconds for the compilation of each extension, and for all builds of a grade; beyond, the
            status is `timeout`. 600 by default.
        deadline_s: seconds for the whole grade; beyond, the status is `timeout` if the submission took half of
            the time, otherwise `infra_error`. By default 20 minutes more than `build_timeout_s`.
        signing_key: a file of `warpgrade keygen` for signing cards; by default the key in the environment variable
            WARPGRADE_SIGNING_KEY, which is removed from the environment, or none.
    """

    gpu: str | None = None
    problems: Path | None = None
    speedup_of: Submission | None = None
    profile: ProfilerKind | None = None
    signing_key: Path | None = None

    @property
    def terms(self) -> Terms:
        """The options that a run's manifest stores."""
        return Terms(**{name: getattr(self, name) for name in Terms.__struct_fields__})

    @property
    def sizes(self) -> tuple[SizeName, ...]:
        """The sizes without `case`. Every problem needs the first; the others count where a problem has them."""
        return _SIZES[self.device] if self.size is None else (self.size,)

    @property
    def ends_at_failure(self) -> bool:
        """Whether no case is graded after one that fails."""
        return self.stop_at_failure or not self.case

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the submission's class, the preferred name first."""
        return entries_of(self.entry)

    @property
    def is_timed(self) -> bool:
        """Whether correct submissions are timed."""
        return self.mode is GradeMode.FULL and self.device is not DeviceKind.EMULATED

    @property
    def sandbox_mode(self) -> SandboxMode:
        """The sandbox mode of submissions."""
        return SandboxMode(self.sandbox)

    @property
    def is_sandboxed(self) -> bool:
        """Whether the sandbox keeps submissions from reading this user's files."""
        return self.sandbox_mode is not SandboxMode.NONE

    @property
    def limit_s(self) -> float:
        """Time limit of the whole grade: the deadline, or 20 minutes more than the build limit."""
        return BESIDE_BUILDS_S + self.build_timeout_s if self.deadline_s is None else self.deadline_s

    def for_worker(self, gpu: str | None) -> "GradeOptions":
        """Return the options for a worker with that GPU, without paths of this machine, which no worker needs."""
        paths = {name: None for name in self.__struct_fields__ if isinstance(getattr(self, name), Path)}
        return replace(self, gpu=gpu, **paths)


_SIZES = {
    DeviceKind.CUDA: (SizeName.FULL,),
    DeviceKind.CPU: (SizeName.SMALL,),
    DeviceKind.EMULATED: (SizeName.SMALL, SizeName.AWKWARD),
}
_TYPES: dict[str, Any] = get_type_hints(GradeOptions, include_extras=True)


_ENUM_FAULT = "Invalid enum value"
"""Begin of msgspec's message for a value outside of a closed set."""


def default_of(name: str) -> Any:
    """Return the default of an option.

    >>> default_of("build_timeout_s"), default_of("sandbox")
    (600.0, 'full')
    """
    return next(field.default for field in msgspec.structs.fields(GradeOptions) if field.name == name)


def check(name: str, value: object) -> None:
    """Raise ValueError if `value` is invalid for the option `name`.

    >>> check("deadline_s", 0.0)
    Traceback (most recent call last):
    ValueError: 0.0 is not a positive number of seconds
    """
    for each in (_TYPES[name], *get_args(_TYPES[name])):
        for checked in getattr(each, "__metadata__", ()):
            checked(value)


def given(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with a value: not None, no empty list, and no automatic device."""
    return {
        name: value
        for name, value in named.items()
        if value is not None and value != () and (name, value) != ("device", AUTO)
    }


def read_options(named: Mapping[str, Any]) -> GradeOptions:
    """Parse options by name, including the device; missing options and None get defaults.

    Raises:
        TypeError: the name of an option is unknown.
        UsageError: the value of an option is unknown, or contradicts another option.
    """
    refuse_unknown(named)
    found = given(named)
    if "case" in found:
        found["case"] = _names_in(found["case"])
    other = found.pop("speedup_of", None)
    options = GradeOptions(**{name: _read(name, value) for name, value in found.items()})
    unique = {name: tuple(dict.fromkeys(getattr(options, name))) for name in ("baselines", "case")}
    options = replace(options, **unique)
    _refuse_contradictions(options)
    return options if other is None else replace(options, speedup_of=_other(other, options))


def entry_given(named: Mapping[str, Any]) -> str | None:
    """Return the name of the entry class among options by name, before the other options are read.

    Raises:
        UsageError: the value cannot name a class.
    """
    value = given(named).get("entry")
    return None if value is None else str(_read("entry", value))


def refuse_unknown(named: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown option, as Python does for an unknown keyword argument."""
    for name in named:
        if name not in _TYPES:
            raise TypeError(f"unknown option {name!r}: {did_you_mean(name, _TYPES) or one_of(_TYPES)}")


def with_options(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Replace `**options` in the signature of `function` by the individual options."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None if field.required else field.default)
        for field in msgspec.structs.fields(GradeOptions)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return function


def _names_in(value: object) -> object:
    """Return the names in a text with commas, or in a list of such texts; any other value as it is.

    >>> _names_in(("decode_1, hidden", "full"))
    ['decode_1', 'hidden', 'full']
    """
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return value
    return [name for text in texts for part in text.split(",") if (name := part.strip())]


def _read(name: str, value: object) -> Any:
    try:
        read = msgspec.convert(value, _TYPES[name], dec_hook=lambda kind, each: kind(each))
        check(name, read)
    except (TypeError, ValueError) as error:
        reason = _allowed(name) if _ENUM_FAULT in str(error) else error
        raise UsageError(f"{name} cannot be {value!r}: {reason}") from error
    return read


def _allowed(name: str) -> str:
    """Return the values of an option with a closed set of values."""
    values = [each for each in _enum_values(_TYPES[name]) if each is not BaselineKind.SUBMISSION]
    return one_of([AUTO, *values] if name == "device" else values)


def _enum_values(kind: Any) -> list[object]:
    """Return the values of all enums in a type."""
    if isinstance(kind, EnumMeta):
        return list(kind)
    return [value for part in get_args(kind) for value in _enum_values(part)]


def _refuse_contradictions(options: GradeOptions) -> None:
    """Raise UsageError for options that exclude each other, or that have no effect on their device."""
    device = options.device
    if options.case and options.size is not None:
        raise UsageError("--size and --case both choose cases", hint=f"use --case {options.size},{options.case[0]}")
    if options.strict and not options.is_sandboxed:
        raise UsageError("--strict requires the sandbox, and --sandbox none disables it", hint="omit one of the two")
    if options.gpu is not None and device is not DeviceKind.CUDA:
        raise UsageError(f"--gpu has no effect on {device.value}", hint="add --device cuda, or omit --gpu")
    if options.l2 is not None and device is not DeviceKind.CUDA:
        raise UsageError(f"--l2 has no effect on {device.value}", hint="add --device cuda, or omit --l2")
    if options.baselines:
        _refuse_untimed("--baseline", options.mode, device)
    if BaselineKind.EAGER in options.baselines and device is not DeviceKind.CUDA:
        message = "--baseline eager times the reference with PyTorch's TF32 default, on cuda only"
        raise UsageError(message, hint="omit --baseline eager: every grade times the eager reference")
    if options.profile is ProfilerKind.NCU and device is not DeviceKind.CUDA:
        message = f"--profile ncu reads an NVIDIA GPU's counters, but this grade is on {device.value}"
        raise UsageError(message, hint="add --device cuda, or use --profile torch on cuda or cpu")
    if options.profile is not None:
        _refuse_untimed("--profile", options.mode, device)


def _refuse_untimed(option: str, mode: GradeMode, device: DeviceKind) -> None:
    if mode is GradeMode.CHECK:
        raise UsageError(f"{option} needs times, and --mode check measures none", hint="omit one of the two")
    if device is DeviceKind.EMULATED:
        raise UsageError(f"{option} has no effect on emulated, which measures no time", hint="add --device cuda or cpu")


def _other(path: str | Path, options: GradeOptions) -> Submission:
    """Read the submission used as a baseline. Unlike the graded submission, it must be readable."""
    _refuse_untimed("--speedup-of", options.mode, options.device)
    read = read_submission(Path(path), entry=options.entry)
    if isinstance(read, Submission):
        return read
    raise UsageError(f"--speedup-of {path}: {read.message}", hint=read.next_step)
