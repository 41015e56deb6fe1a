"""Kernels found in the bytes of a built library, and left out of them. Needs nvcc, and no GPU."""

import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.compile.binary_files import EXIT, kernel_code, without
from evaluator.compile.emulated_builder import nvcc_version
from evaluator.cuda_source.symbols import plain_name
from evaluator.toolchain import nvcc

TEXT = """
#define PASTED(a, b) a##b
__global__ void relu_kernel(const float* x, float* out, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0 ? 0 : x[i];
}
extern "C" __global__ void ampere_sgemm_128x64_nn(float*) {}
namespace ns { template <class T> PASTED(__glo, bal__) void PASTED(hid, den)(T* out) { out[0] = T(1); } }
void f(float* x) { relu_kernel<<<1, 1>>>(x, x, 1); ampere_sgemm_128x64_nn<<<1, 1>>>(x); ns::hidden<<<1, 1>>>(x); }
"""
NAMES = {"_Z11relu_kernelPKfPfl", "ampere_sgemm_128x64_nn", "_ZN2ns6hiddenIfEEvPT_"}
HEADER, SECTION = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ"
HEADER_BYTES, SECTION_BYTES = struct.calcsize(HEADER), struct.calcsize(SECTION)
needs_nvcc = pytest.mark.skipif(nvcc_version() is None, reason="needs nvcc")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Build a library as `compile/cuda_builder.py` does, without PyTorch, and strip it as a submission can."""
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "a.cu").write_text(TEXT)
    command = [nvcc.nvcc().path, "-gencode=arch=compute_90a,code=sm_90a", "--compiler-options", "-fPIC", "-shared"]
    subprocess.run([*command, "-Xlinker", "-s", "-o", "a.so", "a.cu"], cwd=folder, check=True, capture_output=True)
    return (folder / "a.so").read_bytes()


@needs_nvcc
def test_every_kernel_is_found_whatever_its_text_and_its_library_look_like(library):
    found = kernel_code(library)
    assert {code.name for code in found} == NAMES
    assert {plain_name(code.name) for code in found} == {"relu_kernel", "ampere_sgemm_128x64_nn", "ns::hidden"}
    assert all(code.size % 16 == 0 for code in found)


@needs_nvcc
def test_an_empty_kernel_of_nvccs_ends_with_the_instruction_that_is_put_in(library):
    (empty,) = [code for code in kernel_code(library) if code.name == "ampere_sgemm_128x64_nn"]
    instructions = [library[i : i + 16] for i in range(empty.start, empty.start + empty.size, 16)]
    assert EXIT in instructions[:3]


@needs_nvcc
@pytest.mark.parametrize("names", [None, {"_Z11relu_kernelPKfPfl"}])
def test_a_kernel_that_is_left_out_ends_at_once_and_nothing_else_changes(library, names):
    changed = without(library, names)
    wanted = NAMES if names is None else names
    assert len(changed) == len(library)
    kept = bytearray(changed)
    for code in kernel_code(library):
        begins_with_exit = changed[code.start : code.start + 16] == EXIT
        assert begins_with_exit == (code.name in wanted)
        kept[code.start : code.start + 16] = library[code.start : code.start + 16]
    assert bytes(kept) == library
    assert kernel_code(changed) == kernel_code(library)


@needs_nvcc
def test_what_is_not_there_is_not_left_out(library):
    assert without(library, {"other"}) is None
    assert without(library, set()) is None


def forged(headers):
    """Return a library of cubins with one table of sections: the strings, and a kernel `k`."""
    table, strings = headers * HEADER_BYTES, headers * HEADER_BYTES + 2 * SECTION_BYTES
    made = b""
    for _ in range(headers):
        at = len(made)
        made += struct.pack(HEADER, b"\x7fELF\x02\x01", 2, 190, 1, 0, 0, table - at, 0, 64, 0, 0, 64, 2, 0)
    made += struct.pack(SECTION, 7, 3, 0, 0, strings, 8, 0, 0, 1, 0)
    made += struct.pack(SECTION, 0, 1, 0, 0, strings + 8, 16, 0, 0, 1, 0)
    return made + b".text.k\0" + bytes(16)


def test_cubins_that_share_a_table_have_no_kernels():
    """A library of 64 MiB with a million headers would keep the judge busy for a day."""
    assert [code.name for code in kernel_code(forged(1))] == ["k"]
    assert kernel_code(forged(100)) == []


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_any_bytes_can_be_asked_about(tail, table, count, names):
    header = struct.pack(HEADER, b"\x7fELF\x02\x01", 2, 190, 1, 0, 0, table, 0, 64, 0, 0, 64, count, names)
    for library in (tail, header + tail, b"\0" * 7 + header[: len(tail) % 64]):
        assert all(code.start + code.size <= len(library) for code in kernel_code(library))
        assert without(b"") is None
