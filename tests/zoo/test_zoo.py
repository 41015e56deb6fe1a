"""The zoo: every cheat is rejected for its row's reason, its honest twin passes, and a naive grader takes the cheat in.

Every run grades the cheats of all rows that need no compiler, and a sample of the twins and of the naive graders: a
twin is timed to the end, which takes longer than a rejection. `make long` tries more mutations. `WARPGRADE_ZOO=all`
grades everything and tries all mutations: only there shows a check that stands behind another one.
"""

import os
import uuid
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.findings import Code
from evaluator.judge import stages
from evaluator.records import DeviceKind, Status
from tests import once
from tests.cards import timing
from tests.zoo.entries import ROWS, ZOO, Entry, Evidence, entries
from tests.zoo.grading import Judge, control, gained
from tests.zoo.mutations import BITES, MUTATIONS
from tests.zoo.switches import Stale, Survey, Switched, assign, counted

ENTRIES = sorted(entries(), key=lambda entry: (entry.expected.device, entry.expected.problem, entry.expected.row))
ALL = os.environ.get("WARPGRADE_ZOO") == "all"
SAMPLE = {
    *("freed-reference-buffer", "nan-wildcard", "shared-globals-shrink", "cache-by-data-ptr", "patch-cuda-event"),
    *("forge-result-fd", "unpickle-in-judge", "exit-zero-early"),
}
"""One for each way that naive graders differ."""


ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
_TRIES = {"freed-reference-buffer": 3}
"""Tries of a naive grader: which freed memory a process gets again is a draw."""
QUICK = {"nan-wildcard", "output-aliases-input-or-state", "shape-broadcast-accept", "forge-result-fd"}
"""Rows whose mutations every run tries; `make long` tries the others."""


class Hole(AssertionError):
    """A cheat of which we know that it still passes, passed."""


def tried_long(entry):
    if entry.expected.device is DeviceKind.CUDA:
        return [*ON_GPU, pytest.mark.long]
    if entry.expected.compiles and not ALL:
        return [pytest.mark.skip(reason="compiles; WARPGRADE_ZOO=all tries every mutation")]
    return [] if entry.name in QUICK else [pytest.mark.long]


def marked(entry):
    if entry.expected.device is DeviceKind.CUDA:
        return ON_GPU
    if entry.expected.compiles and not ALL:
        return [pytest.mark.skip(reason="compiles; WARPGRADE_ZOO=all grades every row")]
    return []


def each(list_of_entries, more_marks=lambda entry: []):
    return pytest.mark.parametrize(
        "entry",
        [pytest.param(entry, id=entry.name, marks=[*marked(entry), *more_marks(entry)]) for entry in list_of_entries],
    )


def known_hole(entry):
    if not entry.expected.not_yet:
        return []
    return [pytest.mark.xfail(raises=Hole, reason=f"not yet: {entry.expected.not_yet}", strict=True)]


@pytest.fixture(scope="module")
def lasting_grader():
    with Judge() as judge:
        yield judge


@pytest.fixture
def grader(lasting_grader):
    yield lasting_grader
    lasting_grader.give_way()


@pytest.mark.parametrize(("gpu", "worker", "ends"), [("0", "gw0", True), ("0", None, False), (None, "gw0", False)])
def test_a_judge_that_holds_a_gpu_gives_way_to_other_workers(monkeypatch, gpu, worker, ends):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if worker is not None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    with Judge() as judge:
        judge._context = context = SimpleNamespace(terms=SimpleNamespace(gpu=gpu))
        judge.give_way()
        assert judge._context is (None if ends else context)


@each(ENTRIES, known_hole)
def test_the_cheat_is_rejected_for_its_reason(grader, entry):
    verdict = grader.cheat(entry)
    if verdict.status is Status.CORRECT and entry.expected.not_yet:
        raise Hole(entry.expected.not_yet)
    if entry.expected.evidence is not None:
        # Some are caught at times: which call comes twice is drawn.
        gained = {"gains nothing"} | ({"rejected for its reason"} if entry.expected.codes else set())
        assert verdict.state in gained, verdict.message
    elif entry.expected.refused_for:
        assert verdict.state == "problem refused", verdict.message
    else:
        assert verdict.state == "rejected for its reason", (verdict.status, verdict.code, verdict.message)


@each(ENTRIES)
def test_the_honest_twin_is_correct(grader, entry):
    if not ALL and entry.name not in SAMPLE:
        pytest.skip("WARPGRADE_ZOO=all grades every twin")
    outcome = grader.honest(entry)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert not set(entry.expected.codes) & {finding.code for finding in outcome.findings}


@each([entry for entry in ENTRIES if entry.expected.own_kernel is not None])
def test_without_the_policy_it_is_correct_with_findings(grader, entry):
    outcome = grader.without_policy(entry)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert set(entry.expected.findings) <= {finding.code for finding in outcome.findings}


@pytest.mark.parametrize(
    "entry", [pytest.param(entry, id=entry.name, marks=tried_long(entry)) for entry in ENTRIES if entry.name in BITES]
)
def test_without_its_invariant_the_cheat_passes(grader, entry):
    """What stops it else is a second check, which the mutation should turn off too."""
    assert grader.stopped(entry, BITES[entry.name]) == "", BITES[entry.name].invariant


@pytest.mark.long
@pytest.mark.skipif(not ALL, reason="WARPGRADE_ZOO=all tries every mutation")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rows[0])
def test_without_an_invariant_a_wrong_answer_is_still_wrong(grader, mutation, tmp_path):
    """Else a switch would show nothing: without a judge everything passes."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x): return 1.0 - x.abs()\n")
    (entry,) = (entry for entry in ENTRIES if entry.name == "correct-then-corrupt")
    outcome = grader.mutated(entry, mutation, wrong)
    assert outcome.status is Status.WRONG_RESULT, outcome.reason
    assert outcome.reason.code == Code.WRONG_VALUES.value, outcome.reason


LIKE = {
    "nan-wildcard": [pytest.mark.slow],
    "decoy-launch-beside-library": [pytest.mark.slow, pytest.mark.long],
    "window-in-the-first-call": ON_GPU,
}
"""Rows whose twins are graded for all rows that are like them: on the same device, and with a compiler or without."""


@pytest.mark.parametrize("name", [pytest.param(name, id=name, marks=marks) for name, marks in LIKE.items()])
def test_an_honest_grade_calls_what_the_mutations_of_rows_like_it_replace(monkeypatch, tmp_path, name):
    """A switch for a function without callers would switch nothing off."""
    (entry,) = (entry for entry in ENTRIES if entry.name == name)
    survey = Survey()
    for other in ENTRIES:
        kind = (other.expected.device, other.expected.compiles)
        if other.name in BITES and kind == (entry.expected.device, entry.expected.compiles):
            BITES[other.name].off(survey)
    honest = tmp_path / "honest.py"  # No cache has its build.
    honest.write_text(entry.honest.read_text().replace("__global__", f"/* {uuid.uuid4()} */ __global__"))
    calls = counted(monkeypatch, set(survey.functions))
    with Judge() as judge:
        outcome = judge.cheat(replace(entry, path=honest)).outcome
    assert outcome.status is Status.CORRECT, outcome.reason
    assert name in BITES
    assert [str(function) for function, count in calls.items() if count == 0] == []


def test_every_mutation_replaces_functions_that_are_there():
    for mutation in MUTATIONS:
        survey = Survey()
        mutation.off(survey)
        assert survey.functions, mutation.invariant


@pytest.mark.parametrize(
    "name", ["no_such_function", "TimeOutcome", "_OF_A_LAUNCH"], ids=["gone", "a class", "a constant"]
)
@pytest.mark.parametrize("patch", [Survey(), Switched(pytest.MonkeyPatch())], ids=["survey", "switched"])
def test_a_switch_without_its_function_is_an_error(patch, name):
    with pytest.raises(Stale, match=f"stages has no function {name}"):
        patch.setattr(stages, name, lambda: None)


def test_a_switch_without_its_attribute_is_an_error():
    with pytest.raises(Stale, match="SimpleNamespace has no attribute other"):
        assign(SimpleNamespace(known=1), known=2, other=3)


def on_its_device(entry):
    return ON_GPU if entry.control_device == "cuda" else []


@each([entry for entry in ENTRIES if entry.expected.naive], on_its_device)
def test_a_naive_grader_takes_the_cheat_in(entry, tmp_path):
    if not ALL and entry.name not in SAMPLE and entry.control_device == "cpu":
        pytest.skip("WARPGRADE_ZOO=all runs every naive grader")
    for number in range(_TRIES.get(entry.name, 1)):
        (folder := tmp_path / str(number)).mkdir()
        said = control(entry, entry.cheat, folder)
        if said is None:
            pytest.skip("no Landlock here: a naive grader would run unconfined")
        if said.accepted:
            break
    assert said.accepted, said


def test_a_naive_grader_knows_a_wrong_answer(tmp_path):
    """Else the positive controls would prove nothing."""
    (entry,) = (entry for entry in ENTRIES if entry.name == "correct-then-corrupt")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x): return x.clone()\n")
    said = control(entry, wrong, tmp_path)
    if said is None:
        pytest.skip("no Landlock here: a naive grader would run unconfined")
    assert not said.accepted


@pytest.mark.parametrize(
    ("quoted_ms", "speedup", "code", "gains"),
    [
        (0.0093, 1.0, None, False),
        (0.0091, 1.0, None, True),
        (0.0010, None, Code.SHARED_WORK, False),
        (0.0010, None, Code.BELOW_RESOLUTION, True),
        (0.0010, 1.0, Code.SHARED_WORK, True),
    ],
)
def test_a_gain_in_windows_is_seen_unless_no_speedup_is_quoted_for_it(quoted_ms, speedup, code, gains):
    """The twin takes 10 us; 3 % and 0.5 us less gain nothing."""
    found = SimpleNamespace(
        timing=timing(submission_median_ms=quoted_ms, speedup=speedup),
        findings=[] if code is None else [SimpleNamespace(code=code.value)],
    )
    twin = SimpleNamespace(timing=timing(submission_median_ms=0.010))
    assert bool(gained(Evidence(gains_at_most_us=0.5), found, twin)) is gains


def test_every_row_is_there_once_and_every_folder_is_a_row():
    rows = [entry.expected.row for entry in ENTRIES]
    assert len(set(rows)) == len(rows)
    assert max(rows) == ROWS
    others = {"half", "problems", "twins", "judge", "triton", "windows", "__pycache__"}
    assert {path.name for path in ZOO.iterdir() if path.is_dir()} - others == {entry.name for entry in ENTRIES}
    shared = {path.stem for path in (ZOO / "twins").glob("*.py")}
    assert shared == {entry.expected.twin for entry in ENTRIES} - {""}
    assert all(entry.honest.is_file() for entry in ENTRIES)
    assert {entry.name for entry in ENTRIES} >= SAMPLE | set(BITES) | QUICK
    assert len(BITES) == sum(len(mutation.rows) for mutation in MUTATIONS)


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.name) for entry in ENTRIES])
def test_an_expectation_is_whole(entry: Entry):
    """A cheat is expected to end with codes that exist, or to be `correct` with what shows that it gains nothing."""
    expected = entry.expected
    assert {Code(code).value for code in (*expected.codes, *expected.findings)} == {*expected.codes, *expected.findings}
    assert expected.own_kernel is not None or not expected.findings
    assert entry.cheat.read_text() != entry.honest.read_text()
    assert expected.naive or entry.name in BITES
    if expected.status is Status.CORRECT:
        assert expected.evidence or expected.not_yet
    elif expected.status is not None:
        assert expected.codes
    else:
        assert expected.refused_for
