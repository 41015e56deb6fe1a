"""Failures of Triton kernels, as the judge reads them from a runner that it does not believe."""

import pytest

from evaluator.findings import Code
from evaluator.judge.runners.language_faults import likely_cause, triton_fault
from evaluator.protocol.frames import Raised, RefusedKernel
from evaluator.records import DeviceKind, Status

SOURCE = "import triton\n\n    tl.store(out, tl.relu(x))\n"


def refused(**changes):
    fields = {"kernel": "relu_kernel", "reason": "no attribute 'relu'", "line": 3, "column": 19} | changes
    return Raised("CompilationError", "x", refused=RefusedKernel(**fields))


def test_a_refused_kernel_is_a_build_error_at_its_place():
    fault = triton_fault(refused(), DeviceKind.CUDA, SOURCE)
    assert (fault.status, fault.finding.code, fault.finding.line) == (Status.BUILD_ERROR, Code.KERNEL_REFUSED, 3)
    assert fault.finding.message == "the kernel relu_kernel does not compile: no attribute 'relu'"
    assert fault.finding.details["column"] == 19


@pytest.mark.parametrize(
    ("changes", "line", "column"),
    [
        ({"line": 0}, None, None),
        ({"line": 4}, None, None),
        ({"line": 1 << 22, "column": 1 << 22}, None, None),
        ({"column": 0}, 3, None),
        ({"column": 200}, 3, None),
    ],
)
def test_a_place_outside_the_submission_is_none(changes, line, column):
    found = triton_fault(refused(**changes), DeviceKind.CUDA, SOURCE).finding
    assert (found.line, found.details["column"]) == (line, column)


def test_a_reason_of_any_length_is_cut():
    found = triton_fault(refused(reason="y\n" * 4000, kernel="k" * 1000), DeviceKind.CUDA, SOURCE).finding
    assert len(found.message) < 300
    assert found.message.count("\n") == 11


def failed(message):
    return Raised("RuntimeError", message)


@pytest.mark.parametrize(
    ("message", "source", "construct"),
    [
        ("inline_asm not supported in interpreter mode", SOURCE, "inline_asm"),
        ("0 active drivers ([]). There should only be one.", SOURCE, "triton.runtime.driver"),
        ("cannot convert None of type <class 'NoneType'> to tensor", "import triton, libdevice", "libdevice"),
        (
            "Did you forget to add @triton.jit ? (`_semantic` argument ...",
            "import triton\ntl.extra.libdevice.tanh(x)",
            "libdevice",
        ),
    ],
)
def test_what_the_interpreter_lacks_is_no_verdict(message, source, construct):
    fault = triton_fault(failed(message), DeviceKind.EMULATED, source)
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.NOT_EMULATED)
    assert fault.finding.details == {"construct": construct}
    assert triton_fault(failed(message), DeviceKind.CUDA, source) is None
    assert triton_fault(failed(message), DeviceKind.EMULATED, "import torch, libdevice") is None


@pytest.mark.parametrize("message", ["None of type <class 'NoneType'>", "x is not a tensor", ""])
def test_other_failures_of_a_kernel_are_its_own(message):
    assert triton_fault(failed(message), DeviceKind.EMULATED, SOURCE) is None


@pytest.mark.parametrize(
    ("signal", "device", "source", "told"),
    [
        ("SIGSEGV", DeviceKind.EMULATED, SOURCE, True),
        ("SIGKILL", DeviceKind.EMULATED, SOURCE, False),
        (None, DeviceKind.EMULATED, SOURCE, False),
        ("SIGSEGV", DeviceKind.CUDA, SOURCE, False),
        ("SIGSEGV", DeviceKind.EMULATED, "import torch", False),
    ],
)
def test_a_crash_of_the_interpreter_has_a_likely_cause(signal, device, source, told):
    assert ("without a mask" in likely_cause(signal, device, source)) is told


@pytest.mark.parametrize(
    "message",
    [
        "0 active drivers ([]). There should only be one.",
        "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
    ],
)
def test_on_the_cpu_triton_has_no_verdict(message):
    fault = triton_fault(failed(message), DeviceKind.CPU, SOURCE)
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE)
    assert triton_fault(failed(message), DeviceKind.CPU, "import torch") is None
