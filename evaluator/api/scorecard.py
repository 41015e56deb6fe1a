"""The scorecard of the Python API: the record, with views for programs, notebooks and models.

Scorecard as HTML for a notebook: the screen of `warpgrade show`, with all text escaped.
"""

import io
from pathlib import Path
from typing import Self

from evaluator import records
from evaluator.files import card_files
from evaluator.records import GradeMode, Status
from evaluator.report.card.feedback import CHARACTERS, feedback
from evaluator.report.card.measurement import cases_sentence, shows_cases
from evaluator.report.layout.quotation import plain
from evaluator.signatures.signing import as_it_is_written
from evaluator.text import ratio

_NAME = 60
_REASON = 120


class Scorecard(records.Scorecard, frozen=True, kw_only=True):
    """Record of a grade: all data needed to verify and to repeat the grade. Immutable.

    Attributes:
        status: the verdict.
        reason: the finding behind the verdict; None for `correct`.
        findings: further findings.
        problem: name, hash, size and settings of the problem.
        submission: name, hash and executed text of the submission.
        device: kind and name of the device.
        environment: versions and machine.
        sandbox: layers and limits of the sandbox.
        tolerance: rule for the allowed error.
        values: rule for the values of the inputs.
        mode: full, or check for a grade without times.
        l2: whether timed inputs were in the L2 cache of the GPU.
        weights: the rule for the weights, and how the weights were graded.
        seeds: seeds of all calls.
        build: extensions with compiler messages; None if nothing was built.
        checks: an entry for each checked call.
        timing: times of both sides; None if nothing was timed.
        baselines: times of other forms of the reference.
        roofline: least time of a call on the GPU.
        own_kernels: share of the work in own kernels.
        machine_code: instructions of reduced precision in the compiled kernels.
        required_own_kernel: the required share.
        entry: name of the class that the grade asked for; None for ModelNew, else Model.
        profiling: kernels of a profiled call.
        output: text printed by the submission.
        graded_at: start of the grade.
        stages_s: seconds of each stage.
        wall_s: seconds of the grade.
        signature: signature of the card.
        benchmark_correct: whether the rule of the problem's own benchmark accepts the outputs; None without an
            opinion.
        benchmark_rule: that rule: kernelbench, sol_execbench, flashinfer_bench, atrex, kernelbot or check.
        cases: result of each case of a grade of several.
        score: weighted geometric mean of the speedups of the cases.
        schema_version: version of the layout.
    """

    @classmethod
    def of(cls, card: records.Scorecard) -> Self:
        """Return `card` with the views of the class."""
        return cls(**{name: getattr(card, name) for name in records.Scorecard.__struct_fields__})

    @property
    def correct(self) -> bool:
        """Whether the submission is correct. An `inconclusive` or `infra_error` card is not."""
        return self.status is Status.CORRECT

    @property
    def speedup(self) -> float | None:
        """Time of the reference divided by the time of a correct submission; the score of several timed cases.

        None if the submission is not correct, was not timed, or if the 95 % interval is wider than 15 %, or
        20 % where both sides were timed in windows on a GPU.
        """
        return self.quoted.speedup

    def feedback(self, *, characters: int = CHARACTERS) -> str:
        """Return the text for a language model's next attempt.

        The text has at most `characters` bytes of UTF-8, so never more tokens; a token usually has three to four
        characters. Verdict and next step come first.
        Compiler messages with line numbers, the first wrong element, further findings, times and printed output follow
        in the order of use, as far as the limit allows.

        The submission's process, source and compiler wrote parts of the text, and may have written instructions. Each
        line of the parts begins with `> `, without control characters and without the special tokens of chat
        templates. The first line warns the reader.

        Raises:
            ValueError: `characters` is too small for the verdict.
        """
        return feedback(self, characters=characters)

    def write(self, path: str | Path) -> None:
        """Write the card to a file, as `warpgrade grade --output` does. Raises CardNotWritten."""
        card_files.write_card(as_it_is_written(self), Path(path))

    def _repr_html_(self) -> str:
        """Return the screen of `warpgrade show` as HTML, for notebooks."""
        return html(self)

    def __repr__(self) -> str:
        parts = [plain(f"{self.problem.name}/{self.submission.name}", _NAME), f"on {self.device.kind.value}"]
        if self.mode is not GradeMode.FULL:
            parts.append(f"mode {self.mode.value}")
        if self.speedup is not None:
            parts.append(f"{ratio(self.speedup)}x")
        if self.reason is None and shows_cases(self):
            parts.append(plain(cases_sentence(self.cases), _REASON))
        if self.reason is not None:
            parts.append(plain(f"{self.reason.code} {self.reason.message}", _REASON))
        return f"Scorecard({self.status.value}: {', '.join(parts)})"


def read_card(path: str | Path) -> Scorecard:
    """Read a scorecard from a file.

    Raises:
        CardError: the file cannot be read, or is not a scorecard.
    """
    return Scorecard.of(card_files.read_card(Path(path)))


_WIDTH = 100
_PRE = '<pre style="font-family:monospace;line-height:1.3;white-space:pre-wrap">{code}</pre>'


def html(card: records.Scorecard) -> str:
    """Return the screen of a card as HTML."""
    from rich.console import Console

    from evaluator.report.card.card_screen import render_card

    console = Console(file=io.StringIO(), record=True, width=_WIDTH, highlight=False, force_jupyter=False)
    render_card(card, console)
    return console.export_html(inline_styles=True, code_format=_PRE)
