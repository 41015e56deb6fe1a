"""Deaths of a runner: the next step fits the signal and the device."""

from types import SimpleNamespace

import pytest

from evaluator.findings import ENTRIES, Code, finding
from evaluator.findings.running import ADD_RETURN, HOST_CODE, HOST_READS_GPU
from evaluator.judge.runners.runner_faults import Stage, death, failure
from evaluator.protocol.frames import Raised
from evaluator.records import DeviceKind, Diagnostic, Status
from evaluator.sandbox import ExitInfo

USUAL = ENTRIES[Code.RUNNER_DIED].next_step


@pytest.mark.parametrize(
    ("signal", "device", "step"),
    [
        ("SIGSEGV", DeviceKind.CUDA, HOST_READS_GPU),
        ("SIGABRT", DeviceKind.CUDA, USUAL),
        ("SIGSEGV", DeviceKind.EMULATED, HOST_CODE),
        ("SIGSEGV", DeviceKind.CPU, USUAL),
        (None, DeviceKind.CUDA, USUAL),
    ],
)
def test_a_segmentation_fault_on_a_gpu_is_of_host_code(signal, device, step):
    info = ExitInfo(exit_code=None if signal else 1, signal=signal, out_of_memory=False, by_judge=False)
    fault = death(info, Stage.CALL, device, "")
    assert (fault.status, fault.finding.code) == (Status.RUNTIME_ERROR, Code.RUNNER_DIED.value)
    assert fault.finding.next_step == step


class OneFailedBuild:
    texts = {}
    missing_return = None
    failures = (finding(Code.BINDING, "functions=[...] names the kernel k, which Python cannot call"),)


class WithoutReturn(OneFailedBuild):
    missing_return = Diagnostic("warning", "no return statement", "a.cu", 3, 1, submission_line=7, source_line="}")


@pytest.mark.parametrize(("signal", "line", "step"), [("SIGSEGV", 7, ADD_RETURN), (None, None, USUAL)])
def test_a_warning_about_a_missing_return_explains_a_crash(signal, line, step):
    info = ExitInfo(exit_code=None if signal else 1, signal=signal, out_of_memory=False, by_judge=False)
    found = death(info, Stage.CALL, DeviceKind.CPU, "", WithoutReturn()).finding
    assert (found.line, found.next_step) == (line, step)
    assert found.message.endswith("the compiler warned: no return statement") is (signal is not None)


@pytest.mark.parametrize(
    ("message", "lines", "said"),
    [
        ("Error building extension 'k': no such function", [(7, "forward")], ""),
        ("'NoneType' object has no attribute 'k'", [(7, "forward")], "; then in line 7: {}"),
        ("a value of\ntwo lines", [], "; then: RuntimeError: a value of"),
        ("", [], "; then: RuntimeError"),
        ("x" * 5000, [], "; then: RuntimeError: " + "x" * (200 - len("RuntimeError: "))),
    ],
)
def test_an_exception_after_an_ignored_failure_of_a_build_is_told(message, lines, said):
    failed = Raised(kind="RuntimeError", message=message, lines=lines)
    fault = failure(failed, Stage.CALL, OneFailedBuild(), DeviceKind.CUDA, "")
    assert (fault.status, fault.finding.code) == (Status.BUILD_ERROR, Code.BINDING.value)
    assert fault.finding.message == OneFailedBuild.failures[0].message + said.format(f"RuntimeError: {message}")


@pytest.mark.parametrize(
    ("codes", "status", "told"),
    [
        ("B203 B207 B216 B206", Status.INCONCLUSIVE, "B206"),
        ("B203 B216 B209", Status.INCONCLUSIVE, "B209"),
        ("B203 B207", Status.TIMEOUT, "B207"),
        ("B212 B203", Status.BUILD_ERROR, "B212"),
        ("B211", Status.BUILD_ERROR, "B211"),
    ],
)
def test_of_several_failed_builds_the_one_without_a_verdict_is_told(codes, status, told):
    builds = SimpleNamespace(texts={}, failures=[finding(Code(code), code) for code in codes.split()])
    fault = failure(Raised(kind="", message=""), Stage.IMPORT, builds, DeviceKind.CUDA, "")
    assert (fault.status, fault.finding.code) == (status, told)


def test_an_exception_without_a_name_and_a_text_adds_nothing():
    fault = failure(Raised(kind="", message=""), Stage.CALL, OneFailedBuild(), DeviceKind.CUDA, "")
    assert fault.finding == OneFailedBuild.failures[0]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("AttributeError: module 'torch._C' has no attribute '_cuda_getDevice'\nmore", "_cuda_getDevice"),
        ("Tried to instantiate dummy base class CUDAGraph", "CUDAGraph"),
    ],
)
def test_what_needs_a_pytorch_with_cuda_is_no_fault_on_the_emulator(message, name):
    failed = Raised(kind="InternalTorchDynamoError", message=message, lines=[(3, "forward")])
    fault = failure(failed, Stage.CALL, None, DeviceKind.EMULATED, "")
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.NOT_EMULATED.value)
    assert (fault.finding.line, fault.finding.details["construct"]) == (3, name)
    assert "more" not in fault.finding.message.replace("[1 more lines]", "")
    elsewhere = failure(failed, Stage.CALL, None, DeviceKind.CUDA, "")
    assert (elsewhere.status, elsewhere.finding.code) == (Status.RUNTIME_ERROR, Code.FORWARD_FAILED.value)


@pytest.mark.parametrize(
    ("message", "construct"),
    [
        ("Could not run 'aten::record_stream' with arguments from the 'CPU' backend.", "aten::record_stream"),
        ("Torch not compiled with CUDA enabled", "Torch not compiled with CUDA"),
    ],
)
def test_what_a_pytorch_without_cuda_lacks_is_no_fault_of_the_submission(message, construct):
    fault = failure(Raised(kind="NotImplementedError", message=message), Stage.CALL, None, DeviceKind.EMULATED, "")
    assert fault.status is Status.INCONCLUSIVE
    assert fault.finding.details["construct"] == construct
