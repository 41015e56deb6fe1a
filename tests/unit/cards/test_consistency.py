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


def reason(code):
    return finding(code, "said")


def submission(**changes):
    return replace(cards.card().submission, **changes)


HIGHER = {"speedup": 99.0, "speedup_low": 98.0, "speedup_high": 100.0}
own = OwnKernels(basis=ShareBasis.CALLS, share_low=0.1, share_high=0.2, own=1, library=9, kernels=[])
FORGED = {
    "baselines": [lambda: cards.card(baselines=with_baseline().baselines * 9)],
    "baselines[0].samples.median_ms": [
        lambda: with_baseline(samples=replace(cards.samples("baseline", 1.0), median_ms=9.0))
    ],
    "baselines[0].speedup": [
        lambda: with_baseline(significant=True, **HIGHER),
        lambda: with_baseline(samples=None),
        lambda: replace(with_baseline(), timing=None),
    ],
    "baselines[0].speedup_low": [lambda: with_baseline(speedup_low=1.609)],  # a narrower interval
    "benchmark_correct": [
        lambda: cards.card(benchmark_correct=True),
        lambda: replace(with_opinions(True, False), benchmark_correct=True),
        lambda: replace(with_opinions(True), benchmark_correct=None),
    ],
    "build": [lambda: cards.card(build=None)],
    "checks": [
        lambda: cards.card(checks=[]),
        lambda: cards.card(checks=[cards.check(tensors=[])]),
        lambda: cards.wrong_card(checks=[cards.check()]),
    ],
    "checks[0].benchmark_ok": [
        lambda: with_check(with_opinions(True), profile="large"),
        lambda: with_opinions(True, tolerance=ToleranceRule.KERNELBENCH),
    ],
    "checks[0].finding": [lambda: with_check(cards.card(), finding=reason(Code.OUTPUT_REUSED))],
    "checks[0].tensors[0]": [
        lambda: with_tensor(cards.card(), ok=False),
        lambda: with_tensor(cards.card(), mismatches=3),
        lambda: with_tensor(cards.card(), nonfinite=1),
        lambda: with_tensor(cards.card(), error_ratio=1.01),
        lambda: with_tensor(cards.card(), first_mismatch=Mismatch(index=[0], expected="0", actual="1")),
    ],
    "checks[0].tensors[0].max_abs_error": [lambda: with_tensor(cards.card(), max_abs_error=-1.0)],
    "checks[0].tensors[0].mismatches": [lambda: with_tensor(cards.wrong_card(), ok=False, shape=[2], mismatches=17)],
    "checks[2]": [lambda: replace(cards.wrong_card(), status="correct", reason=None)],
    "findings": [lambda: cards.card(findings=[finding(Code.NOT_TIMED, "no time was measured")])],
    "graded_at": [lambda: cards.card(graded_at="soon")],
    "l2": [lambda: cards.unread_card(mode=GradeMode.CHECK, l2=L2Inputs(rule=L2Rule.WARM))],
    "own_kernels": [
        lambda: cards.card(required_own_kernel=0.5, own_kernels=own),
        lambda: cards.card(required_own_kernel=0.5),
    ],
    "problem.name": [lambda: cards.card(problem=replace(cards.card().problem, name="../../gelu"))],
    "reason": [
        lambda: cards.card(reason=reason(Code.WRONG_VALUES)),
        lambda: cards.wrong_card(reason=None),
        lambda: cards.crashed_card(reason=None),
    ],
    "reason.code": [lambda: cards.wrong_card(reason=replace(reason(Code.WRONG_VALUES), code="C999"))],
    "seeds": [lambda: cards.card(seeds=None)],
    "stages_s.build": [lambda: cards.card(stages_s={"build": -1.0})],
    "submission.name": [lambda: cards.card(submission=submission(name="a\r=1"))],
    "submission.sha256": [
        lambda: cards.card(submission=submission(source="another")),
        lambda: cards.unread_card(submission=replace(cards.unread_card().submission, source="x")),
    ],
    "timing": [
        lambda: cards.card(timing=None),
        lambda: cards.card(device=DeviceFacts(kind=DeviceKind.EMULATED, name="x")),
        lambda: cards.card(mode=GradeMode.CHECK),
        lambda: cards.uncompiled_card(timing=cards.timing()),
    ],
    "timing.reference_low_ms": [lambda: with_times(cards.card(), reference_low_ms=None)],
    "timing.reference_median_ms": [lambda: with_times(cards.card(), reference_median_ms=9.0)],
    "timing.resolution_ms": [lambda: with_times(cards.card(), resolution_ms=0.0)],
    "timing.speedup": [lambda: with_times(cards.card(), speedup=99.0)],
    "timing.speedup_high": [lambda: with_times(cards.card(), speedup_high=None)],
    "timing.speedup_low": [
        lambda: with_times(cards.card(), speedup_low=2.98),
        lambda: with_times(cards.card(), reference_low_ms=None, speedup_low=90.0, speedup_high=80.0),
    ],
    "timing.submission": [lambda: with_side(cards.card(), samples_ms=[-1.0])],
    "timing.submission.median_ms": [lambda: with_side(cards.card(), median_ms=0.1)],
    "timing.submission.samples_ms": [lambda: with_side(cards.card(), samples_ms=[])],
    "timing.submission_median_ms": [lambda: with_times(cards.card(), submission_median_ms=0.1)],
    "wall_s": [lambda: cards.card(wall_s=-1.0)],
}


@pytest.mark.parametrize("make", HONEST)
def test_an_honest_card_does_not_contradict_itself(make):
    assert inconsistencies(make()) == []


@pytest.mark.parametrize(("place", "make"), [(place, make) for place, makes in FORGED.items() for make in makes])
def test_a_forged_card_contradicts_itself(place, make):
    found = inconsistencies(msgspec.convert(msgspec.to_builtins(make()), type(cards.card())))
    assert place in {each.place for each in found}


def of_any_version():
    """Give places of contradictions, with cards in which an end of an interval contradicts the value or the other."""
    low, high = {"speedup_low": 50.0, "speedup_high": 60.0}, {"speedup_low": 1.1, "speedup_high": 1.2}
    card = cards.card()
    yield "timing.speedup_low", with_times(card, **low)
    yield "timing.speedup_low", with_times(card, speedup=None, **low)
    yield "timing.speedup_high", with_times(card, **high)
    yield "timing.reference_low_ms", with_times(card, reference_low_ms=5.0, reference_high_ms=6.0)
    yield "timing.submission_high_ms", with_times(card, submission_low_ms=0.1, submission_high_ms=0.2)
    yield "timing.significant", with_times(card, speedup_low=0.9, speedup_high=9.0, significant=True)
    yield "timing.significant", with_times(card, speedup_low=None, speedup_high=None, significant=True)
    yield "baselines[0].speedup_low", with_baseline(speedup_low=98.0, speedup_high=100.0)
    yield "baselines[0].significant", with_baseline(speedup_low=0.5)
    yield "baselines[0].speedup_low", with_baseline(speedup=None, speedup_low=100.0, speedup_high=98.0)


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION])
@pytest.mark.parametrize(("place", "card"), list(of_any_version()))
def test_an_interval_without_its_value_is_a_contradiction_in_every_version(place, card, version):
    found = inconsistencies(replace(card, schema_version=version), intervals=False)
    assert place in {each.place for each in found}


def test_an_honest_interval_of_an_earlier_version_is_not_recomputed():
    wider = with_times(cards.card(), speedup_low=2.9, speedup_high=3.1)
    assert inconsistencies(replace(wider, schema_version=1)) == []
    assert inconsistencies(wider) != []
    of_single_calls = with_baseline(speedup=1.5, speedup_low=1.4, speedup_high=1.6)
    assert inconsistencies(replace(of_single_calls, schema_version=1)) == []
    assert inconsistencies(of_single_calls) != []


def test_check_card_refuses_a_forged_card(tmp_path, capsys):
    place = "timing.resolution_ms"
    write_card(FORGED[place][0](), tmp_path / "card.json")
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
