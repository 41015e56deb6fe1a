"""A card whose status its own checks, times or reason contradict is found; an honest one is not."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from evaluator.cards.consistency import inconsistencies
from evaluator.cards.time_consistency import requoted_baselines
from evaluator.commands import main as cli
from evaluator.files.card_files import write_card
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.records import (
    SCHEMA_VERSION,
    DeviceFacts,
    DeviceKind,
    GradeMode,
    L2Inputs,
    L2Rule,
    Mismatch,
    OwnKernels,
    ShareBasis,
    SizeName,
    Status,
    ToleranceRule,
)
from tests import cards


def checked_card(**changes):
    return cards.card(**{"mode": GradeMode.CHECK, "timing": None} | changes)


def with_baseline(**changes):
    """A card as the judge writes it, with a baseline of 1 ms."""
    card = cards.card(baselines=[cards.baseline(cards.samples("baseline", 1.0))])
    (honest,) = requoted_baselines(card, card.timing)
    return replace(card, baselines=[replace(honest, **changes)])


def with_opinions(*opinions, made=cards.card, **changes):
    """A card with KernelBench's opinion of its first checks, as the judge writes it."""
    card = made(**changes)
    for number, opinion in enumerate(opinions):
        card = with_check(card, number, benchmark_ok=opinion)
    return replace(card, benchmark_correct=card.benchmark_of_checks)


HONEST = [
    *(lambda: with_opinions(True, True), lambda: with_opinions(True, None, False)),
    *(lambda: with_opinions(True, True, True, made=cards.wrong_card), lambda: with_opinions(made=cards.crashed_card)),
    *(cards.card, cards.wrong_card, cards.uncompiled_card, cards.crashed_card, cards.unread_card),
    *(checked_card, cards.windows_card, cards.mixed_card, with_baseline),
    lambda: cards.card(status=Status.INCONCLUSIVE, reason=finding(Code.ROUNDING_DECIDES, "said"), timing=None),
    lambda: cards.card(baselines=[cards.baseline(None, finding=finding(Code.BASELINE_FAILED, "said"))]),
]


def with_check(card, number=0, **changes):
    made = [replace(check, **changes) if at == number else check for at, check in enumerate(card.checks)]
    return replace(card, checks=made)


def with_tensor(card, **changes):
    return with_check(card, tensors=[cards.tensor_check(**changes)])


def with_times(card, **changes):
    return replace(card, timing=replace(card.timing, **changes))


def with_side(card, **changes):
    return with_times(card, submission=replace(card.timing.submission, **changes))


def with_problem(**changes):
    return cards.card(problem=replace(cards.card().problem, **changes))


def reason(code):
    return finding(code, "said")


REFERENCE_LOW = "timing.reference_low_ms"
own = OwnKernels(basis=ShareBasis.CALLS, share_low=0.1, share_high=0.2, own=1, library=9, kernels=[])
FORGED = {
    "correct beside a failed check": (lambda: replace(cards.wrong_card(), status="correct", reason=None), "checks[2]"),
    "correct beside a failed comparison": (lambda: with_tensor(cards.card(), ok=False), "checks[0].tensors[0]"),
    "correct with a finding in a check": (
        lambda: with_check(cards.card(), finding=reason(Code.OUTPUT_REUSED)),
        "checks[0].finding",
    ),
    "correct with a reason": (lambda: cards.card(reason=reason(Code.WRONG_VALUES)), "reason"),
    "correct without checks": (lambda: cards.card(checks=[]), "checks"),
    "correct with checks of nothing": (lambda: cards.card(checks=[cards.check(tensors=[])]), "checks"),
    "correct without times": (lambda: cards.card(timing=None), "timing"),
    "correct and never built": (lambda: cards.card(build=None), "build"),
    "correct without seeds": (lambda: cards.card(seeds=None), "seeds"),
    "too little of its own": (lambda: cards.card(required_own_kernel=0.5, own_kernels=own), "own_kernels"),
    "its own share unsaid": (lambda: cards.card(required_own_kernel=0.5), "own_kernels"),
    "elements differ": (lambda: with_tensor(cards.card(), mismatches=3), "checks[0].tensors[0]"),
    "elements are NaN": (lambda: with_tensor(cards.card(), nonfinite=1), "checks[0].tensors[0]"),
    "an error beyond what is allowed": (lambda: with_tensor(cards.card(), error_ratio=1.01), "checks[0].tensors[0]"),
    "a first mismatch": (
        lambda: with_tensor(cards.card(), first_mismatch=Mismatch(index=[0], expected="0", actual="1")),
        "checks[0].tensors[0]",
    ),
    "with times, and a remark of mode check": (
        lambda: cards.card(findings=[finding(Code.NOT_TIMED, "no time was measured")]),
        "findings",
    ),
    "wrong without a reason": (lambda: cards.wrong_card(reason=None), "reason"),
    "crashed without a reason": (lambda: cards.crashed_card(reason=None), "reason"),
    "wrong, and every check passed": (lambda: cards.wrong_card(checks=[cards.check()]), "checks"),
    "a code that is none": (
        lambda: cards.wrong_card(reason=replace(reason(Code.WRONG_VALUES), code="C999")),
        "reason.code",
    ),
    "an opinion without a check": (lambda: cards.card(benchmark_correct=True), "benchmark_correct"),
    "another opinion than the checks'": (
        lambda: replace(with_opinions(True, False), benchmark_correct=True),
        "benchmark_correct",
    ),
    "no opinion beside the checks'": (
        lambda: replace(with_opinions(True), benchmark_correct=None),
        "benchmark_correct",
    ),
    "an opinion on other values": (
        lambda: with_check(with_opinions(True), profile="large"),
        "checks[0].benchmark_ok",
    ),
    "a second opinion of the same rule": (
        lambda: with_opinions(True, tolerance=ToleranceRule.KERNELBENCH),
        "checks[0].benchmark_ok",
    ),
    "another speedup": (lambda: with_times(cards.card(), speedup=99.0), "timing.speedup"),
    "another median": (lambda: with_times(cards.card(), submission_median_ms=0.1), "timing.submission_median_ms"),
    "another reference": (lambda: with_times(cards.card(), reference_median_ms=9.0), "timing.reference_median_ms"),
    "another median of a side": (lambda: with_side(cards.card(), median_ms=0.1), "timing.submission.median_ms"),
    "no samples": (lambda: with_side(cards.card(), samples_ms=[]), "timing.submission.samples_ms"),
    "times below nothing": (lambda: with_side(cards.card(), samples_ms=[-1.0]), "timing.submission"),
    "another interval": (lambda: with_times(cards.card(), speedup_low=2.98), "timing.speedup_low"),
    "an interval left open": (lambda: with_times(cards.card(), speedup_high=None), "timing.speedup_high"),
    "another resolution": (lambda: with_times(cards.card(), resolution_ms=0.0), "timing.resolution_ms"),
    "an interval of the reference left out": (lambda: with_times(cards.card(), reference_low_ms=None), REFERENCE_LOW),
    "an interval left out, another forged": (
        lambda: with_times(cards.card(), reference_low_ms=None, speedup_low=90.0, speedup_high=80.0),
        "timing.speedup_low",
    ),
    "a higher speedup over a baseline": (
        lambda: with_baseline(speedup=99.0, speedup_low=98.0, speedup_high=100.0, significant=True),
        "baselines[0].speedup",
    ),
    "a narrower interval over a baseline": (lambda: with_baseline(speedup_low=1.609), "baselines[0].speedup_low"),
    "a faster baseline than its samples": (
        lambda: with_baseline(samples=replace(cards.samples("baseline", 1.0), median_ms=9.0)),
        "baselines[0].samples.median_ms",
    ),
    "a speedup over a baseline without samples": (
        lambda: with_baseline(samples=None),
        "baselines[0].speedup",
    ),
    "more baselines than a grade times": (lambda: cards.card(baselines=with_baseline().baselines * 9), "baselines"),
    "a speedup over a baseline without times": (lambda: replace(with_baseline(), timing=None), "baselines[0].speedup"),
    "times on emulated": (lambda: cards.card(device=DeviceFacts(kind=DeviceKind.EMULATED, name="x")), "timing"),
    "times in mode check": (lambda: cards.card(mode=GradeMode.CHECK), "timing"),
    "timed inputs in mode check": (
        lambda: cards.unread_card(mode=GradeMode.CHECK, l2=L2Inputs(rule=L2Rule.WARM)),
        "l2",
    ),
    "built in error and timed": (lambda: cards.uncompiled_card(timing=cards.timing()), "timing"),
    "a name with a path": (lambda: with_problem(name="../../gelu"), "problem.name"),
    "a name with a line break": (
        lambda: cards.card(submission=replace(cards.card().submission, name="a\r=1")),
        "submission.name",
    ),
    "graded at no time": (lambda: cards.card(graded_at="soon"), "graded_at"),
    "a negative duration": (lambda: cards.card(wall_s=-1.0), "wall_s"),
    "a negative duration of a stage": (lambda: cards.card(stages_s={"build": -1.0}), "stages_s.build"),
    "a negative error": (lambda: with_tensor(cards.card(), max_abs_error=-1.0), "checks[0].tensors[0].max_abs_error"),
    "more mismatches than elements": (
        lambda: with_tensor(cards.wrong_card(), ok=False, shape=[2], mismatches=17),
        "checks[0].tensors[0].mismatches",
    ),
    "another source": (
        lambda: cards.card(submission=replace(cards.card().submission, source="another")),
        "submission.sha256",
    ),
    "a source and no hash": (
        lambda: cards.unread_card(submission=replace(cards.unread_card().submission, source="x")),
        "submission.sha256",
    ),
}


@pytest.mark.parametrize("make", HONEST)
def test_an_honest_card_does_not_contradict_itself(make):
    assert inconsistencies(make()) == []


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_card_contradicts_itself(name):
    make, place = FORGED[name]
    found = inconsistencies(msgspec.convert(msgspec.to_builtins(make()), type(cards.card())))
    assert place in {each.place for each in found}


OF_ANY_VERSION = {
    "above its value": (lambda: with_times(cards.card(), speedup_low=50.0, speedup_high=60.0), "timing.speedup_low"),
    "below its value": (lambda: with_times(cards.card(), speedup_low=1.1, speedup_high=1.2), "timing.speedup_high"),
    "of a speedup that is not quoted": (
        lambda: with_times(cards.card(), speedup=None, speedup_low=50.0, speedup_high=60.0),
        "timing.speedup_low",
    ),
    "of the reference above its time": (
        lambda: with_times(cards.card(), reference_low_ms=5.0, reference_high_ms=6.0),
        REFERENCE_LOW,
    ),
    "of the submission below its time": (
        lambda: with_times(cards.card(), submission_low_ms=0.1, submission_high_ms=0.2),
        "timing.submission_high_ms",
    ),
    "with 1, and significant": (
        lambda: with_times(cards.card(), speedup_low=0.9, speedup_high=9.0, significant=True),
        "timing.significant",
    ),
    "missing, and significant": (
        lambda: with_times(cards.card(), speedup_low=None, speedup_high=None, significant=True),
        "timing.significant",
    ),
    "over a baseline": (lambda: with_baseline(speedup_low=98.0, speedup_high=100.0), "baselines[0].speedup_low"),
    "over a baseline with 1": (lambda: with_baseline(speedup_low=0.5), "baselines[0].significant"),
    "over a baseline, without a speedup": (
        lambda: with_baseline(speedup=None, speedup_low=100.0, speedup_high=98.0),
        "baselines[0].speedup_low",
    ),
}


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION])
@pytest.mark.parametrize("name", OF_ANY_VERSION)
def test_an_interval_without_its_value_is_a_contradiction_in_every_version(name, version):
    make, place = OF_ANY_VERSION[name]
    found = inconsistencies(replace(make(), schema_version=version), intervals=False)
    assert place in {each.place for each in found}


def test_an_honest_interval_of_an_earlier_version_is_not_recomputed():
    wider = with_times(cards.card(), speedup_low=2.9, speedup_high=3.1)
    assert inconsistencies(replace(wider, schema_version=1)) == []
    assert inconsistencies(wider) != []
    of_single_calls = with_baseline(speedup=1.5, speedup_low=1.4, speedup_high=1.6)
    assert inconsistencies(replace(of_single_calls, schema_version=1)) == []
    assert inconsistencies(of_single_calls) != []


def test_check_card_refuses_a_forged_card(tmp_path, capsys):
    make, place = FORGED["another interval"]
    write_card(make(), tmp_path / "card.json")
    assert cli.run(["check-card", str(tmp_path / "card.json")]) == 2
    said = capsys.readouterr()
    assert any(line.startswith(f"{place}: ") for line in said.out.splitlines())
    assert "is not a valid scorecard" in said.err


@pytest.mark.parametrize(
    ("status", "reasons", "others"),
    [
        ("wrong_result", ["C405", "C412", "C413", "C414"], ["C410", "C416", "C421", "C425", "C426", "T306", "X608"]),
        ("build_error", ["S101", "S105", "S122", "B202", "B211", "B214", "B215"], ["S102", "S104", "B205", "B207"]),
        ("runtime_error", ["R302", "R305", "R310", "R316", "B214"], ["B202", "B203", "R304", "R307", "R318", "R320"]),
        ("timeout", ["B207", "R304", "R317"], ["R303", "R316", "R314"]),
        ("rejected", ["S102", "S103", "B211", "R308", "R314", "T302", "T306"], ["S107", "S116", "T315", "I501"]),
        ("inconclusive", ["B206", "B209", "B210", "B216", "R315", "C426", "C427"], ["C405", "T303", "X602", "X603"]),
        ("infra_error", ["R317", "X601", "X602", "X608"], ["R302", "X603", "X606", "I502"]),
    ],
)
def test_a_reason_fits_the_statuses_of_its_code(status, reasons, others):
    def places(code):
        card = cards.wrong_card(status=Status(status), reason=reason(Code(code)))
        return [each.place for each in inconsistencies(card)]

    assert {code: places(code) for code in reasons} == {code: [] for code in reasons}
    assert {code: places(code) for code in others} == {code: ["reason.code"] for code in others}


def test_a_report_counts_no_card_that_contradicts_itself(tmp_path, monkeypatch, capsys):
    from evaluator.batch.runs.run_folder import manifest_for, opened

    monkeypatch.chdir(tmp_path)
    with opened(Path("run"), manifest_for(GradeOptions(DeviceKind.CPU), "submissions")) as folder:
        good, forged = (replace(cards.card().submission, name=name) for name in ("good", "forged"))
        write_card(cards.card(submission=good), folder.cards / "relu" / "good.json")
        wrong = cards.wrong_card(submission=forged)
        write_card(replace(wrong, status="correct", reason=None), folder.cards / "relu" / "forged.json")
    for _ in range(2):  # from the cards, and from the index
        assert cli.run(["report", "run", "--json"]) == 3
        said = capsys.readouterr()
        assert msgspec.json.decode(said.out)["devices"][0]["total"]["statuses"] == {"correct": 1, "missing": 1}
        assert "forged.json contradicts itself: checks[2]: correct, but this check failed" in said.err


def test_kernelbenchs_opinion_is_about_the_outputs_at_the_cards_size():
    assert [with_opinions(*said).benchmark_correct for said in ((), (None, True), (True, False))] == [
        None,
        True,
        False,
    ]
    right = with_opinions(True, True)
    elsewhere = [replace(check, size=SizeName.AWKWARD, benchmark_ok=False) for check in right.checks[:1]]
    assert replace(right, checks=[*right.checks, *elsewhere]).benchmark_of_checks is True
    for status in (Status.RUNTIME_ERROR, Status.TIMEOUT, Status.BUILD_ERROR, Status.INFRA_ERROR):
        assert replace(right, status=status).benchmark_of_checks is None
    assert [with_opinions(said).is_disputed for said in (True, False, None)] == [False, True, False]
    assert [with_opinions(said, made=cards.wrong_card).is_disputed for said in (True, False)] == [True, False]
