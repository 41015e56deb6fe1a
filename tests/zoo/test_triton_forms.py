"""Rows of the zoo whose kernels are in Triton: each form is rejected for the reason of its row, their twin passes.

On `emulated`, Triton's interpreter runs the kernels; on `cuda`, its compiler builds them. The naive graders accept the
rows' own cheats, and are not asked again.
"""

import importlib.util

import pytest
import torch
from msgspec.structs import replace

from evaluator.records import DeviceKind, Status
from tests import once
from tests.zoo.entries import ZOO, entries
from tests.zoo.grading import Judge

FORMS = ZOO / "triton"
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
DEVICES = [DeviceKind.EMULATED, pytest.param(DeviceKind.CUDA, marks=ON_GPU)]
ROWS = [entry for entry in entries() if (FORMS / f"{entry.name}.py").exists()]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'warpgrade[triton]'"
    ),
]


@pytest.fixture(scope="module")
def judge():
    with pytest.MonkeyPatch.context() as patch, Judge() as found:
        patch.setenv("WARPGRADE_CACHE", str(once.folder_for("cache")))
        yield found


def test_ten_rows_have_a_form():
    assert len(ROWS) == 10
    assert {entry.name for entry in ROWS} | {"honest"} == {path.stem for path in FORMS.glob("*.py")}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", ROWS, ids=lambda entry: entry.name)
def test_a_form_in_triton_is_rejected_for_the_reason_of_its_row(judge, entry, device):
    entry = replace(entry, path=FORMS / f"{entry.name}.py", expected=replace(entry.expected, device=device))
    verdict = judge.cheat(entry)
    assert verdict.state == "rejected for its reason", (verdict.status, verdict.code, verdict.message)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("own_kernel", [None, 0.5])
def test_the_honest_twin_is_correct(judge, device, own_kernel):
    row = next(entry for entry in ROWS if entry.expected.problem == "relu")
    expected = replace(row.expected, device=device, own_kernel=own_kernel)
    outcome = judge.cheat(replace(row, path=FORMS / "honest.py", expected=expected)).outcome
    assert outcome.status is Status.CORRECT, outcome.reason
