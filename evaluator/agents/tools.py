"""Tools of the server: names, descriptions, inputs and structured results. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from evaluator.errors import UsageError
from evaluator.records import Constant, Record, SizeName, Status
from evaluator.report.card.feedback import CHARACTERS
from evaluator.submission.read import MAX_ANSWER_BYTES

LEAST_CHARACTERS = 2400
MOST_CHARACTERS = 20_000

_ProblemName = Annotated[str, msgspec.Meta(max_length=500, description="Name of a problem, as `problems` lists it.")]
_Source = Annotated[
    str,
    msgspec.Meta(
        max_length=MAX_ANSWER_BYTES,
        description="Python text that defines `class ModelNew(nn.Module)`, with inline CUDA or C++ by load_inline.",
    ),
]
_Characters = Annotated[
    int,
    msgspec.Meta(
        ge=LEAST_CHARACTERS,
        le=MOST_CHARACTERS,
        description="Limit of the answer's text, in characters. A token is three to four characters.",
    ),
]


_MOST_CASES = 64
_CaseWord = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Choice(Record, frozen=True, kw_only=True):
    """What an agent chooses of a grade beside problem and submission: size or cases, and their limits."""

    size: (
        Annotated[
            SizeName,
            msgspec.Meta(description="Size of the problem; by default that of the server. `awkward` has odd extents."),
        ]
        | None
    ) = None
    case: Annotated[
        list[_CaseWord],
        msgspec.Meta(
            max_length=_MOST_CASES,
            description="Cases of the problem, as `problems` names them: one grade of several shapes. `all` means all "
            "of them, `hidden` further shapes that the judge draws. Without size.",
        ),
    ] = []
    budget_s: (
        Annotated[
            float, msgspec.Meta(gt=0, le=1e6, description="Begin no further case after so many seconds on the device.")
        ]
        | None
    ) = None
    stop_at_failure: Annotated[bool, msgspec.Meta(description="Grade no further case after one that fails.")] = False

    @property
    def options(self) -> dict[str, Any]:
        """The options with other values than their defaults, by name."""
        values = {name: getattr(self, name) for name in CHOICES}
        return {name: value for name, value in values.items() if value}


CHOICES = Choice.__struct_fields__
"""Names of the arguments by which an agent chooses, where the user has not chosen."""


class GradeInput(Choice, frozen=True, kw_only=True):
    """Input of `grade` and `profile`. Either `source` or `path` is given."""

    problem: _ProblemName
    source: _Source | None = None
    path: (
        Annotated[
            str,
            msgspec.Meta(max_length=4000, description="Instead of `source`: a file below the folder of the server."),
        ]
        | None
    ) = None
    characters: _Characters = CHARACTERS


class CompareInput(Choice, frozen=True, kw_only=True):
    """Input of `compare`."""

    problem: _ProblemName
    first: _Source
    second: _Source
    characters: _Characters = CHARACTERS


class ExplainInput(Record, frozen=True):
    """Input of `explain`."""

    code: Annotated[str, msgspec.Meta(max_length=100, description="Code of a finding, such as C405.")]


class ProblemsInput(Record, frozen=True):
    """Input of `problems`."""

    name: (
        Annotated[str, msgspec.Meta(max_length=500, description="A problem to show with its reference; else a list.")]
        | None
    ) = None
    containing: Annotated[str, msgspec.Meta(max_length=100, description="List only names with this text.")] = ""
    characters: _Characters = CHARACTERS


class GradedCase(Record, frozen=True):
    """Result of a case. `status` is None for a case left out; `speedup` and its 95 % interval are as far as known."""

    name: str
    axes: dict[str, Constant]
    status: Status | None
    code: str | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None


class Graded(Record, frozen=True):
    """Verdict of a grade. `speedup` is None without a certain measurement, `code` None for a correct submission.

    Of a grade of several cases, `speedup` is the score.
    """

    status: Status
    correct: bool
    code: str | None
    speedup: float | None
    cases: list[GradedCase] = []


class ComparedCase(Record, frozen=True):
    """A case that both grades timed, and the 95 % interval of the second's speed relative to the first's."""

    name: str
    axes: dict[str, Constant]
    ratio_low: float
    ratio_high: float


class Compared(Record, frozen=True):
    """Verdicts of two grades, and the 95 % interval of the second's speed relative to the first's, if both have one."""

    first: Graded
    second: Graded
    ratio_low: float | None
    ratio_high: float | None
    cases: list[ComparedCase] = []


class ToolName(StrEnum):
    """The tools."""

    GRADE = "grade"
    EXPLAIN = "explain"
    PROBLEMS = "problems"
    PROFILE = "profile"
    COMPARE = "compare"


Input = GradeInput | CompareInput | ExplainInput | ProblemsInput


class Tool(NamedTuple):
    """Description, input and structured result of a tool. `result` is None for text only."""

    description: str
    input: type[Input]
    result: type[Record] | None = None


TOOLS: dict[ToolName, Tool] = {
    ToolName.GRADE: Tool(
        "Build, check and time a submission. The answer has the verdict, the reason and the next step. A grade takes "
        "from seconds to minutes.",
        GradeInput,
        Graded,
    ),
    ToolName.EXPLAIN: Tool("Explain a finding's code, and what to do about it.", ExplainInput),
    ToolName.PROBLEMS: Tool(
        "List the problems, or show one: task, sizes and the reference that a submission must agree with.",
        ProblemsInput,
    ),
    ToolName.PROFILE: Tool(
        "Grade a submission, and show the longest kernels of one call with registers, shared memory and spills.",
        GradeInput,
        Graded,
    ),
    ToolName.COMPARE: Tool(
        "Grade two submissions to a problem, and say whether the second one is certainly faster.",
        CompareInput,
        Compared,
    ),
}


class ToolTerms(NamedTuple):
    """What the terms of the user leave to the agent: files below a root, profiles, and the names of `CHOICES` left."""

    has_root: bool = False
    has_profiles: bool = True
    choices: frozenset[str] = frozenset(CHOICES)

    @property
    def tools(self) -> list[ToolName]:
        """The tools that work."""
        return [name for name in ToolName if self.has_profiles or name is not ToolName.PROFILE]

    @property
    def withheld(self) -> frozenset[str]:
        """Names of arguments that no tool takes."""
        return frozenset(() if self.has_root else ("path",)) | (frozenset(CHOICES) - self.choices)

    def input_schema(self, tool: ToolName) -> dict[str, Any]:
        """Return the schema of a tool's arguments."""
        schema = schema_of(TOOLS[tool].input)
        names = sorted(schema["properties"].keys() - self.withheld, key=lambda name: (name in CHOICES, name))
        properties = {name: schema["properties"][name] for name in names}
        required = [*schema.get("required", ()), *(["source"] if "source" in properties and not self.has_root else [])]
        return {**schema, "properties": properties, "required": required}


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """Return the JSON Schema of a record, with `type: object` at its root, as the protocol demands."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = dict(components.pop(kind.__name__))
    return {**root, "$defs": components} if components else root


def read_input(name: str, arguments: Mapping[str, Any] | None, terms: ToolTerms) -> tuple[ToolName, Input]:
    """Return the tool and its checked input.

    Raises:
        UsageError: there is no such tool, or an argument is missing, unknown or invalid.
    """
    if name not in terms.tools:
        raise UsageError(f"there is no tool {name[:40]!r}", hint=f"the tools are {', '.join(terms.tools)}")
    tool, values = ToolName(name), dict(arguments or {})
    schema = terms.input_schema(tool)
    fields = ", ".join(field + ("" if field in schema["required"] else " (optional)") for field in schema["properties"])
    hint = f"the arguments are {fields}"
    if unknown := terms.withheld & values.keys():
        raise UsageError(f"{tool}: this server takes no {min(unknown)}", hint=hint)
    try:
        # Clients write numbers as text at times.
        tool_input = msgspec.convert(values, TOOLS[tool].input, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{tool}: {error}", hint=hint) from error
    if isinstance(tool_input, GradeInput) and (tool_input.source is None) == (tool_input.path is None):
        needed = "exactly one of source and path" if terms.has_root else "source"
        raise UsageError(f"{tool}: {needed} is needed", hint=hint)
    if isinstance(tool_input, Choice) and tool_input.size is not None and tool_input.case:
        raise UsageError(f"{tool}: size and case both choose cases", hint="a size is a case too: name it in case")
    return tool, tool_input
