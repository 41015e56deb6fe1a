# ruff: noqa: RUF001 - the screen's own multiplication sign
import io
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from evaluator.findings import ENTRIES, Code, finding
from evaluator.progress import Silent
from evaluator.records import (
    CheckRule,
    ClockKind,
    L2Inputs,
    L2Rule,
    MachineCode,
    RunnerOutput,
    Scorecard,
    Status,
)
from evaluator.report.card.card_screen import render_card
from evaluator.report.card.excerpts import caret_cell
from evaluator.report.progress_line import MovingLine, StageLines, progress_on
from evaluator.text import printable
from evaluator.timing.quote import quote
from tests import cards
from tests.unit.compile.test_sass import recorded

HOSTILE = "\x1b[2J\x1b[1;1H\x1b[32m[green]correct[/green]\x1b]0;owned\x07\u202e\x00\x9b31m\r\nsecond [/] line\u200b"


def screen(card: Scorecard, width: int = 80, encoding: str = "utf-8", path: Path | None = None) -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, newline="")
    render_card(card, Console(file=stream, width=width), path or Path("scorecards/relu/relu_inline.json"))
    stream.flush()
    return buffer.getvalue().decode(encoding)


def test_a_correct_and_faster_submission() -> None:
    assert screen(cards.card()) == (
        "✓ correct  all calls agree with the reference\n"
        "\n"
        "  Submission     relu_inline for relu, size small, on cpu (AMD EPYC 7B13)\n"
        "  Correctness    12 calls checked, worst error 0.310 × what is allowed\n"
        "  Time           reference   1852 µs\n"
        "                 submission   621 µs  median of 50 verified calls\n"
        "  Speedup        2.98 ×  between 2.96 and 3.01 × (95 % sure)\n"
        "  Scorecard      scorecards/relu/relu_inline.json  after 29.3 s\n"
    )


def test_kernelbenchs_rule_has_a_line_where_it_disagrees_alone() -> None:
    told = [
        (cards.card(benchmark_correct=True), None),
        (cards.card(benchmark_correct=False), "  KernelBench    wrong by its own rule\n"),
        (cards.wrong_card(benchmark_correct=True), "  KernelBench    correct by its own rule\n"),
        (cards.wrong_card(benchmark_correct=False), None),
        (cards.crashed_card(), None),
    ]
    for card, line in told:
        assert ("KernelBench" in screen(card)) is (line is not None)
        assert line is None or line in screen(card)


def test_of_several_files_an_error_has_its_file_and_line() -> None:
    shown = screen(cards.several_card())
    assert "csrc/relu.cpp, line 3: expected ';'\n" in shown
    lines = shown.splitlines()
    at = next(number for number, line in enumerate(lines) if ">    3" in line)
    assert lines[at].endswith("    return size")
    assert lines[at + 1].index("^") == lines[at].index("size") + 4
    assert '#include "size.h"' in lines[at - 2]
    assert "#@ file" not in shown


def test_a_form_feed_ends_no_line() -> None:
    reason = finding(Code.FORWARD_FAILED, "no", line=3)
    shown = screen(cards.crashed_card(source="a = 1\n\fb = 2\nraise ValueError\n", reason=reason))
    assert ">    3 \u2502 raise ValueError" in shown


def test_a_wrong_result_names_the_first_mismatch_and_quotes_no_time() -> None:
    assert screen(cards.wrong_card(timing=cards.timing())) == (
        "✗ wrong result  call 3: output differs; the largest error is 812 times what is\n"
        "  allowed\n"
        "\n"
        "  Submission     relu_inline for relu, size small, on cpu (AMD EPYC 7B13)\n"
        "  Correctness    1 of 3 calls wrong, worst error 812 × what is allowed\n"
        "                 first on inputs as given:\n"
        "                 output, float32 [64, 16384]: 524288 elements differ\n"
        "                 at [0, 3]: expected 0.0, got -0.5123\n"
        "  Next           Look at the element of the first mismatch: a missing tail, a\n"
        "                 wrong index, a missing __syncthreads().\n"
        "                 warpgrade explain C405\n"
        "  Scorecard      scorecards/relu/relu_inline.json  after 29.3 s\n"
    )


@pytest.mark.parametrize(
    ("column", "caret"), [(23, True), (None, False), (0, False), (1 << 22, False), ("23", False), (-5, False)]
)
def test_a_kernel_that_does_not_compile_has_a_caret(column: Any, caret: bool) -> None:
    line = next(n for n, text in enumerate(cards.SOURCE.splitlines(), start=1) if "extension.relu" in text)
    reason = finding(Code.KERNEL_REFUSED, "the kernel k does not compile: no relu", line=line, column=column)
    shown = screen(cards.card(status=Status.BUILD_ERROR, reason=reason, timing=None)).splitlines()
    own = next(n for n, text in enumerate(shown) if "extension.relu" in text)
    assert (shown[own + 1].strip().endswith("^")) is caret
    if caret:
        assert shown[own + 1].index("^") - shown[own].index("return") == column - 9


def test_a_compile_error_is_shown_at_the_submissions_own_line() -> None:
    assert screen(cards.uncompiled_card()).startswith(
        "✗ build error  the extension 'relu' does not compile\n"
        "\n"
        "  line 9: expected ',' or ';' before 'const'\n"
        "       7 │\n"
        "       8 │ torch::Tensor relu(torch::Tensor x) {\n"
        "  >    9 │     auto y = torch::empty_like(x)\n"
        "         │                                  ^\n"
        "      10 │     const float* in = x.data_ptr<float>();\n"
        "\n"
        "  Submission"
    )


def test_three_compile_errors_are_shown_and_the_rest_counted() -> None:
    text = screen(cards.uncompiled_card([cards.diagnostic(line, 5) for line in (9, 10, 11, 12, 13)]))
    assert text.count("^") == 3
    assert "and 2 more errors; all are in the scorecard, under build.units" in text


def test_a_warning_is_no_error() -> None:
    warning = cards.diagnostic(12, 5, severity="warning", message="unused variable")
    assert "unused variable" not in screen(cards.uncompiled_card([cards.diagnostic(), warning]))


def test_an_error_in_generated_code_is_shown_as_the_compiler_saw_it() -> None:
    elsewhere = cards.diagnostic(11, 5, file="bindings.cpp", submission_line=None, source_line="m.def(relu)")
    text = screen(cards.uncompiled_card([elsewhere]))
    assert "  bindings.cpp, line 7: expected" in text
    assert "  >    7 │ m.def(relu)\n         │     ^\n" in text


def test_an_error_of_the_linker_has_no_line() -> None:
    message = "undefined reference to `relu'"
    linker = cards.diagnostic(4, 0, file="", submission_line=None, source_line="", message=message)
    text = screen(cards.uncompiled_card([linker]))
    assert "  linking: undefined reference to `relu'\n" in text
    assert "^" not in text


def test_a_build_without_messages_shows_the_end_of_its_log() -> None:
    unit = cards.build_unit(ok=False, log="first\n" * 50 + "last words\n")
    card = cards.uncompiled_card()
    build = type(card.build)(ok=False, import_s=1.0, units=[unit])
    text = screen(cards.uncompiled_card(build=build))
    assert "  │ last words\n" in text
    assert text.count("│ first") == 5


def test_a_crash_shows_its_line() -> None:
    text = screen(cards.crashed_card())
    assert text.startswith("✗ runtime error  RuntimeError: relu expects float32, got float64\n")
    assert "  >   22 │         return extension.relu(x)\n" in text
    assert "  Printed        13 bytes:\n  │ hello, world\n" in text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (MachineCode(kernels=2), "no tensor-core or half-precision instruction"),
        (recorded("tensor_cores"), "HMMA.1684.F32.TF32 (4) in gemm_tf32"),
        (MachineCode(not_looked_at="cuobjdump not found"), "not looked at: cuobjdump not found"),
        (MachineCode(library_kernels=["s1688gemm"]), "by name: s1688gemm"),
        (MachineCode(), None),
    ],
)
def test_the_machine_code_is_one_line(code: MachineCode, said: str | None) -> None:
    text = screen(cards.card(machine_code=code))
    assert said is None or f"  Machine code   {said}\n" in text
    assert text.count("\n") == screen(cards.card()).count("\n") + (said is not None)


def unquoted(**changes: Any) -> Scorecard:
    none = {"speedup": None, "speedup_low": None, "speedup_high": None, "significant": False}
    return cards.card(timing=cards.timing(0.0231, 0.0191, **none | changes))


NOT_SURE = {"speedup_low": 0.993, "speedup_high": 1.009, "significant": False}
OLD = {"speedup_low": None, "speedup_high": None, "significant": None}
EXACT = cards.check(tensors=[cards.tensor_check(error_ratio=0.0)])
OWN_CHECK = replace(cards.card().problem, check=CheckRule.INSTEAD)
WARM = L2Inputs(rule=L2Rule.WARM, limit_bytes=12 << 20)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (cards.card(checks=[EXACT]), "Correctness 1 call checked, every value exact Time"),
        (cards.card(problem=OWN_CHECK, checks=[EXACT]), "every value exact by the problem's own check Time"),
        (cards.card(timing=None), "Time not measured on cpu Scorecard"),
        (cards.card(l2=L2Inputs(rule=L2Rule.COLD)), "reference 1852 µs inputs cold in L2 submission"),
        (cards.card(l2=WARM), "reference 1852 µs inputs warm in L2, at most 12 MiB a call submission"),
        (
            cards.card(timing=cards.timing(1.0, 0.999, **NOT_SURE)),
            "Speedup 1.00 × between 0.993 and 1.009 × (95 % sure); no significant difference Scorecard",
        ),
        (cards.card(timing=cards.timing(1.0, 0.5, **OLD)), "Speedup 2.00 × Scorecard"),
        (cards.card(timing=cards.timing(1.0, 2.0)), "0.503 × (95 % sure) slower than the reference Scorecard"),
        (unquoted(), "reference 23.1 µs submission 19.1 µs"),
        (unquoted(), "not quoted: its interval is unbounded Scorecard"),
        (unquoted(resolution_ms=0.02, speedup_low=0.0), "the clock's error, 20.0 µs, exceeds the submission's time"),
        (unquoted(speedup_low=0.8), "not quoted: its interval is above 0.800 × (95 % sure) Scorecard"),
        (unquoted(speedup_low=1.3, significant=True), "is above 1.30 × (95 % sure); certainly faster Scorecard"),
        (unquoted(speedup_low=0.9, speedup_high=1.3), "is between 0.900 and 1.30 × (95 % sure) Scorecard"),
        (
            unquoted(speedup_low=0.5, speedup_high=0.7, significant=True),
            "between 0.500 and 0.700 × (95 % sure); certainly slower Scorecard",
        ),
    ],
)
def test_a_screen_says_in_words(card: Scorecard, said: str) -> None:
    assert said in " ".join(screen(card).split())


def test_the_whole_next_step_of_every_code_is_shown() -> None:
    for code, entry in ENTRIES.items():
        failed = screen(cards.wrong_card(reason=finding(code, "")), width=200)
        remarked = screen(cards.card(findings=[finding(code, "")]), width=200)
        for text in (failed, remarked):
            assert " ".join(entry.next_step.split()) in " ".join(text.split())


@pytest.mark.parametrize("status", Status)
def test_every_status_is_the_first_word(status: Status) -> None:
    first = screen(cards.card(status=status, reason=None)).splitlines()[0]
    assert first[2:].startswith(status.value.replace("_", " ") + "  ")
    assert first[0] == {"correct": "✓", "inconclusive": "?", "infra_error": "?"}.get(status.value, "✗")


def test_findings_have_code_message_and_next_step_and_are_few() -> None:
    found = [finding(code, f"message of {code.value}") for code in (Code.NOT_QUIET, Code.WALL_MISSING, Code.NO_SANDBOX)]
    text = screen(cards.card(findings=[*found, found[0], found[1]]))
    wrong = cards.wrong_card()
    assert screen(replace(wrong, findings=[wrong.reason])) == screen(wrong)
    assert "  Findings       T305 message of T305\n                 → Close other programs and grade again.\n" in text
    assert "I501 message of I501" in text
    assert "and 2 more findings in the scorecard\n" in text


def hostile_cards() -> list[Scorecard]:
    reason = finding(Code.FORWARD_FAILED, HOSTILE, line=3)
    source = "\n".join([HOSTILE.replace("\r\n", " ")] * 5)
    bad = cards.diagnostic(message=HOSTILE, file=HOSTILE, source_line=HOSTILE, submission_line=3, column=4)
    tensor = cards.tensor_check(ok=False, path=HOSTILE, dtype=HOSTILE, mismatches=1)
    code = MachineCode(kernels=1, reduced=[replace(recorded("half").reduced[0], name=HOSTILE)])
    said = RunnerOutput(total_bytes=9, text=f"{HOSTILE}\r\n{'x' * 5000}")
    return [
        cards.crashed_card(machine_code=code, output=said),
        cards.crashed_card(reason=reason, source=source),
        cards.uncompiled_card([bad, cards.diagnostic(file=HOSTILE, submission_line=None, source_line=HOSTILE)]),
        cards.wrong_card(checks=[cards.check(profile=HOSTILE, ok=False, tensors=[tensor])], findings=[reason] * 5),
    ]


@pytest.mark.parametrize("card", hostile_cards())
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_hostile_text_is_shown_as_text(card: Scorecard, encoding: str) -> None:
    text = screen(card, encoding=encoding)
    assert not set(text) & set("\x1b\x9b\x07\x00\r\u202e\u200b")
    assert "[green]correct[/green]" in text
    assert not any(line.startswith(("correct", "✓", "+", "second")) for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize(
    "card", [cards.wrong_card(), cards.uncompiled_card(), cards.crashed_card(), cards.unread_card(), *hostile_cards()]
)
def test_no_line_is_wider_than_the_screen(card: Scorecard, width: int) -> None:
    assert max(len(line) for line in screen(card, width=width).splitlines()) <= width


@pytest.mark.parametrize("card", [cards.card(findings=[finding(Code.NOT_QUIET, "x" * 5000)] * 9), *hostile_cards()])
def test_a_card_fits_one_screen(card: Scorecard) -> None:
    assert len(screen(card).splitlines()) <= 40


def test_without_unicode_the_screen_is_ascii() -> None:
    text = screen(cards.card(), encoding="ascii")
    assert text.startswith("+ correct  all calls")
    assert "0.310 x what is allowed" in text
    assert "621 us" in text


def test_colour_only_on_a_terminal_and_never_against_the_users_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    coloured, plain = io.StringIO(), io.StringIO()
    render_card(cards.card(), Console(file=coloured, width=80, force_terminal=True))
    assert "\x1b[1;32m" in coloured.getvalue()
    render_card(cards.card(), Console(file=plain, width=80, force_terminal=True, no_color=True))
    assert "32m" not in plain.getvalue()


@pytest.mark.parametrize(
    ("own", "compiled", "column", "under"),
    [
        ("    int x = y", "    int x = y", 13, "y"),
        ("\tint x = y", "\tint x = y", 17, "y"),  # a tab is eight columns for the compiler
        ('src = """int x = y', "int x = y", 9, "y"),
        ("        int x = y", "int x = y", 9, "y"),  # dedented before it was compiled
        ("int x = y", "", 9, "y"),
        ("int x = y", "int x = y", 0, None),
        ("int x = y", "something else", 3, None),
        ("int x = y", "int x = y", 99, None),
    ],
)
def test_the_caret_is_under_the_right_character(own: str, compiled: str, column: int, under: str | None) -> None:
    cell = caret_cell(cards.diagnostic(column=column, source_line=compiled), own)
    assert (None if cell is None else printable(own)[cell]) == under


def test_a_long_line_is_cut_around_its_caret() -> None:
    long = "    f(" + "a, " * 200 + "WRONG, " + "b, " * 200
    column = long.index("WRONG") + 1
    text = screen(cards.uncompiled_card([cards.diagnostic(1, column, source_line=long)], source=long))
    line, caret = (part for part in text.splitlines() if "│" in part)
    assert line[caret.index("^") :].startswith("WRONG")
    assert len(line) <= 80


def test_progress_has_the_places_of_planned_stages() -> None:
    stream = io.StringIO()
    with progress_on(stream, stages=["read", "build", "check"]) as progress:
        for name in ("read", "build", "look", "check", "build"):
            progress.stage(name, "relu \x1b[2J[red]" if name == "read" else "")
    with progress_on(stream, quiet=True) as silent:
        silent.stage("build")
    assert (type(progress), type(silent)) == (StageLines, Silent)
    assert stream.getvalue().splitlines() == [
        "read (1 of 3): relu [red]",
        "build (2 of 3)",
        "look",
        "check (3 of 3)",
        "build (3 of 3)",
    ]


def test_a_reader_that_went_away_stops_no_grade() -> None:
    tried = []

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise BrokenPipeError

    StageLines(Closed()).stage("build")
    assert tried == ["build\n"]


def test_the_moving_line_shows_the_stage_and_cleans_up() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, legacy_windows=False)
    with MovingLine(console, ["build", "check"]) as line:
        line.stage("build", "relu \x1b]0;owned\x07[red]" + " a detail" * 20)
    text = stream.getvalue()
    first = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).split("\n")[0].split("\r")[0]
    assert "build  1 of 2  0 s  relu [red] a detail" in first
    assert len(first) <= 80
    assert "owned" not in text
    assert "\x1b[2K" in text, "the line is erased at the end"


def printed(text: str) -> RunnerOutput:
    return RunnerOutput(total_bytes=len(text), text=text)


def test_what_a_correct_submission_printed_is_counted_and_show_has_it() -> None:
    card = cards.card(output=printed("one\n  two\n"))
    assert "  Printed        10 bytes; `warpgrade show` prints them\n" in screen(card)
    assert "two" not in screen(card)
    stream = io.StringIO()
    render_card(card, Console(file=stream, width=80), with_samples=True)
    assert "  Printed        10 bytes:\n  │ one\n  │   two\n" in stream.getvalue()


def test_of_much_that_was_printed_the_beginning_and_more_of_the_end_is_shown() -> None:
    card = cards.crashed_card(output=printed("".join(f"line {number}\n" for number in range(1000))))
    text = screen(card)
    shown = [line for line in text.splitlines() if line.startswith("  │ line ")]
    assert shown[:4] == [f"  │ line {number}" for number in range(4)]
    assert shown[4:] == [f"  │ line {number}" for number in range(992, 1000)]
    assert "… 988 lines omitted; the scorecard has more\n" in text


def host_bound(submission_host_ms: float | None, **changes: Any) -> Scorecard:
    reference = cards.in_windows(cards.samples("reference", 0.0102), 0.0102, host_ms=0.0091)
    submission = cards.in_windows(cards.samples("submission", 0.0032), 0.0032, host_ms=submission_host_ms)
    timing = quote(ClockKind.SEALED, reference, replace(submission, **changes), reference).timing
    return cards.card(timing=timing)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (host_bound(0.011), "host-bound: GPU 3.20 µs a call, host 11.0 µs; the reference's host 9.10 µs\n"),
        (host_bound(0.0031), None),
        (host_bound(None), None),
        (
            host_bound(None, waits_for_gpu=True),
            "host-bound: forward waits for the GPU, so its time includes the host's\n",
        ),
    ],
)
def test_a_host_bound_submission_has_one_line_with_both_times(card: Scorecard, said: str | None) -> None:
    if said is None:
        assert "host-bound" not in screen(card)
    else:
        assert f"  Host           {said}" in screen(card, width=100)
