"""What a built library imports, read from its own bytes."""

import struct
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evaluator.compile.binary_files import ImportedSymbols, imported_symbols, together

HEAD = """
namespace at::_ops {
struct relu { static void call(); };
struct empty_like { static void call(); };
struct add_Tensor { static void redispatch(); };
}
namespace at::native { void relu_kernel(); }
namespace torch { struct class_base { class_base(); }; }
extern "C" { void dlsym(); void cblas_sgemm(); void sgemm_(); void dlsymbols(); }
"""


@pytest.fixture
def read(tmp_path):
    """Compile a library with this function in it, and read what it imports."""

    def compiled(body, *flags):
        (tmp_path / "library.cpp").write_text(f"{HEAD}\nvoid function() {{ {body} }}")
        command = ["g++", "-shared", "-fPIC", "-w", "-std=c++17", "library.cpp", "-o", "library.so", *flags]
        subprocess.run(command, cwd=tmp_path, check=True)
        return imported_symbols((tmp_path / "library.so").read_bytes())

    return compiled


@pytest.mark.parametrize(
    ("body", "operations", "beside", "compute"),
    [
        ("at::_ops::relu::call();", ["relu"], [], True),
        ("at::_ops::add_Tensor::redispatch();", ["add_Tensor"], [], True),
        ("at::_ops::empty_like::call();", ["empty_like"], [], False),
        ("at::native::relu_kernel();", [], ["at::native::relu_kernel"], False),
        ("dlsym(); dlsymbols();", [], ["dlsym"], False),
        ("cblas_sgemm(); sgemm_();", [], ["cblas_sgemm", "sgemm_"], False),
        ("", [], [], False),
    ],
)
def test_imports_are_read(read, body, operations, beside, compute):
    found = read(body, "-Wl,--strip-all")
    assert (found.operations, found.beside, found.compute) == (operations, beside, compute)
    assert found.readable
    assert not found.classes


def test_classes_for_pytorch_are_seen(read):
    assert read("torch::class_base made;").classes


@pytest.mark.parametrize("name", ["contiguous", "to_dtype", "item", "view", "zeros", "copy_", "empty_memory_format"])
def test_what_makes_and_describes_tensors_does_not_compute(name):
    assert not ImportedSymbols(operations=[name]).compute


@pytest.mark.parametrize("name", ["relu", "linear", "sum_dim_IntList", "matmul", "conv2d", "of_a_later_pytorch"])
def test_what_computes_does(name):
    assert ImportedSymbols(operations=["empty_like", name]).compute


def test_what_is_no_library_is_not_readable(read):
    read("")
    for library in (b"", b"\x7fELF library", b"\x7fELF\x02\x01" + bytes(200), b"MZ" * 100):
        assert imported_symbols(library) == ImportedSymbols(readable=False)


def test_a_library_without_a_table_of_sections_is_not_readable(read, tmp_path):
    read("")
    library = bytearray((tmp_path / "library.so").read_bytes())
    library[40:48] = bytes(8)  # e_shoff
    library[60:62] = bytes(2)  # e_shnum
    assert not imported_symbols(bytes(library)).readable


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), st.binary(max_size=400))
@example(2**64 - 64, 3, b"")  # an offset that no index can have
@example(64, 1, struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, 2**64 - 1, 24, 0, 0, 0, 0))
@example(64, 1, struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, 64, 48, 0, 0, 0, 0))
def test_any_library_is_read_or_not_readable(table, count, tail):
    header = (b"\x7fELF\x02\x01", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, count, 0)
    found = imported_symbols(struct.pack("<16sHHIQQQIHHHHHH", *header) + tail)
    assert found.readable or found == ImportedSymbols(readable=False)


def test_together_they_have_what_any_has():
    first, second = (
        ImportedSymbols(operations=["relu"]),
        ImportedSymbols(beside=["dlsym"], classes=True, readable=False),
    )
    assert together([first, second]) == ImportedSymbols(["relu"], ["dlsym"], classes=True, readable=False)
    assert together([]) == ImportedSymbols()
