"""The emulator's headers for CUDA's libraries, compiled with g++ and called on arrays.

`headers/` holds the C++ that is compiled, and what a real GPU answered to parts of it.
"""

import _ctypes
import ctypes
import json
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.own_libraries import build_runtime
from evaluator.emulator import headers
from evaluator.paths import cache_folder
from evaluator.toolchain import host_compiler
from tests import once
from tests.cuda_builds import local_tool

FOLDER = Path(__file__).parent / "headers"
GPU = json.loads((FOLDER / "gpu_values.json").read_text())
AS_TORCH_BUILDS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
]
TYPES = {"half": torch.float16, "bfloat16": torch.bfloat16}

pytestmark = pytest.mark.slow


def compiled(name, sources, flags):
    def compile_all(folder):
        argv = [host_compiler.cxx().path, "-O1", "-w", *map(str, sources), *flags, "-o", str(folder / f"{name}.so")]
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-3000:]

    return once.made_once(f"headers-{name}", compile_all) / f"{name}.so"


def extension_flags(standard):
    return [
        f"-std={standard}",
        "-fPIC",
        "-shared",
        "-g1",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        *(["-mtls-dialect=gnu2"] if platform.machine() == "x86_64" else []),
        f"-isystem{headers.INCLUDE}",
    ]


@pytest.fixture(scope="module")
def build():
    """Give a function that compiles one file of `headers/` and loads it."""

    def build_one(name, *more):
        flags = [*extension_flags("c++17"), *more]
        return ctypes.CDLL(str(compiled(name, [FOLDER / f"{name}.cpp"], flags)))

    return build_one


@pytest.fixture(scope="module")
def engine():
    """Load the emulator's headers, with its symbols for everybody, as a runner does."""

    def make(folder):
        (folder / "engine.so").write_bytes(build_runtime(local_tool({}), BuildCache(cache_folder())))

    return ctypes.CDLL(str(once.made_once("engine", make) / "engine.so"), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture(params=[(0, 1), (1, 1), (2, 1), (2, 2)], ids=["ascending", "descending", "shuffled", "two workers"])
def schedule(engine, request):
    order, workers = request.param
    engine.warpgrade_emu_schedule(ctypes.c_int(order), ctypes.c_uint64(99), ctypes.c_int(workers), ctypes.c_int(0))
    yield
    engine.warpgrade_emu_schedule(ctypes.c_int(0), ctypes.c_uint64(0), ctypes.c_int(1), ctypes.c_int(0))


@pytest.fixture(scope="module")
def small_float(engine, build):
    return build("small_float")


@pytest.fixture(scope="module")
def fp8(build):
    return build("fp8")


@pytest.fixture(scope="module")
def collectives(engine, build):
    return build("collectives")


@pytest.fixture(scope="module")
def libraries(engine, build):
    return build("libraries")


@pytest.fixture(scope="module")
def with_torch(engine, build):
    torch_flags = [flag for flag in host_compiler.native_flags() if flag.startswith(("-isystem", "-L", "-std"))]
    return build("torch_headers", *AS_TORCH_BUILDS, *torch_flags, "-lc10", "-ltorch_cpu", "-ltorch")


def address(tensor):
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def call(function, *args):
    """Call a function that launches a kernel; what the kernel threw fails the test."""
    function.restype = ctypes.c_char_p
    converted = [address(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    assert function(*converted) is None


def bits(tensor):
    return tensor.view(torch.int16)


def same(actual, expected):
    """Compare bit by bit, but for NaN: there a GPU has one of its own, and torch keeps the payload."""
    nan = expected.isnan()
    return torch.equal(actual.isnan(), nan) and torch.equal(bits(actual)[~nan], bits(expected)[~nan])


def all_values(dtype):
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def random_floats(count):
    """Draw floats of every size, infinities and NaN among them."""
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32).view(torch.float32)


# The 8-bit types

FP8 = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}


def all_bytes(name):
    return torch.arange(256).to(torch.uint8).view(FP8[name][0])


@pytest.mark.parametrize("name", FP8)
def test_every_value_of_fp8_widens_as_in_torch(fp8, name):
    values = all_bytes(name)
    wide = torch.empty(256)
    getattr(fp8, f"{name}_widen")(address(values), address(wide), ctypes.c_long(256))
    assert torch.equal(wide.isnan(), values.float().isnan())
    assert torch.equal(wide.nan_to_num(7.0), values.float().nan_to_num(7.0))


@pytest.mark.parametrize("name", FP8)
def test_floats_are_rounded_to_fp8_as_in_torch_and_saturate(fp8, name):
    dtype, most = FP8[name]
    values = all_bytes(name).float()
    values = values[values.isfinite()].sort().values
    ties = (values[:-1] + values[1:]) / 2
    floats = torch.cat([random_floats(100_000), torch.randn(50_000) * 100, values, ties, ties.nextafter(values[1:])])
    rounded = torch.empty(floats.numel(), dtype=dtype)
    getattr(fp8, f"{name}_narrow")(address(floats), address(rounded), ctypes.c_long(floats.numel()))
    nan = floats.isnan()
    expected = floats.clamp(-most, most).to(dtype)
    assert torch.equal(rounded.view(torch.uint8)[~nan], expected.view(torch.uint8)[~nan])
    assert (rounded.view(torch.uint8)[nan] == 0x7F).all(), "a GPU's NaN"


@pytest.mark.parametrize(("name", "overflow"), [("e4m3", 0x7F), ("e5m2", 0x7C)])
def test_without_saturation_the_limit_lies_half_a_step_beyond_the_largest_value(fp8, name, overflow):
    most, half = FP8[name][1], FP8[name][1] / 28 if name == "e4m3" else FP8[name][1] / 14
    floats = torch.tensor([most, most + half * 0.99, most + half * 1.01, float("inf"), 1e30])
    codes = torch.empty(5, dtype=torch.uint8)
    getattr(fp8, f"{name}_narrow_without_saturation")(address(floats), address(codes), ctypes.c_long(5))
    largest = int(torch.tensor(most).to(FP8[name][0]).view(torch.uint8))
    assert codes.tolist() == [largest, largest, overflow, overflow, overflow]


@pytest.mark.parametrize("name", FP8)
def test_pairs_and_quadruples_have_the_first_value_in_the_low_byte(fp8, name):
    values = all_bytes(name).float()
    values = values[values.isfinite()][:240].contiguous()
    found = torch.empty(240)
    getattr(fp8, f"{name}_in_vectors")(address(values), address(found), ctypes.c_long(240))
    assert torch.equal(found, values)


# The 16-bit types


@pytest.mark.parametrize("name", TYPES)
def test_every_value_widens_as_in_torch(small_float, name):
    values = all_values(TYPES[name])
    wide = torch.empty(65536)
    getattr(small_float, f"{name}_widen")(address(values), address(wide), ctypes.c_long(65536))
    expected = values.float()
    assert torch.equal(wide.isnan(), expected.isnan())
    assert torch.equal(wide.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("name", TYPES)
def test_floats_are_rounded_as_in_torch(small_float, name):
    dtype = TYPES[name]
    middle = all_values(dtype).float()
    ties = (middle[:-1].double() + middle[1:].double()).div(2).float()
    floats = torch.cat([random_floats(200_000), ties, ties.nextafter(middle[1:]), torch.randn(50_000)])
    rounded = torch.empty(floats.numel(), dtype=dtype)
    getattr(small_float, f"{name}_narrow")(address(floats), address(rounded), ctypes.c_long(floats.numel()))
    assert same(rounded, floats.to(dtype))
    assert (bits(rounded)[rounded.isnan()] == 0x7FFF).all(), "a GPU's NaN"


def test_doubles_are_rounded_once(small_float):
    extremes = [1 + 2**-11 + 2**-40, -1e-8, 6e4]  # The first is just above a tie, where a float is on it.
    doubles = torch.cat([torch.randn(5000, dtype=torch.float64) * 10, torch.tensor(extremes, dtype=torch.float64)])
    rounded = torch.empty(doubles.numel(), dtype=torch.float16)
    small_float.half_narrow_double(address(doubles), address(rounded), ctypes.c_long(doubles.numel()))
    expected = b"".join(struct.pack("<e", value) for value in doubles.tolist())
    assert bytes(rounded.view(torch.uint8).tolist()) == expected
    assert rounded[5000] == 1 + 2**-10


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic_is_that_of_torch(small_float, name):
    dtype = TYPES[name]
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randint(0, 65536, (50_000,), generator=generator).to(torch.int16).view(dtype) for _ in range(2))
    results = [torch.empty(50_000, dtype=dtype) for _ in range(3)]
    getattr(small_float, f"{name}_arithmetic")(*map(address, [a, b, *results]), ctypes.c_long(50_000))
    # In double, so that there is one rounding that matters: PyTorch's float would round tiny bfloat16 twice.
    for result, expected in zip(results, [a.double() + b, a.double() * b, a.double() / b], strict=True):
        exact = torch.empty_like(result)
        narrow = getattr(small_float, f"{name}_narrow_double")
        narrow(address(expected.contiguous()), address(exact), ctypes.c_long(50_000))
        assert same(result, exact)


@pytest.mark.parametrize("name", TYPES)
def test_functions_are_within_one_step_of_the_exact_value(small_float, name):
    dtype = TYPES[name]
    values = torch.linspace(0.01, 9, 4000).to(dtype)
    results = torch.empty(8, 4000, dtype=dtype)
    getattr(small_float, f"{name}_functions")(address(values), address(results), ctypes.c_long(4000))
    x = values.double()
    exact = [x.exp(), x.log(), x.sqrt(), x.rsqrt(), x.sin(), x.cos(), x.tanh(), 1 / x]
    step = torch.finfo(dtype).eps
    for result, expected in zip(results.double(), exact, strict=True):
        assert ((result - expected).abs() <= step * expected.abs() + 1e-7).all()


@pytest.mark.parametrize("name", TYPES)
def test_operations_give_the_bits_of_a_gpu(small_float, name):
    digests = torch.zeros(40, dtype=torch.int32)
    getattr(small_float, f"{name}_digests")(address(digests))
    assert [f"{value & 0xFFFFFFFF:08x}" for value in digests.tolist()] == GPU[name].split()


def test_vectors_of_two(small_float):
    passed = (ctypes.c_int * 64)()
    count = small_float.vector_checks(passed)
    assert list(passed[:count]) == [1] * count
    assert count > 10


def assert_compiles(lines, *flags):
    argv = [host_compiler.cxx().path, "-std=c++20", "-fsyntax-only", *flags, f"-I{headers.INCLUDE}", "-xc++", "-"]
    result = subprocess.run(argv, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("flags", "expressions"),
    [
        ([], {"H(a + b)": True, "H(a + 1.0f)": False}),
        (AS_TORCH_BUILDS, {"H(a + b)": False, "H(1.0f)": False, "H(__hadd(a, b))": True, "B(d * d)": True}),
    ],
    ids=["nvcc", "PyTorch"],
)
def test_operators_exist_exactly_where_nvcc_has_them(flags, expressions):
    lines = ["#include <cuda_bf16.h>", "template <class T> void take(T);"]
    for number, (expression, exists) in enumerate(expressions.items()):
        taken = f"take<{expression[0]}>{expression[1:]}"
        lines.append(f"template <class H, class B> concept Has{number} = requires(H a, H b, B d) {{ {taken}; }};")
        lines.append(f"static_assert({'' if exists else '!'}Has{number}<half, nv_bfloat16>);")
    assert_compiles(lines, *flags)


ATOMICS = {
    "int": "Add Sub Exch Min Max And Or Xor CAS",
    "unsigned": "Add Sub Exch Min Max And Or Xor Inc Dec CAS",
    "long": "",
    "unsigned long": "",
    "long long": "Min Max And Or Xor",
    "unsigned long long": "Add Exch Min Max And Or Xor CAS",
    "float": "Add Exch",
    "double": "Add",
    "short": "",
    "unsigned short": "CAS",
    "char": "",
    "__half": "Add",
    "__half2": "Add",
    "__nv_bfloat16": "Add",
    "__nv_bfloat162": "Add",
    "float2": "Add",
}
"""What nvcc 13.0 compiles for sm_90."""


def test_atomics_exist_exactly_where_nvcc_has_them():
    operations = ["Add", "Sub", "Exch", "Min", "Max", "And", "Or", "Xor", "Inc", "Dec", "CAS"]
    lines = ["#include <cuda_bf16.h>", "#include <cuda_fp16.h>", "#include <cuda_runtime.h>"]
    for operation in operations:
        call = f"atomic{operation}(p, v{', v' if operation == 'CAS' else ''})"
        lines.append(f"template <class T> concept Has{operation} = requires(T* p, T v) {{ {call}; }};")
    for type_name, names in ATOMICS.items():
        for operation in operations:
            wanted = "" if operation in names.split() else "!"
            lines.append(f"static_assert({wanted}Has{operation}<{type_name}>);")
    assert_compiles(lines)


# cub and cooperative groups


def test_block_reduce(collectives, schedule):
    values = torch.arange(96, dtype=torch.float32) * 0.5
    out = torch.zeros(4)
    call(collectives.block_reduce, values, out)
    assert out[:3].tolist() == [values.sum(), values[:70].max(), 2 * values.sum()]
    assert out[3].isnan(), "only thread 0 may know the sum"


def test_block_scan(collectives, schedule):
    values = torch.randint(-9, 10, (100,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    out = torch.zeros(6, 100, dtype=torch.int32)
    call(collectives.block_scan, values, out)
    inclusive = values.cumsum(0)
    exclusive = inclusive - values
    total = int(values.sum())
    running_max = torch.cat([torch.tensor([5]), values[:-1].cummax(0).values.clamp(min=5)])
    assert torch.equal(out[0].long(), inclusive)
    assert torch.equal(out[1].long(), exclusive)
    assert torch.equal(out[2].long(), running_max)
    assert torch.equal(out[3].long(), exclusive + 7)
    assert torch.equal(out[4].long(), exclusive + 7 + total)
    assert (out[5] == total).all()


def test_block_load_and_store(collectives, schedule):
    values = torch.arange(90, dtype=torch.int32)
    scanned = torch.full((96,), -5, dtype=torch.int32)
    dealt = torch.zeros(96, dtype=torch.int32)
    call(collectives.block_items, values, scanned, dealt)
    assert torch.equal(scanned[:90].long(), values.cumsum(0))
    assert (scanned[90:] == -5).all()
    padded = torch.cat([values, torch.full((6,), -1, dtype=torch.int32)])
    assert torch.equal(dealt, padded.view(3, 32).T.reshape(-1))


def test_warp_collectives(collectives, schedule):
    values = torch.randint(-9, 10, (64,), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
    out = torch.zeros(4, 64, dtype=torch.int32)
    call(collectives.warps, values, out)
    assert torch.equal(out[0].view(8, 8)[:, 0].long(), values.view(8, 8).sum(1))
    assert (out[0].view(8, 8)[:, 1:] == -1).all(), "only the first lane may know the sum"
    assert torch.equal(out[1].view(2, 32)[:, 0].long(), values.view(2, 32)[:, :5].sum(1))
    parts = values.view(4, 16)
    assert torch.equal(out[2].view(4, 16).long(), parts.cumsum(1) - parts)
    lanes = torch.arange(32)
    assert torch.equal(out[3].view(2, 32), values.view(2, 32)[:, torch.where(lanes + 3 < 32, lanes + 3, lanes)])


def test_groups(collectives, schedule):
    values = torch.randint(-9, 10, (64,), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    out = torch.zeros(15, 64, dtype=torch.int32)
    call(collectives.groups, values, out)
    t = range(64)
    v = values.tolist()
    tile = [range(i - i % 8, i - i % 8 + 8) for i in t]
    label = [[k for k in range(i - i % 32, i - i % 32 + 32) if k % 3 == i % 3] for i in t]
    first_labels = {0: [0, 1, 2], 32: [2, 0, 1]}
    expected = [
        [sum(v[k] for k in tile[i]) for i in t],
        [v[i ^ 1] for i in t],
        [v[i + 2] if i % 8 < 6 else v[i] for i in t],
        [v[tile[i][3]] for i in t],
        [sum((k % 3 == 0) << k % 8 for k in tile[i]) for i in t],
        [(9 in tile[i]) * 10 + (i < 16) for i in t],
        [i % 32 // 8 * 100 + 40 + i % 8 for i in t],
        [sum(v[k] for k in tile[i] if k <= i) for i in t],
        [sum(v[k] for k in tile[i] if k < i) for i in t],
        [sum((c_remainder(v[k]) == c_remainder(v[i])) << k % 8 for k in tile[i]) for i in t],
        [40 + i % 4 for i in t],
        [len(label[i]) * 100 + label[i].index(i) for i in t],
        [max(v[k] for k in label[i]) for i in t],
        [first_labels[i - i % 32].index(i % 3) * 10 + 3 for i in t],
        [16000 + i % 32 // 2 * 10 + (i % 32 != 31) if i % 2 else -1 for i in t],
    ]
    for row, (actual, wanted) in enumerate(zip(out.tolist(), expected, strict=True)):
        assert actual == wanted, row


def c_remainder(value):
    """Give `value % 2` as C++ does: with the sign of the value."""
    return abs(value) % 2 * (1 if value >= 0 else -1)


# curand


@pytest.mark.parametrize("case", GPU["sequences"], ids=lambda case: hex(case["seed"]))
@pytest.mark.parametrize("generator", ["philox", "xorwow", "philox4"])
def test_curand_draws_what_a_gpu_draws(libraries, generator, case):
    expected = [int(word, 16) for word in case[generator].split()]
    words = (ctypes.c_uint32 * len(expected))()
    start = [ctypes.c_uint64(case[key]) for key in ("seed", "subsequence", "offset")]
    getattr(libraries, generator)(*start, words)
    # Of the numbers that pass through log, sin and cos, the last bits depend on the machine.
    floats, doubles = ([8, 9, 10, 11], []) if generator == "philox4" else ([9, 10, 11, 14, 15, 18], [12, 19, 21])
    for position in floats:
        assert as_float(words[position]) == pytest.approx(as_float(expected[position]), rel=1e-4, abs=1e-6)
    for position in doubles:
        pair = slice(position, position + 2)
        assert as_double(words[pair]) == pytest.approx(as_double(expected[pair]), rel=1e-12)
    inexact = {*floats, *doubles, *(position + 1 for position in doubles)}
    exact = [position for position in range(len(expected)) if position not in inexact]
    assert [words[position] for position in exact] == [expected[position] for position in exact]


def as_float(word):
    return struct.unpack("<f", struct.pack("<I", word))[0]


def as_double(words):
    return struct.unpack("<d", struct.pack("<2I", *words))[0]


def test_a_subsequence_for_each_element_is_normal(libraries):
    values = torch.empty(20_000)
    libraries.normals(ctypes.c_uint64(11), address(values), ctypes.c_long(20_000))
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert abs((values[1:] * values[:-1]).mean()) < 0.03


# cuBLAS


def sgemm(libraries, op_a, op_b, m, n, k, a, b, c, *, alpha=1.0, beta=0.0, lda=None):
    lda = lda or a.shape[1]
    scalars = [ctypes.c_float(alpha), address(a), lda, address(b), b.shape[1], ctypes.c_float(beta), address(c), m]
    return libraries.sgemm(op_a, op_b, m, n, k, *scalars)


@pytest.mark.parametrize("op_a", [0, 1])
@pytest.mark.parametrize("op_b", [0, 1])
def test_sgemm_is_column_major(libraries, op_a, op_b):
    m, n, k = 5, 7, 3
    # A column-major matrix is the transpose of the row-major one with the same memory.
    a = torch.randn((m, k) if op_a else (k, m))
    b = torch.randn((k, n) if op_b else (n, k))
    c = torch.randn(n, m)
    left, right = (a if op_a else a.T), (b if op_b else b.T)
    expected = 2 * (left.double() @ right.double()).T + 0.5 * c.double()
    assert sgemm(libraries, op_a, op_b, m, n, k, a, b, c, alpha=2.0, beta=0.5) == 0
    torch.testing.assert_close(c.double(), expected, rtol=1e-6, atol=1e-6)


def test_sgemm_does_not_read_what_beta_0_discards(libraries):
    a, b, c = torch.randn(3, 3), torch.randn(3, 3), torch.full((3, 3), float("nan"))
    assert sgemm(libraries, 0, 0, 3, 3, 3, a, b, c) == 0
    torch.testing.assert_close(c, b @ a)


def test_too_short_a_leading_dimension_is_an_invalid_value(libraries):
    a, b, c = torch.randn(3, 4), torch.randn(5, 3), torch.full((5, 4), 9.0)
    assert sgemm(libraries, 0, 0, 4, 5, 3, a, b, c, lda=3) == 7
    assert (c == 9).all()


def test_half_batches_with_float_results(libraries):
    a, b = torch.randn(2, 6, 4).half(), torch.randn(2, 5, 6).half()
    c = torch.empty(2, 5, 4)
    assert libraries.half_batches(4, 5, 6, address(a), address(b), address(c), 2) == 0
    torch.testing.assert_close(c, b.float() @ a.float())


def test_vector_functions(libraries):
    a, x, y = torch.randn(6, 4), torch.randn(6), torch.randn(6)
    before, product, out = y.clone(), torch.empty(4), torch.empty(3)
    libraries.vectors(4, 6, *map(address, [a, x, y, product, out]))
    torch.testing.assert_close(out, torch.stack([x @ before, x.norm(), x.abs().sum()]))
    torch.testing.assert_close(y, 2 * x + before)
    torch.testing.assert_close(product, a.T @ x)


def test_cublas_past_the_end_is_an_error_with_its_name(libraries):
    libraries.sgemm_past_the_end.restype = ctypes.c_char_p
    text = libraries.sgemm_past_the_end().decode()
    assert text.startswith("emulator[illegal-access]: kernel cublasSgemm ")
    assert text.endswith("just past the end of a cudaMalloc of 48 bytes")


# Arguments: the emulator's library, the tests' library, a library to cut, and the bytes that remain of it.
AFTER_A_CUT = """
import ctypes, os, sys, threading, torch
engine = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
libraries = ctypes.CDLL(sys.argv[2])
libraries.sgemm_past_the_end.restype = ctypes.c_char_p
ctypes.CDLL(sys.argv[3])
os.truncate(sys.argv[3], int(sys.argv[4]))
for _ in range(2):
    print(libraries.sgemm_past_the_end().decode(), flush=True)
loader = threading.Thread(target=ctypes.CDLL, args=["libutil.so.1"])
loader.start()
loader.join()
os._exit(0)  # the cut library's destructors are gone
"""


@pytest.mark.parametrize("kept", [0, 40, 0.98])
def test_a_library_whose_file_was_cut_costs_the_line_of_an_error(engine, libraries, tmp_path, kept):
    """libbacktrace maps the files of all loaded libraries, and would fault with a lock of the dynamic linker held."""
    cut = tmp_path / "cut.so"
    shutil.copyfile(_ctypes.__file__, cut)
    kept_bytes = int(kept if kept > 1 else kept * cut.stat().st_size)
    argv = [sys.executable, "-c", AFTER_A_CUT, engine._name, libraries._name, str(cut), str(kept_bytes)]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.endswith("just past the end of a cudaMalloc of 48 bytes") for line in lines)


# torch's headers


@pytest.mark.parametrize(("dtype", "number"), [(torch.float32, 6), (torch.float16, 5), (torch.bfloat16, 15)])
def test_a_dispatched_kernel(with_torch, dtype, number):
    values = torch.randn(100).to(dtype)
    expected = values + 1
    with_torch.add_one(address(values), 100, number)
    assert torch.equal(values, expected)


def test_torch_and_cuda_types_convert(with_torch):
    passed = (ctypes.c_int * 64)()
    count = with_torch.interoperation(passed)
    assert list(passed[:count]) == [1] * count
    assert count > 10


def test_torch_atomics_on_half(with_torch):
    with_torch.count_with_half_atomics.restype = ctypes.c_float
    assert with_torch.count_with_half_atomics() == 32.0


def test_bad_launches_are_reported_in_the_words_of_torch(with_torch):
    for function in (with_torch.bad_launch, with_torch.error_is_gone, with_torch.bad_cublas_call):
        function.restype = ctypes.c_char_p
    assert with_torch.bad_launch().startswith(b"CUDA error: invalid configuration argument\nCUDA kernel errors might")
    assert with_torch.error_is_gone() == b""
    assert with_torch.bad_cublas_call() == (
        b"CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSetStream(nullptr, nullptr)`"
    )
