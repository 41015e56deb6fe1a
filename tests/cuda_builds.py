"""What tests and benchmarks of CUDA builds share: a submission's build requests, a compiler run, and stand-ins.

A PyTorch without CUDA has the headers of its CUDA half, but not what they include of cuBLAS, cuSPARSE and cuSOLVER, nor
the libraries that an extension is linked to. Stand-ins let such a machine compile and link; nothing of that can launch.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension

from evaluator.errors import ToolchainMissing
from evaluator.protocol.frames import BuildRequest
from evaluator.runner.extensions import ExtensionLoader
from evaluator.sandbox import ToolResult
from evaluator.submission.read import Submission, read_submission
from evaluator.toolchain import nvcc
from tests.corpus.entries import entries

ARCHITECTURE = "90a"

_HEADERS = {
    "cublas_v2.h": """\
#include <cuda_runtime.h>
#include <library_types.h>
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1 } cublasStatus_t;
extern "C" const char* cublasGetStatusString(cublasStatus_t);
""",
    "cublasLt.h": "#include <cublas_v2.h>\ntypedef struct cublasLtContext* cublasLtHandle_t;\n",
    "cusparse.h": """\
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
extern "C" const char* cusparseGetErrorString(cusparseStatus_t);
""",
    "cusolver_common.h": """\
typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef enum { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_EXECUTION_FAILED } cusolverStatus_t;
""",
    "cusolverDn.h": "#include <cusolver_common.h>\n",
    "c10/cuda/impl/cuda_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS\n",
}
_LIBRARIES = ("c10_cuda", "torch_cuda")


def has_nvcc() -> bool:
    """Say whether there is a CUDA compiler here."""
    try:
        nvcc.nvcc()
    except ToolchainMissing:
        return False
    return True


def stand_ins(folder: Path) -> dict[str, str]:
    """Make what this machine's PyTorch lacks, and give the variables that lead g++ to it; none where it has CUDA."""
    if torch.version.cuda is not None:
        return {}
    for name, text in _HEADERS.items():
        path = folder / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#pragma once\n{text}")
    for name in _LIBRARIES:
        target = folder / f"lib{name}.so"
        subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", target], check=True)
    return {"CPATH": str(folder / "include"), "LIBRARY_PATH": str(folder)}


def local_tool(variables: dict[str, str]) -> Callable[..., ToolResult]:
    """Give a tool that runs compilers as they are, without a sandbox: for sources that are our own."""

    def run(argv, *, work, timeout_s, limits, readable=()):
        started = time.monotonic()
        environment = {
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
            "HOME": str(work),
            "TMPDIR": str(work),
            "LANG": "C.UTF-8",
            **variables,
        }
        process = subprocess.run(
            argv,
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        wall_s = time.monotonic() - started
        return ToolResult(
            exit_code=process.returncode, signal=None, timed_out=False, output=process.stdout, wall_s=wall_s
        )

    return run


class _Recorder(ExtensionLoader):
    """Takes the requests of a submission down, and gives it a module that does nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder)
        self.requests: list[BuildRequest] = []

    def _build(self, request):
        self.requests.append(request)
        return ModuleType(request.name)


def requests_of(path: Path, folder: Path) -> tuple[Submission, list[BuildRequest]]:
    """Run a submission of our own for what it asks to build; `folder` is where it may write."""
    submission = read_submission(path)
    recorder = _Recorder(folder)
    kept = cpp_extension.load_inline, cpp_extension.load
    model, here = ModuleType("model"), Path.cwd()
    model.Model = torch.nn.Module
    earlier = sys.modules.get("model")
    sys.modules["model"] = model
    text = folder / "submission.py"
    text.write_text(submission.source)
    recorder.install()
    os.chdir(folder)
    try:
        exec(compile(submission.source, str(text), "exec"), {"__name__": "submission", "__file__": str(text)})
    finally:
        os.chdir(here)
        cpp_extension.load_inline, cpp_extension.load = kept
        sys.modules.pop("model")
        if earlier is not None:
            sys.modules["model"] = earlier
    return submission, recorder.requests


def corpus_texts() -> dict[str, str]:
    """Give the text of each cuda.cu of tests/corpus, by the entry's name."""
    literal = re.compile(r'CUDA_SOURCE = r?"""(.*?)"""', re.DOTALL)
    found = {entry.name: literal.search(entry.source) for entry in entries()}
    return {name: match[1] for name, match in found.items() if match is not None}
