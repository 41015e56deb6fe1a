"""Options shared by several commands, and the parsing of their values."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from evaluator.catalog import list_problems
from evaluator.commands import project_file, terminal
from evaluator.errors import UsageError, WarpgradeError
from evaluator.grade_options import AUTO, OPTION_OF, GradeOptions, check, default_of
from evaluator.records import (
    BaselineKind,
    DeviceKind,
    GradeMode,
    L2Rule,
    SandboxMode,
    SizeName,
    ToleranceRule,
    ValuesRule,
    WeightsRule,
)

_FIELD_OF = {option: field for field, option in OPTION_OF.items()}


def field_of(option: str) -> str:
    """Return the field of `GradeOptions` for an option's name in Python."""
    return _FIELD_OF.get(option, option)


def taken_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove the grade's options from a command's arguments; return the options by field of `GradeOptions`."""
    fields = GradeOptions.__struct_fields__
    return {field_of(name): arguments.pop(name) for name in tuple(arguments) if field_of(name) in fields}


def checked(_: click.Context, option: click.Parameter, value: Any) -> Any:
    """Validate a value by the check of the option's field."""
    try:
        if value is not None:
            check(field_of(option.name or ""), value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def complete_problem(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return problem names for shell completion; a completion cannot report errors."""
    try:
        problems = list_problems(ctx.params.get("problems")).problems
    except WarpgradeError:
        return []
    return [problem.name for problem in problems if problem.name.startswith(incomplete)]


FILE_PATH = click.Path(dir_okay=False, path_type=Path)
"""Type of an option with the path of a file, present or absent."""
one_of = partial(click.Choice, case_sensitive=False)
"""Type of an option with a closed set of values."""
FOLDER_PATH = click.Path(file_okay=False, path_type=Path)
"""Type of an option with the path of a folder, present or absent."""


class _RunFolder(click.Path):
    """Type of an argument RUN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, which must be a folder."""
        with contextlib.suppress(OSError):  # click reports a path that the system refuses
            if Path(value).is_file():
                self.fail(f"{value} is a file; RUN is a folder made by `warpgrade batch --run`", param, ctx)
        return super().convert(value, param, ctx)


run_argument = _RunFolder(exists=True, file_okay=False, path_type=Path)


def complete_code(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the codes of findings, with their titles, for shell completion."""
    from evaluator.findings import ENTRIES

    prefix = incomplete.upper()
    return [
        CompletionItem(code.value, help=entry.title) for code, entry in ENTRIES.items() if code.value.startswith(prefix)
    ]


problems_option = click.option(
    "--problems",
    type=click.Path(exists=True, path_type=Path),
    envvar="WARPGRADE_PROBLEMS",
    show_envvar=True,
    help="Folder of problems to use, or a file of KernelBench's rows.  [default: the shipped problems]",
)
ray_option = click.option(
    "--ray",
    metavar="ADDRESS",
    help="Grade on a Ray cluster: its address, auto for a running one, or local for a new one.",
)
sign_option = click.option(
    "--sign",
    type=FILE_PATH,
    metavar="KEYFILE",
    help="Sign every scorecard with this key from `warpgrade keygen`.  [default: the key in WARPGRADE_SIGNING_KEY]",
)
trusted_option = click.option(
    "--trusted",
    type=FILE_PATH,
    metavar="FILE",
    help="Accept only cards signed with one of the public keys in FILE; refuse replays.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Write only JSON to stdout.")


class ResultFormat(StrEnum):
    """Format of a command's result on stdout."""

    FULL = "full"
    CONCISE = "concise"
    GITHUB = "github"
    JSON = "json"


format_option = click.option(
    "--output-format",
    type=one_of([form.value for form in ResultFormat]),
    help="Form of the result on stdout: concise has one line per submission, github annotates a workflow's run.  "
    "[default: full]",
)


def chosen_format(output_format: str | None, *, as_json: bool) -> ResultFormat:
    """Return the chosen format; --json is short for one of them. Raises UsageError for two different formats."""
    if as_json and output_format not in (None, ResultFormat.JSON):
        raise UsageError(f"--json and --output-format {output_format} both write to stdout", hint="choose one format")
    return ResultFormat.JSON if as_json else ResultFormat(output_format or ResultFormat.FULL)


_option = partial(click.option, show_envvar=True)
_seconds = partial(_option, type=float, callback=checked, metavar="SECONDS")


def _choice(name: str, values: Iterable[StrEnum], **settings: Any) -> Callable[[Any], Any]:
    """Return an option with a closed set of values."""
    return _option(name, type=one_of([each.value for each in values]), **settings)


_device_option = _option(
    "--device",
    type=one_of([AUTO, *(kind.value for kind in DeviceKind)]),
    default=AUTO,
    show_default=True,
    help="Device to grade on. auto: cuda with a GPU, otherwise emulated; cpu for a single submission of CPU C++.",
)
_OTHER_OPTIONS = (
    _option(
        "--gpu",
        metavar="GPU",
        help="GPU by index or UUID; runners see only this GPU.  [default: all GPUs; for a single grade the first]",
    ),
    _choice(
        "--size",
        SizeName,
        help="Size of the problem.  [default: full on cuda, small on cpu, small and awkward on emulated]",
    ),
    _option(
        "--case",
        multiple=True,
        metavar="NAME",
        help="Case of the problem: a name of `problems show`, all, or hidden. Repeatable, or with commas; one card has "
        "all. all is the problem's workload, hidden further shapes that the judge draws.",
    ),
    _option("--stop-at-failure", is_flag=True, help="Grade no further case after one that fails."),
    _seconds(
        "--budget-s",
        help="Begin no further case after this time on the device; the heaviest weights come first.",
    ),
    problems_option,
    _choice(
        "--mode",
        GradeMode,
        help=f"Extent of the grade; check measures no time, so there is no speedup.  "
        f"[default: {default_of('mode').value}]",
    ),
    _option(
        "--entry",
        metavar="NAME",
        callback=checked,
        help="Name of the class that a submission defines.  [default: ModelNew, else Model]",
    ),
    _choice(
        "--tolerance",
        ToleranceRule,
        help=f"Rule for the allowed error of an output.  [default: {default_of('tolerance').value}]",
    ),
    _choice(
        "--weights",
        WeightsRule,
        help="Change the weights from call to call, or keep them.  [default: changing, or the problem's setting]",
    ),
    _choice(
        "--values",
        ValuesRule,
        help="Inputs: other values too in some calls, or only those that the problem's get_inputs draws.  "
        f"[default: {default_of('values').value}]",
    ),
    _choice(
        "--l2",
        L2Rule,
        help="Inputs of a timed call: not in the GPU's L2 cache, or read just before.  [default: cold, or the "
        "problem's setting]",
    ),
    _choice(
        "--sandbox",
        SandboxMode,
        default=default_of("sandbox"),
        show_default=True,
        help="Isolation of the submission; use none for your own code only.",
    ),
    _option("--strict", is_flag=True, help="Refuse to grade if a layer of the sandbox is missing."),
    _option(
        "--require-own-kernel",
        type=float,
        callback=checked,
        metavar="SHARE",
        help="Reject a submission whose own kernels do less than this share of the work (above 0, at most 1).",
    ),
    _choice(
        "--baseline",
        [kind for kind in BaselineKind if kind is not BaselineKind.SUBMISSION],
        multiple=True,
        help="Also time this form of the reference, with PyTorch's TF32 default and with the problem's. Repeatable.",
    ),
    _seconds(
        "--timeout",
        help="Seconds for the import, and for each call of the submission; beyond, the verdict is timeout.  "
        "Except on cuda, CPU time counts, and six times as much wall time.  "
        "[default: imports 60 s; calls 20 times the reference, at least 10 s, 2 s on cuda]",
    ),
    _seconds(
        "--build-timeout",
        default=default_of("build_timeout_s"),
        help="Seconds for the compilation of each extension, and for all builds of a grade; beyond, the compiler "
        f"is stopped, and the verdict is timeout.  [default: {default_of('build_timeout_s'):.0f} s]",
    ),
    _seconds(
        "--deadline",
        help="Seconds for the whole grade; beyond, all its processes are killed. The verdict is timeout if the "
        "submission took half of the time, otherwise infra_error.  [default: --build-timeout plus 20 minutes]",
    ),
)


class WithProjectFile(click.Command):
    """Command with defaults from the nearest pyproject.toml.

    A replay has the options of the card instead, and no file can break --help.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments, with the file's options as defaults, and report the options in force."""
        is_ignored = (
            not {word.partition("=")[0] for word in args}.isdisjoint(("--replay", "--help", "-h"))
            or extra.get("resilient_parsing")
            or (parent is not None and parent.find_root().params.get("no_config"))
        )
        path, table = (None, {}) if is_ignored else project_file.nearest()
        defaults = {} if path is None else project_file.defaults(self, path, table)
        ctx = super().make_context(info_name, args, parent, **extra, default_map=defaults)
        used = {
            name: value
            for name, value in defaults.items()
            if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
        }
        if path is not None and used:
            terminal.tell(project_file.report_on(path, used))
        return ctx


class ValueMayFollow(WithProjectFile):
    """Command with optional values of options: the next word is a value only if among the choices.

    click would take any word: in `grade --profile relu mine.py`, the problem's name.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join option and value into a single word before parsing."""
        options = {
            name: param
            for param in self.params
            if isinstance(param, click.Option) and isinstance(param.flag_value, str) and not param.is_flag
            for name in param.opts
        }
        return super().parse_args(ctx, _with_values(args, options))


def _with_values(args: Sequence[str], options: Mapping[str, click.Option]) -> list[str]:
    words: list[str] = []
    unread = list(args)
    while unread:
        word = unread.pop(0)
        if word == "--":
            return [*words, word, *unread]
        if (option := options.get(word)) is not None:
            choices = option.type.choices if isinstance(option.type, click.Choice) else ()
            word = f"{word}={unread.pop(0) if unread and unread[0].lower() in choices else option.flag_value}"
        words.append(word)
    return words


def grading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a grade to `command`."""
    return _device_option(options_besides_device(command))


def options_besides_device(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a grade to `command`, except the device."""
    for option in reversed(_OTHER_OPTIONS):
        command = option(command)
    return command
