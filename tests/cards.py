"""Scorecards for tests: one honest card, and the same card with something changed."""

import copy
import functools
import hashlib
from typing import Any

import msgspec

from evaluator.findings import Code, finding
from evaluator.protocol.submission_files import joined
from evaluator.records import (
    Baseline,
    BaselineKind,
    Build,
    BuildUnit,
    CaseResult,
    Check,
    ClockKind,
    Clocks,
    DeviceFacts,
    DeviceKind,
    Diagnostic,
    Environment,
    L2Inputs,
    L2Rule,
    Mismatch,
    Mode,
    Precision,
    ProblemRef,
    RunnerOutput,
    Samples,
    SandboxFacts,
    Scorecard,
    Seeds,
    SizeName,
    Status,
    SubmissionRef,
    TensorCheck,
    Timing,
    ToleranceRule,
    Windows,
    seed_text,
)
from evaluator.timing.quote import quote, score_of

SOURCE = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>

torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x)
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0 ? in[i] : 0;
    return y;
}
"""

extension = load_inline(name="relu", cpp_sources=cpp_source, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
'''


SEVERAL = joined(
    [
        ("submission.toml", 'entry = "main.py"\n'),
        ("main.py", "import relu\n\n\nclass ModelNew:\n    pass\n"),
        ("csrc/relu.cpp", '#include "size.h"\nint relu() {\n    return size\n}\n'),
        ("csrc/size.h", "// judge: pass\nconst int size = 3;\n"),
    ]
)
"""A submission of several files. Line 13 is line 3 of csrc/relu.cpp, line 16 is line 1 of csrc/size.h."""


def tensor_check(**changes: Any) -> TensorCheck:
    return msgspec.structs.replace(
        TensorCheck(
            path="output",
            dtype="float32",
            shape=[64, 16384],
            ok=True,
            max_abs_error=2.4e-7,
            error_ratio=0.31,
            honest_error_ratio=0.25,
            mismatches=0,
            nonfinite=0,
            first_mismatch=None,
        ),
        **changes,
    )


def check(index: int = 0, **changes: Any) -> Check:
    return msgspec.structs.replace(
        Check(
            index=index,
            profile="as_given",
            seed=seed_text(1000 + index),
            schedule=None,
            launches=None,
            ok=True,
            precision="float64",
            tensors=[tensor_check()],
            finding=None,
        ),
        **changes,
    )


def wrong_check(index: int = 0, **changes: Any) -> Check:
    mismatch = Mismatch(index=[0, 3], expected="0.0", actual="-0.5123")
    wrong = tensor_check(ok=False, error_ratio=812.4, mismatches=524288, first_mismatch=mismatch)
    return check(index, **{"ok": False, "tensors": [wrong]} | changes)


def samples(side: str, median_ms: float, calls: int = 50) -> Samples:
    return Samples(
        side=side,
        seeds=[seed_text(n) for n in range(calls)],
        samples_ms=[median_ms] * calls,
        overhead_ms=0.005,
        overhead_iqr_ms=0.001,
        median_ms=median_ms,
        iqr_ms=0.0,
        first_call_ms=median_ms * 2,
        outputs_copied=False,
        outliers=0,
    )


def in_windows(side: Samples, call_ms: float, *, shared_work: bool = False, **changes: Any) -> Samples:
    """Give a side whose calls also ran in windows, where each took `call_ms`."""
    windows = Windows(
        calls=[24, 31, 28, 30],
        window_ms=[call_ms * (calls - 1) * part for calls, part in ((24, 0.99), (31, 1.0), (28, 1.01), (30, 1.0))],
        clock_error_ms=call_ms / 200,
        single_ms=side.samples_ms,
        spot_ms=[call_ms * 2, call_ms * 2.1],
        shared_work=shared_work,
    )
    return msgspec.structs.replace(side, windows=msgspec.structs.replace(windows, **changes))


def baseline(of: Samples | None, **changes: Any) -> Baseline:
    """Give a compiled reference with its samples, before the submission's speedup is computed."""
    plain = Baseline(
        kind=BaselineKind.COMPILE,
        tf32=None,
        name=None,
        sha256=None,
        measured_at="2026-01-02T03:04:05Z",
        kept=False,
        reference_median_ms=None,
        samples=of,
        speedup=None,
        speedup_low=None,
        speedup_high=None,
        significant=None,
        finding=None,
    )
    return msgspec.structs.replace(plain, **changes)


def timing(reference_ms: float = 1.852, submission_ms: float = 0.6213, **changes: Any) -> Timing:
    """Give what a grade would say of such samples, with `changes` of its fields."""
    return msgspec.structs.replace(copy.deepcopy(_quoted(reference_ms, submission_ms)), **changes)


@functools.cache
def _quoted(reference_ms: float, submission_ms: float) -> Timing:
    """Give the quoted times of such samples: each interval is a bootstrap, and thousands of cards have the same."""
    sides = samples("reference", reference_ms), samples("submission", submission_ms), samples("reference", reference_ms)
    return quote(ClockKind.HOST, *sides).timing


def diagnostic(line: int = 9, column: int = 34, **changes: Any) -> Diagnostic:
    text = SOURCE.splitlines()[line - 1]
    return msgspec.structs.replace(
        Diagnostic(
            severity="error",
            message="expected ',' or ';' before 'const'",
            file="main.cpp",
            line=line - 4,
            column=column,
            submission_line=line,
            source_line=text,
        ),
        **changes,
    )


def build_unit(*, diagnostics: list[Diagnostic] | None = None, **changes: Any) -> BuildUnit:
    return msgspec.structs.replace(
        BuildUnit(
            name="relu",
            key=hashlib.sha256(b"relu").hexdigest(),
            ok=not diagnostics,
            cached=False,
            wall_s=21.4,
            diagnostics=diagnostics or [],
            log="",
        ),
        **changes,
    )


def card(**changes: Any) -> Scorecard:
    """Give an honest, correct, faster submission's card, with `changes` of its fields."""
    source = changes.pop("source", SOURCE)
    honest = Scorecard(
        status=Status.CORRECT,
        reason=None,
        problem=ProblemRef(
            name="relu",
            title="ReLU",
            level=1,
            origin="warpgrade",
            sha256=hashlib.sha256(b"reference").hexdigest(),
            size=SizeName.SMALL,
            constants={"batch_size": 64},
            precision=Precision.FP32,
            mode=Mode.TRAIN,
            backward=False,
        ),
        submission=SubmissionRef(
            name="relu_inline",
            origin="relu_inline.py",
            sha256=hashlib.sha256(source.encode("utf-8", "replace")).hexdigest(),
            source=source,
            extracted_from_answer=False,
        ),
        device=DeviceFacts(kind=DeviceKind.CPU, name="AMD EPYC 7B13"),
        environment=Environment(
            warpgrade="0.1.0",
            python="3.11.9",
            torch="2.13.0",
            compiler="g++ 12.2.0",
            platform="Linux",
            cpu="AMD EPYC 7B13",
            cpu_cores=2,
            memory_bytes=8 << 30,
            threads=2,
        ),
        sandbox=SandboxFacts(
            mode="full",
            layers=["namespaces", "seccomp"],
            missing=[],
            memory_bytes=4 << 30,
            processes=64,
            file_bytes=1 << 30,
            private_folder_bytes=1 << 30,
        ),
        tolerance=ToleranceRule.MEASURED,
        seeds=Seeds(weight=seed_text(7), replayed_from=None),
        build=Build(ok=True, import_s=22.0, units=[build_unit()]),
        checks=[check(n) for n in range(12)],
        timing=timing(),
        findings=[],
        output=RunnerOutput(total_bytes=0, text=""),
        graded_at="2026-01-02T03:04:05Z",
        stages_s={"build": 22.0, "check": 3.0, "time": 4.1},
        wall_s=29.3,
    )
    return msgspec.structs.replace(honest, **changes)


def mixed_card(**changes: Any) -> Scorecard:
    """Give the card of a GPU whose reference has single calls, and whose submission has windows and is host-bound."""
    clocks = Clocks(sm_mhz=[1980] * 4), Clocks(sm_mhz=[1755] * 4, throttled={"sw_power_cap": 3})
    reference = msgspec.structs.replace(samples("reference", 0.500), clocks=clocks[0])
    submission = in_windows(samples("submission", 0.1), 0.010, host_ms=0.014)
    submission = msgspec.structs.replace(submission, clocks=clocks[1])
    quoted = quote(ClockKind.SEALED, reference, submission, reference)
    return card(
        **{
            "device": DeviceFacts(kind=DeviceKind.CUDA, name="NVIDIA H200"),
            "timing": quoted.timing,
            "findings": quoted.findings,
            "l2": L2Inputs(rule=L2Rule.COLD),
        }
        | changes
    )


def windows_card(**changes: Any) -> Scorecard:
    """Give the card of a GPU with windows on both sides."""
    reference = in_windows(samples("reference", 0.1), 0.020)
    submission = in_windows(samples("submission", 0.1), 0.010)
    timing = quote(ClockKind.SEALED, reference, submission, reference).timing
    return mixed_card(**{"timing": timing, "findings": []} | changes)


def wrong_card(**changes: Any) -> Scorecard:
    reason = finding(Code.WRONG_VALUES, "call 3: output differs; the largest error is 812 times what is allowed")
    checks = [*(check(n) for n in range(2)), wrong_check(2)]
    return card(**{"status": Status.WRONG_RESULT, "reason": reason, "checks": checks, "timing": None} | changes)


def uncompiled_card(diagnostics: list[Diagnostic] | None = None, **changes: Any) -> Scorecard:
    reason = finding(Code.COMPILE_FAILED, "the extension 'relu' does not compile", line=9)
    unit = build_unit(diagnostics=diagnostics or [diagnostic()])
    build = Build(ok=False, import_s=9.0, units=[unit])
    failed = {"status": Status.BUILD_ERROR, "reason": reason, "build": build, "checks": [], "timing": None}
    return card(**failed | changes)


def several_card(**changes: Any) -> Scorecard:
    """Give the card of a submission of several files that does not compile."""
    error = diagnostic(
        message="expected ';'",
        file="csrc/relu.cpp",
        line=3,
        column=16,
        submission_line=13,
        source_line="    return size",
    )
    reason = finding(Code.COMPILE_FAILED, "the extension 'relu' does not compile", line=13)
    remark = finding(Code.ADDRESSED_TEXT, "addresses a reader", line=16)
    given = {"source": SEVERAL, "reason": reason, "findings": [remark]}
    return uncompiled_card([error], **given | changes)


def crashed_card(**changes: Any) -> Scorecard:
    reason = finding(Code.FORWARD_FAILED, "RuntimeError: relu expects float32, got float64", line=22)
    failed = {"status": Status.RUNTIME_ERROR, "reason": reason, "checks": [], "timing": None}
    printed = RunnerOutput(total_bytes=13, text="hello, world\n")
    return card(**failed | {"output": printed} | changes)


def unread_card(**changes: Any) -> Scorecard:
    """Give the card of an answer in which there was no code: nothing was run."""
    reason = finding(Code.NO_CODE, "no fenced block of the answer defines ModelNew")
    missing = SubmissionRef(name="answer", origin="answer.md", sha256=None, source="", extracted_from_answer=False)
    empty = {"submission": missing, "build": None, "checks": [], "timing": None, "seeds": None, "sandbox": None}
    return card(**{"status": Status.BUILD_ERROR, "reason": reason} | empty | changes)


def cases_card(*others: CaseResult, **changes: Any) -> Scorecard:
    """Give the card of a grade of several cases: its own, and one that is slower than the reference, or `others`."""
    honest = card(**{name: changes.pop(name) for name in ("status", "reason", "timing") if name in changes})
    own = CaseResult(honest.problem.size, honest.problem.constants, 3.0, Status.CORRECT)
    if (times := honest.timing) is not None:
        quotes = (times.speedup, times.speedup_low, times.speedup_high)
        own = CaseResult(
            own.name, own.axes, 3.0, Status.CORRECT, None, None, *quotes, times.submission_median_ms,
            times.reference_median_ms,
        )  # fmt: skip
    slow = CaseResult("decode", {"batch_size": 1}, 1.0, Status.CORRECT, None, None, 0.5, 0.49, 0.51, 2.0, 1.0)
    cases = [own, *(others or [slow])]
    return msgspec.structs.replace(honest, cases=cases, score=score_of(cases), **changes)
