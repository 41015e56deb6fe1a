"""Failures of kernel languages: the verdict and the place, by the reports of a runner."""

import pytest

from evaluator.findings import Code
from evaluator.findings.running import NAME_PLACE
from evaluator.judge.runners.language_faults import refused_by_compiler, unavailable_language
from evaluator.judge.runners.runner_faults import Stage, failure
from evaluator.protocol.frames import Raised, RefusedKernel
from evaluator.protocol.submission_files import joined
from evaluator.records import DeviceKind, Status

SUBMISSION = '''import torch
SOURCE = r"""
extern "C" __global__ void relu(const float* x, float* out) {
    out[0] = fmaxf(y[0], 0.0f);
}
"""
relu = torch.cuda._compile_kernel(SOURCE, "relu")
'''
TEXT = SUBMISSION.split('"""')[1]
LOG = """relu.cu(3): warning #177-D: variable "z" was declared but never referenced
relu.cu(3): error: identifier "y" is undefined
      out[0] = fmaxf(y[0], 0.0f);
                     ^

1 error detected in the compilation of "relu.cu".
"""
"""Of NVRTC 13.0, with a warning in front."""


def nvrtc(reason=LOG, text=TEXT, kernel="relu"):
    return Raised(kind="RuntimeError", message="", refused=RefusedKernel(kernel, reason, 0, 0, text))


def told(fault):
    return fault and (fault.status, fault.finding.code, fault.finding.line)


REFUSED, FAILED = (Status.BUILD_ERROR, Code.KERNEL_REFUSED), (Status.RUNTIME_ERROR, Code.FORWARD_FAILED)
LANGUAGE_MISSING = (Status.INCONCLUSIVE, Code.LANGUAGE_MISSING)
ELSEWHERE = (Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE)


@pytest.mark.parametrize(
    ("log", "kernel", "subject"),
    [(LOG, "relu", "the kernel relu"), (LOG.replace("relu.cu", ".cu"), "", "a kernel")],
    ids=["NVRTC", "CuPy, with the file named by the runner"],
)
def test_a_kernel_that_nvrtc_refuses_has_reason_line_and_column(log, kernel, subject):
    fault = refused_by_compiler(nvrtc(log, kernel=kernel), SUBMISSION, 7)
    assert told(fault) == (*REFUSED, 4)
    assert fault.finding.message == f'{subject} does not compile: identifier "y" is undefined'
    assert fault.finding.details == {"kernel": kernel, "column": SUBMISSION.splitlines()[3].index("y[") + 1}


CUDA_CORE = (
    "cuda.core._program.cuda.core._program.Program.compile",
    "cuda.core._utils.cuda_utils.cuda.core._utils.cuda_utils._raise_nvrtc_error",
)
CUDA_CORE_LOG = '6: NVRTC_ERROR_COMPILATION, compilation log:\n\ndefault_program(2): error: identifier "y"\n\0'
"""Functions and message of cuda.core 1.2.2."""


def test_a_program_of_cuda_core_that_does_not_compile_is_a_build_error():
    fault = refused_by_compiler(failed(*CUDA_CORE, kind="NVRTCError", message=CUDA_CORE_LOG), SUBMISSION, 3)
    assert told(fault) == (*REFUSED, 3)
    assert fault.finding.message == f"cuda-python does not compile the kernel: {CUDA_CORE_LOG[:-2]}"
    for other in ("cuda.core._launcher.launch", "cuda.bindings.driver.cuLaunchKernel"):
        assert refused_by_compiler(failed(other), SUBMISSION, 3) is None


@pytest.mark.parametrize(
    ("reason", "text"),
    [("nvrtc: error: invalid value", TEXT), (LOG, "another text"), ("", TEXT), ("\n" * 9000, TEXT), (LOG[:40], TEXT)],
)
def test_a_forged_reason_is_a_failure_without_a_place(reason, text):
    fault = refused_by_compiler(nvrtc(reason, text, "k" * 1024), SUBMISSION, 7)
    assert told(fault) == (*REFUSED, None)
    assert fault.finding.details.get("column") is None
    assert len(fault.finding.message) < 2200


def failed(*functions, kind="ValueError", message="no such \x1b[92mtype"):
    return Raised(kind=kind, message=message, functions=["submission.ModelNew.forward", *functions])


TILELANG = ("tilelang.jit.JITImpl.__call__", "tilelang.engine.lower.lower")
LAUNCH = ("tilelang.jit.JITImpl.__call__", "tilelang.jit.kernel.JITKernel.__call__")


NVRTC = "torch.cuda._utils._nvrtc_compile"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        # An incomplete z3-solver, which TileLang imports: its exception is none of the import system.
        (
            failed("tilelang.<module>", "z3.z3core.<module>", kind="Z3Exception", message="libz3.so not found."),
            "TileLang lacks a part (libz3.so not found.): pip install tilelang",
        ),
        (
            failed("cutlass.base_dsl.runtime.f", kind="ModuleNotFoundError", message="No module named 'no_such_cuda'"),
            "lacks a part (No module named 'no_such_cuda'): pip install nvidia-cutlass-dsl",
        ),
        (
            failed(NVRTC, kind="OSError", message="Could not find any NVRTC library"),
            "(Could not find any NVRTC library): install a GPU build",
        ),
        (
            failed(CUDA_CORE[0], kind="DynamicLibNotFoundError", message='Failure finding "libnvrtc.so.13"'),
            'Failure finding "libnvrtc.so.13"',
        ),
    ],
    ids=["import", "package", "library", "cuda.core"],
)
def test_a_language_without_one_of_its_parts_is_no_verdict(said, message):
    fault = unavailable_language(said, DeviceKind.CUDA, 2)
    assert told(fault) == (*LANGUAGE_MISSING, 2)
    assert message in fault.finding.message
    assert unavailable_language(failed(NVRTC), DeviceKind.CUDA, 2) is None


@pytest.mark.parametrize("device", [DeviceKind.EMULATED, DeviceKind.CPU])
def test_a_language_for_gpus_is_no_verdict_elsewhere(device):
    fault = unavailable_language(failed(*LAUNCH), device, 3)
    assert told(fault) == (*ELSEWHERE, 3)
    assert fault.finding.message == f"the submission uses TileLang, and this grade is on {device.value}"
    assert unavailable_language(failed(), device, 3) is None
    nvrtc_launch = unavailable_language(failed("torch.cuda._utils._CudaKernel.__call__"), device, 3)
    assert told(nvrtc_launch) == ((*ELSEWHERE, 3) if device is DeviceKind.CPU else None)


def test_on_a_gpu_the_compilers_exception_is_a_build_error_and_the_launchs_is_not():
    assert unavailable_language(failed(*TILELANG), DeviceKind.CUDA, 3) is None
    fault = refused_by_compiler(failed(*TILELANG), SUBMISSION, 3)
    assert told(fault) == (*REFUSED, 3)
    assert fault.finding.message == "TileLang does not compile the kernel: no such type"
    assert refused_by_compiler(failed(*LAUNCH), SUBMISSION, 3) is None
    assert refused_by_compiler(failed(), SUBMISSION, 3) is None


ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("said", "device", "verdict"),
    [
        (nvrtc(), DeviceKind.CUDA, REFUSED),
        (failed(*TILELANG), DeviceKind.CUDA, REFUSED),
        (failed(*TILELANG), DeviceKind.EMULATED, ELSEWHERE),
        (failed(*LAUNCH), DeviceKind.CUDA, FAILED),
        # A fault of an earlier kernel may surface in the compiler.
        (failed(*TILELANG, message=ILLEGAL_ACCESS), DeviceKind.CUDA, (Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS)),
    ],
)
def test_the_causes_are_tried_in_the_right_order(said, device, verdict):
    assert told(failure(said, Stage.CALL, None, device, SUBMISSION))[:2] == verdict


def test_a_gpus_fault_without_a_place_says_how_to_find_the_place():
    why = failure(failed(message=ILLEGAL_ACCESS), Stage.CALL, None, DeviceKind.CUDA, SUBMISSION).finding
    assert why.next_step == NAME_PLACE
    assert "--device emulated" in why.next_step
    trap = failed(message="CUDA error: device-side assert triggered")
    assert failure(trap, Stage.CALL, None, DeviceKind.CUDA, SUBMISSION).finding.next_step != NAME_PLACE


CUTE_DSL = ("cutlass.base_dsl.compiler.CompileCallable.__call__", "cutlass.cutlass_dsl.cutlass.CuTeDSL._func")
EARLY_EXIT = """error[UNSUP_EARLY_EXIT]: Early exit (return) is not allowed in `relu_kernel`.
  --> {file}:3:9
   |
1 | def relu_kernel(x):
2 |     if x.thread >= x.size:
3 |         return
  |         ^^^^^^
  suggestion: If the condition is decided at compile time, write `if const_expr(...)`."""
"""Of CuTe DSL 4, on an H100; names of the kernel and its variables replaced."""
CUTE_KERNEL = "def relu_kernel(x):\n    if x.thread >= x.size:\n        return\n\nforward = relu_kernel\n"


@pytest.mark.parametrize(
    ("file", "submission", "line", "column"),
    [
        ("submission.py", CUTE_KERNEL, 3, 9),
        ("kernels/own.py", joined([("main.py", "import own\n"), ("kernels/own.py", CUTE_KERNEL)]), 7, 9),
        ("/usr/lib/python3/cutlass/cute/arch.py", CUTE_KERNEL, 5, None),
        ("submission.py", "forward = None\n", 5, None),
        ("own.py", joined([("main.py", "import own\n"), ("kernels/own.py", CUTE_KERNEL)]), 5, None),
    ],
    ids=["one file", "several files", "the library's file", "no such line", "no such file"],
)
def test_a_compilers_place_is_the_line_of_the_finding(file, submission, line, column):
    """Without a place of its own, the finding has the line of the call."""
    said = failed(*CUTE_DSL, kind="DSLUserCodeError", message=EARLY_EXIT.format(file=file))
    fault = refused_by_compiler(said, submission, 5)
    assert told(fault) == (*REFUSED, line)
    assert fault.finding.details.get("column") == column
    assert fault.finding.message == f"CuTe DSL does not compile the kernel: {EARLY_EXIT.format(file=file)}"
