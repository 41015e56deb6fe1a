"""Stages of a grade in advance."""

import pytest

from evaluator.catalog import find_problem
from evaluator.devices.gpu import Gpu
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import stages_of
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import DeviceKind, GradeMode, ProfilerKind

GPU = Gpu(0, "GPU-1", "NVIDIA H100", (9, 0), 80 << 30, "570", ())


def terms(device=DeviceKind.CPU, **options):
    gpu = GPU if device is DeviceKind.CUDA else None
    return GradeTerms(find_problem("relu"), GradeOptions(device, **options), gpu, 2)


@pytest.mark.parametrize(
    ("device", "options", "stages"),
    [
        (DeviceKind.EMULATED, {}, "read prepare lint build check"),
        (DeviceKind.CPU, {}, "read prepare lint build check time"),
        (DeviceKind.CPU, {"mode": GradeMode.CHECK, "require_own_kernel": 0.5}, "read prepare lint build check"),
        (DeviceKind.CPU, {"profile": ProfilerKind.TORCH}, "read prepare lint build check time profile"),
        (DeviceKind.CUDA, {}, "read prepare lint build device reference check time roofline"),
        (DeviceKind.CUDA, {"mode": GradeMode.CHECK}, "read prepare lint build device check"),
        (
            DeviceKind.CUDA,
            {"require_own_kernel": 0.5},
            "read prepare lint build device reference check time roofline profile",
        ),
    ],
)
def test_the_stages_of_a_grade_are_known_in_advance(device, options, stages):
    assert " ".join(stages_of(terms(device, **options))) == stages
