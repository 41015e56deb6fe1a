"""Rows of the zoo whose kernels are in Triton: each form is rejected for the reason of its row, and its twin passes.

On `emulated`, Triton's interpreter runs the kernels; on `cuda`, its compiler builds them. The naive graders accept the
rows' own cheats, and are not asked again: that a form works as a cheat is shown by the mutation of its row.
"""

import os
import importlib.util

import pytest
import torch
from msgspec.structs import replace

from evaluator.records import DeviceKind, Status
from tests import once
from tests.zoo.entries import ZOO, entries
from tests.zoo.grading import Judge
from tests.zoo.mutations import BITES

FORMS = ZOO / "triton"
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
DEVICES = [DeviceKind.EMULATED, pytest.param(DeviceKind.CUDA, marks=ON_GPU)]
ROWS = [entry for entry in entries() if (FORMS / f"{entry.name}.py").exists()]
NO_SWITCH = {"uninitialised-or-stale-own-output"}
"""Its naive grader is the judge without the invariant, as in `mutations.py`."""
TWINS = {
    **dict.fromkeys(("relu", "positive_relu", "large_relu"), FORMS / "honest.py"),
    "wide_softmax": ZOO.parents[1] / "solutions" / "softmax" / "triton_rows.py",
}
"""The honest submission in Triton, by problem."""
TERMS = sorted({(entry.expected.problem, entry.expected.own_kernel) for entry in ROWS}, key=str)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'warpgrade[triton]'"
    ),
]


@pytest.fixture(scope="module")
def lasting_judge():
    with Judge() as found:
        yield found


@pytest.fixture
def judge(lasting_judge):
    yield lasting_judge
    lasting_judge.give_way()


def test_ten_rows_have_a_form():
    assert len(ROWS) == 10
    assert {entry.name for entry in ROWS} | {"honest"} == {path.stem for path in FORMS.glob("*.py")}


def form(entry, device):
    return replace(entry, path=FORMS / f"{entry.name}.py", expected=replace(entry.expected, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", ROWS, ids=lambda entry: entry.name)
def test_a_form_in_triton_is_rejected_for_the_reason_of_its_row(judge, entry, device):
    verdict = judge.cheat(form(entry, device))
    assert verdict.state == "rejected for its reason", (verdict.status, verdict.code, verdict.message)


def test_the_rows_without_a_mutation_are_known():
    assert {entry.name for entry in ROWS} - set(BITES) == NO_SWITCH


@pytest.mark.skipif(os.environ.get("WARPGRADE_ZOO") != "all", reason="WARPGRADE_ZOO=all tries every mutation")
@pytest.mark.parametrize("entry", [entry for entry in ROWS if entry.name in BITES], ids=lambda entry: entry.name)
def test_without_its_invariant_a_form_passes(judge, entry):
    assert judge.stopped(form(entry, DeviceKind.EMULATED), BITES[entry.name]) == "", BITES[entry.name].invariant


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("problem", "own_kernel"), TERMS)
def test_an_honest_twin_is_correct(judge, problem, own_kernel, device):
    row = next(entry for entry in ROWS if entry.expected.problem == problem)
    expected = replace(row.expected, device=device, own_kernel=own_kernel)
    outcome = judge.cheat(replace(row, path=TWINS[problem], expected=expected)).outcome
    assert outcome.status is Status.CORRECT, outcome.reason
