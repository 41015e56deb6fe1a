"""Deaths of a runner and exceptions of a submission: the verdict, and a next step that fits."""

from types import SimpleNamespace

import pytest

from evaluator.findings import ENTRIES, Code, finding
from evaluator.findings.running import ADD_RETURN, HOST_CODE, HOST_READS_GPU
from evaluator.findings.submission import ONE_BLOCK
from evaluator.judge.runners.runner_faults import Stage, death, failure
from evaluator.protocol.frames import Raised
from evaluator.records import DeviceKind, Diagnostic, Status
from evaluator.sandbox import ExitInfo

USUAL = ENTRIES[Code.RUNNER_DIED].next_step


def fault_of(failed, stage=Stage.IMPORT, builds=None, device=DeviceKind.CPU, source=""):
    """Say what the judge makes of an exception of the submission."""
    return failure(failed, stage, builds, device, source)


def died(signal, device, builds=None):
    info = ExitInfo(exit_code=None if signal else 1, signal=signal, out_of_memory=False, by_judge=False)
    return death(info, Stage.CALL, device, "", builds)


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
    fault = died(signal, device)
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
    found = died(signal, DeviceKind.CPU, WithoutReturn()).finding
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
    fault = fault_of(failed, Stage.CALL, OneFailedBuild())
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
    fault = fault_of(Raised(kind="", message=""), builds=builds)
    assert (fault.status, fault.finding.code) == (status, told)


def test_an_exception_without_a_name_and_a_text_adds_nothing():
    assert fault_of(Raised(kind="", message=""), Stage.CALL, OneFailedBuild()).finding == OneFailedBuild.failures[0]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("AttributeError: module 'torch._C' has no attribute '_cuda_getDevice'\nmore", "_cuda_getDevice"),
        ("Tried to instantiate dummy base class CUDAGraph", "CUDAGraph"),
        ("Could not run 'aten::record_stream' with arguments from the 'CPU' backend.", "aten::record_stream"),
        ("Torch not compiled with CUDA enabled", "Torch not compiled with CUDA"),
    ],
)
def test_what_needs_a_pytorch_with_cuda_is_no_fault_on_the_emulator(message, name):
    failed = Raised(kind="NotImplementedError", message=message, lines=[(3, "forward")])
    fault = fault_of(failed, Stage.CALL, device=DeviceKind.EMULATED)
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.NOT_EMULATED.value)
    assert (fault.finding.line, fault.finding.details["construct"]) == (3, name)
    assert "more" not in fault.finding.message.replace("[1 more lines]", "")
    elsewhere = fault_of(failed, Stage.CALL, device=DeviceKind.CUDA)
    assert (elsewhere.status, elsewhere.finding.code) == (Status.RUNTIME_ERROR, Code.FORWARD_FAILED.value)


@pytest.mark.parametrize(("stage", "verdict"), [(Stage.IMPORT, Status.BUILD_ERROR), (Stage.CALL, Status.RUNTIME_ERROR)])
@pytest.mark.parametrize("name", ["no_such_einops", "no_such_einops.layers.torch"])
def test_a_package_that_is_not_there_is_named_with_those_that_are(stage, verdict, name):
    said = Raised(kind="ModuleNotFoundError", message=f"No module named '{name}'", lines=[(3, "")])
    fault = fault_of(said, stage)
    assert (fault.status, fault.finding.code, fault.finding.line) == (verdict, Code.PACKAGE_MISSING, 3)
    assert fault.finding.details == {"package": "no_such_einops"}
    assert "torch, numpy" in fault.finding.message
    assert "pip install" in fault.finding.next_step


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ModuleNotFoundError", "No module named 'torch.fast'"),
        ("ModuleNotFoundError", "No module named 'x y'"),
        ("ModuleNotFoundError", "No module named '__main__'"),
        ("ModuleNotFoundError", ""),
        ("ImportError", "No module named 'no_such_einops'"),
    ],
)
def test_any_other_failed_import_is_the_submissions_own(kind, message):
    assert fault_of(Raised(kind=kind, message=message, lines=[])).finding.code == Code.IMPORT_FAILED


def test_a_text_that_ends_in_the_middle_is_told_to_have_been_cut_off():
    said = Raised(kind="SyntaxError", message="'(' was never closed", lines=[(1, "f(")])
    assert fault_of(said, source="f(\n").finding.code == Code.CUT_OFF
    assert "token limit" in fault_of(said, source="f(\n").finding.next_step
    assert fault_of(said, source="f(\nclass A: 1").finding.code == Code.IMPORT_FAILED
    assert fault_of(said, Stage.CALL, source="f(\n").finding.code == Code.FORWARD_FAILED


@pytest.mark.parametrize(
    ("package", "command"), [("tilelang", "pip install tilelang"), ("cutlass", "nvidia-cutlass-dsl")]
)
@pytest.mark.parametrize("stage", [Stage.IMPORT, Stage.CALL])
def test_a_missing_kernel_language_is_no_verdict(monkeypatch, stage, package, command):
    monkeypatch.setattr("evaluator.submission.requirements._is_there", lambda _: False)
    said = Raised(kind="ModuleNotFoundError", message=f"No module named '{package}.language'", lines=[(3, "")])
    fault = fault_of(said, stage)
    assert (fault.status, fault.finding.code, fault.finding.line) == (Status.INCONCLUSIVE, Code.LANGUAGE_MISSING, 3)
    assert command in fault.finding.message
    assert "runs on cuda, not on cpu" in fault.finding.message


@pytest.mark.parametrize(("module", "found"), [("tilelang.language", True), ("no_such_einops", False), ("", False)])
def test_a_missing_kernel_language_behind_an_exception_is_no_verdict(monkeypatch, module, found):
    monkeypatch.setattr("evaluator.submission.requirements._is_there", lambda _: False)
    fault = fault_of(Raised(kind="RuntimeError", message="no tilelang", missing=module), Stage.CALL)
    assert (fault.status is Status.INCONCLUSIVE) == found
    assert (fault.finding.code == Code.LANGUAGE_MISSING) == found


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("This kernel uses float4 loads.", "line 9 is prose, not Python: SyntaxError: invalid syntax"),
        ("It's as fast as the memory allows", "line 9 is prose"),
        ("```", "line 9 is the fence of a block"),
        ("<think>", "line 9 is a tag"),
    ],
)
def test_a_syntax_error_in_a_line_that_is_no_code_says_so(line, what):
    found = fault_of(Raised(kind="SyntaxError", message="invalid syntax", lines=[(9, line)]), source=line).finding
    assert (found.code, found.line, found.next_step) == (Code.WRONG_FORM, 9, ONE_BLOCK)
    assert found.message.startswith(what)


@pytest.mark.parametrize("line", ["class ModelNew(:\n    1", "const int i = 3;", "x = = 1", "    return x y", "f(a b)"])
def test_a_syntax_error_in_code_is_a_failed_import(line):
    found = fault_of(Raised(kind="SyntaxError", message="invalid syntax", lines=[(9, line)]), source=line).finding
    assert found.code == Code.IMPORT_FAILED
