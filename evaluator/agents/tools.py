"""Tools of the server: names, descriptions, inputs and structured results. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from evaluator.errors import UsageError
from evaluator.records import Record, SizeName, Status
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


_Size = Annotated[
    SizeName,
    msgspec.Meta(description="Size of the problem; by default that of the server. `awkward` has odd extents."),
]


class GradeInput(Record, frozen=True):
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
    size: _Size | None = None
    characters: _Characters = CHARACTERS


class CompareInput(Record, frozen=True):
    """Input of `compare`."""

    problem: _ProblemName
    first: _Source
    second: _Source
    size: _Size | None = None
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


class Graded(Record, frozen=True):
    """Verdict of a grade. `speedup` is None without a certain measurement, `code` None for a correct submission."""

    status: Status
    correct: bool
    code: str | None
    speedup: float | None


class Compared(Record, frozen=True):
    """Verdicts of two grades, and the 95 % interval of the second's speed relative to the first's, if both have one."""

    first: Graded
    second: Graded
    ratio_low: float | None
    ratio_high: float | None


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
    """What the terms of the user leave to the agent: files below a root, the size, and profiles."""

    has_root: bool = False
    has_sizes: bool = True
    has_profiles: bool = True

    @property
    def tools(self) -> list[ToolName]:
        """The tools that work."""
        return [name for name in ToolName if self.has_profiles or name is not ToolName.PROFILE]

    @property
    def withheld(self) -> frozenset[str]:
        """Names of arguments that no tool takes."""
        return frozenset((*(() if self.has_root else ("path",)), *(() if self.has_sizes else ("size",))))

    def input_schema(self, tool: ToolName) -> dict[str, Any]:
        """Return the schema of a tool's arguments."""
        schema = schema_of(TOOLS[tool].input)
        properties = {name: spec for name, spec in schema["properties"].items() if name not in self.withheld}
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
    return tool, tool_input
