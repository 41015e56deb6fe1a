"""The share of a submission's own kernels: out of which evidence, and what a policy makes of it."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.compile.binary_files import ImportedSymbols
from evaluator.cuda_source.symbols import NONE, Kernels, is_own, joined, kernels_in_library, kernels_in_text, plain_name
from evaluator.findings import Code
from evaluator.judge.exhibits.ablation import AblationResult, AblationResults
from evaluator.judge.exhibits.own_kernels import (
    NeededWork,
    OwnKernelEvidence,
    needed_work,
    not_known,
    own_kernels,
    too_little,
)
from evaluator.judge.setup.operation_cost import Cost
from evaluator.protocol.frames import Counted, SourceFile
from evaluator.records import DeviceKind, Profiling, ShareBasis, Status
from tests.unit.references import reference

STRIPPED = Kernels(device_code=True, names=[])
OWN = Kernels(device_code=True, names=["relu_kernel"])
RIGHT, WRONG, UNTOLD = AblationResult.RIGHT, AblationResult.WRONG, AblationResult.UNTOLD
BUILT, LAUNCHES, CALLS, PROFILE = ShareBasis.BUILT, ShareBasis.LAUNCHES, ShareBasis.CALLS, ShareBasis.PROFILE
LEFT_OUT, REFUTED, WORK, UNKNOWN = ShareBasis.LEFT_OUT, ShareBasis.REFUTED, ShareBasis.WORK, ShareBasis.UNKNOWN


def counted(launches=0, library_calls=0, own_calls=0, mixed_calls=0, **work):
    return Counted(launches, library_calls, own_calls, mixed_calls, **work)


def evidence(device, *counts, kernels=OWN, libraries=1, source="", without=(), profile=None, **more):
    """Make evidence with `counts` of a call (none: no count), and a `profile` of own share and time."""
    return OwnKernelEvidence(
        device,
        kernels,
        libraries,
        source,
        counted=counts[0] if counts and isinstance(counts[0], Counted) else counted(*counts) if counts else None,
        profiling=None if profile is None else Profiling([], 0, 0, profile[1], profile[0], []),
        needs=AblationResults(*without),
        **more,
    )


def emulated(*counts, **more):
    return evidence(DeviceKind.EMULATED, *counts, **more)


def cpu(*counts, **more):
    return evidence(DeviceKind.CPU, *counts, **({"kernels": NONE} | more))


def cuda(*counts, **more):
    return evidence(DeviceKind.CUDA, *counts, **more)


NEEDED = (WRONG, RIGHT)
CALLS_RELU = ImportedSymbols(operations=["empty_like", "relu"])
CALLS_EMPTY = ImportedSymbols(operations=["empty_memory_format"])
CALLS_BESIDE = ImportedSymbols(beside=["dlsym"])
PRODUCT = NeededWork(Cost(flop=10**9, moved_bytes=10**7, operations=1), least_bytes=10**7)
"""A product of matrices."""
RELU = NeededWork(Cost(flop=0, moved_bytes=800, operations=1), least_bytes=800)
CHAIN = NeededWork(Cost(flop=0, moved_bytes=2400, operations=3), least_bytes=800, operations=frozenset(["relu", "mul"]))
"""Three operations, which one could do."""
COPY = NeededWork(Cost(flop=0, moved_bytes=0, operations=0), least_bytes=800)
MM = {"flop": 10**9, "moved_bytes": 10**7}


@pytest.mark.parametrize(
    ("what", "basis", "low", "high"),
    [
        (emulated(kernels=NONE, libraries=0), BUILT, 0, 0),
        (emulated(9, kernels=NONE), BUILT, 0, 0),
        (emulated(1), LAUNCHES, 1, 1),
        (emulated(0, 1), LAUNCHES, 0, 0),
        (emulated(0, 0), LAUNCHES, 0, 0),
        (emulated(1, 3), LAUNCHES, 0.25, 0.25),
        (emulated(), UNKNOWN, 0, 1),
        (emulated(1, kernels=NONE, libraries=0, source="import triton"), LAUNCHES, 1, 1),
        (emulated(1, without=NEEDED), LAUNCHES, 1, 1),
        (emulated(1, without=(RIGHT,)), LEFT_OUT, 0, 0),
        (emulated(1, without=(WRONG, WRONG)), REFUTED, 0, 0),
        (emulated(1, 1, without=(WRONG,)), LAUNCHES, 0.5, 0.5),
        (emulated(without=(RIGHT,)), LEFT_OUT, 0, 0),
        (cpu(0, 0, 1000, without=(WRONG, WRONG)), REFUTED, 0, 0),
        (cpu(libraries=0, without=(RIGHT,)), BUILT, 0, 0),
        (cuda(profile=(1.0, 1.0), without=(RIGHT,)), LEFT_OUT, 0, 0),
        (cuda(profile=(0.75, 1.0), without=(WRONG,)), PROFILE, 0.75, 0.75),
        (cpu(libraries=0), BUILT, 0, 0),
        (cpu(0, 0, 1), CALLS, 1, 1),
        (cpu(0, 1, 1, 1), CALLS, 0, 0.5),
        (cpu(0, 1, 0), CALLS, 0, 0),
        (cpu(), UNKNOWN, 0, 1),
        (cuda(kernels=NONE), BUILT, 0, 0),
        (cuda(kernels=NONE, libraries=0, source="import triton"), UNKNOWN, 0, 1),
        (cuda(), UNKNOWN, 0, 1),
        (cuda(kernels=NONE, profile=(1.0, 1000.0)), BUILT, 0, 0),
        (cuda(profile=(0.75, 1000.0)), PROFILE, 0.75, 0.75),
        (cuda(profile=(0.0, 1000.0)), PROFILE, 0, 0),
        (cuda(profile=(None, 0.0)), UNKNOWN, 0, 1),
        (cuda(kernels=STRIPPED, profile=(0.0, 1.0)), PROFILE, 0, 1),
        (cuda(source="import triton", profile=(0.5, 1.0)), PROFILE, 0.5, 1),
        # The submission dies without the omitted kernels: no more evidence than a forged count.
        (emulated(1, without=(UNTOLD,)), LAUNCHES, 0, 1),
        (emulated(1, 3, without=(UNTOLD,)), LAUNCHES, 0, 0.25),
        (emulated(1, without=(WRONG, UNTOLD)), LAUNCHES, 0, 1),
        (cpu(0, 0, 1, without=(UNTOLD,)), CALLS, 0, 1),
        (cpu(0, 1, without=(UNTOLD,)), CALLS, 0, 0),
        # Imported symbols make a library's functions mixed, unless the answer is right without PyTorch's operations.
        (cpu(0, 0, 1, imports=CALLS_RELU), CALLS, 0, 1),
        (cpu(0, 0, 1, imports=CALLS_RELU, without=NEEDED), CALLS, 1, 1),
        (cpu(0, 0, 1, imports=CALLS_EMPTY), CALLS, 1, 1),
        (cpu(0, 1, 1, imports=CALLS_RELU), CALLS, 0, 0.5),
        (cpu(0, 0, 1, imports=CALLS_BESIDE, without=NEEDED), CALLS, 0, 1),
        (emulated(1, imports=CALLS_RELU, without=NEEDED), LAUNCHES, 1, 1),
        (emulated(1, imports=CALLS_BESIDE, without=NEEDED), LAUNCHES, 0, 1),
        (cpu(0, 0, 1, imports=ImportedSymbols(readable=False)), CALLS, 0, 1),
        # Functions that are called past a module are neither counted nor left out.
        (cpu(0, source="import ctypes"), CALLS, 0, 1),
        (cpu(source="import ctypes", without=(RIGHT,)), UNKNOWN, 0, 1),
        (cpu(imports=ImportedSymbols(classes=True), without=(RIGHT,)), UNKNOWN, 0, 1),
        (emulated(source="import ctypes", without=(RIGHT,)), LEFT_OUT, 0, 0),
        # Copies around PyTorch's operation, and decoys beside it.
        (cpu(counted(0, 1, 2, moved_bytes=800), needed=RELU), WORK, 0, 0),
        (emulated(counted(3, 1, **MM), needed=PRODUCT), WORK, 0, 0),
        (cuda(counted(0, 1, **MM), profile=(0.9, 1.0), needed=PRODUCT), WORK, 0, 0),
        # One operation of PyTorch's may stand for all three of the reference.
        (emulated(counted(3, 1, moved_bytes=800, operations=["silu"]), needed=CHAIN), WORK, 0, 2 / 3),
        (emulated(counted(3, 1, moved_bytes=800, operations=["relu"]), needed=CHAIN), WORK, 2 / 3, 2 / 3),
        # A product of PyTorch's, where the reference has none.
        (emulated(counted(9, 1, flop=10**9, moved_bytes=600, operations=["mm"]), needed=CHAIN), WORK, 0.25, 0.75),
        # An operation on a hundredth of the values.
        (emulated(counted(3, 1, moved_bytes=8), needed=RELU), LAUNCHES, 0.75, 0.75),
        (cpu(0, 0, 1, needed=RELU), CALLS, 1, 1),
        (emulated(counted(1, 1, moved_bytes=80, operations=["mul"]), needed=COPY), LAUNCHES, 0, 0.5),
        # The work of NumPy and of NVIDIA's libraries is not seen.
        (cpu(counted(0, 0, 1, exported_bytes=400), needed=RELU), CALLS, 0, 1),
        (cpu(counted(0, 0, 1, exported_bytes=40), needed=RELU), CALLS, 1, 1),
        (emulated(counted(3, 1, library_launches=1), needed=PRODUCT), LAUNCHES, 0, 0.75),
    ],
)
def test_a_share_comes_from_what_is_known(what, basis, low, high):
    own = own_kernels(what)
    assert own.basis is basis
    assert (own.share_low, own.share_high) == pytest.approx((low, high))


@given(*[st.integers(0, 2**62)] * 4, st.sampled_from(DeviceKind), st.booleans())
def test_no_number_of_a_runners_makes_a_share_where_nothing_was_built(launches, library, own, mixed, device, built):
    counts, kernels = (launches, library, own, mixed), OWN if built else NONE
    found = own_kernels(evidence(device, *counts, kernels=kernels, libraries=int(built), profile=(1.0, 1.0)))
    assert 0 <= found.share_low <= found.share_high <= 1
    if not built:
        assert too_little(found, 0.001).finding.code == Code.TOO_LITTLE_OWN.value


@given(
    *[st.integers(0, 2**62)] * 4,
    st.sampled_from([DeviceKind.CPU, DeviceKind.EMULATED]),
    *[st.sampled_from(AblationResult)] * 2,
)
def test_no_failure_to_answer_raises_the_least_share(launches, library, own, mixed, device, kernels, without):
    claims = (launches, library, own, mixed)
    found = own_kernels(evidence(device, *claims, without=(kernels, without)))
    assert found.share_low <= own_kernels(evidence(device, *claims)).share_low
    if UNTOLD in (kernels, without):
        assert found.share_low == 0


def test_a_rejection_says_what_pytorch_computed():
    own = own_kernels(emulated(counted(3, 1, moved_bytes=600), needed=RELU))
    message = "own kernels do 25% of the work, 60% is required: PyTorch's operations do 75%, in FLOP and bytes"
    assert too_little(own, 0.6).finding.message == message


def test_a_policy_rejects_too_little_and_passes_nothing_that_is_not_known():
    half = own_kernels(emulated(1, 1))
    assert too_little(half, 0.5) is None
    assert not_known(half, 0.5) is None
    rejected = too_little(half, 0.51)
    assert (rejected.status, rejected.finding.code) == (Status.REJECTED, Code.TOO_LITTLE_OWN.value)
    assert rejected.finding.message.endswith("a call has 1 launch of own kernels and 1 library operation")
    unknown = own_kernels(cuda())
    assert too_little(unknown, 1.0) is None
    assert not_known(unknown, 0.01).status is Status.INCONCLUSIVE
    assert not_known(None, 0.01).finding.code == Code.OWN_SHARE_UNKNOWN.value
    assert (too_little(unknown, None), not_known(None, None)) == (None, None)
    between = own_kernels(cpu(0, 1, 1, 1))
    assert too_little(between, 0.5) is None
    assert not_known(between, 0.5) is not None


def test_kernels_are_read_from_text():
    text = (
        "__global__ void k(int) {}\n// __global__ void c() {}\ntemplate <class T> __global__ void t(T) {}\nvoid f() {}"
    )
    assert kernels_in_text([SourceFile("a.cu", text)]).names == ["k", "t"]
    assert kernels_in_text([SourceFile("a.cpp", 'auto s = "__global__ void k() {}";')]) == NONE


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Make a library with what nvcc leaves in one: a section of device code, and a stub for each kernel."""
    folder = tmp_path_factory.mktemp("library")
    text = """
        __attribute__((section(".nv_fatbin"), used)) static const char fatbin[16] = "device code";
        void __device_stub__Z11relu_kernelPKfPfl() {}
        extern "C" void __device_stub__plain() {}
        void __device_stub__ZN2ns4kernIfEEvPT_() {}
    """
    (folder / "a.cpp").write_text(text)
    command = ["g++", "-shared", "-fPIC", "-o", str(folder / "a.so"), str(folder / "a.cpp")]
    subprocess.run(command, check=True)
    subprocess.run(["g++", "-s", *command[1:3], "-o", str(folder / "bare.so"), str(folder / "a.cpp")], check=True)
    (folder / "none.cpp").write_text("int f() { return 1; }")
    subprocess.run([*command[:3], "-o", str(folder / "none.so"), str(folder / "none.cpp")], check=True)
    return folder


def test_kernels_are_read_from_a_library(library):
    found = kernels_in_library((library / "a.so").read_bytes())
    assert found.device_code
    assert found.names == ["ns::kern", "plain", "relu_kernel"]
    assert kernels_in_library((library / "none.so").read_bytes()) == NONE
    assert kernels_in_library(b"no library .nv_fatbin") == NONE
    assert kernels_in_library((library / "bare.so").read_bytes()).device_code
    assert kernels_in_library(b"\x7fELF\0__nv_relfatbin\0").device_code
    assert joined([found, NONE]).names == found.names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"_Z33__device_stub__Z11relu_kernelPKfPflPKfPfl", "relu_kernel"),
        (b"99_Z33__device_stub__Z11relu_kernelPKfPflPKfPfl", "relu_kernel"),
        (b"_Z20__device_stub__plainPf", "plain"),
        (b"__device_stub__plain", "plain"),
        (b"\x0020__device_stub__plainPf", "plain"),
    ],
)
def test_a_stub_is_read_with_the_length_that_stands_before_it(text, name):
    for before in (b"", b"\0", bytes(3)):
        assert kernels_in_library(b"\x7fELF.nv_fatbin\0" + before + text + b"\0").names == [name]


@pytest.mark.parametrize(
    ("profiled", "own"),
    [
        ("relu_kernel(float const*, float*, long)", True),
        ("void relu_kernel<float, 4>(float*)", True),
        ("_Z11relu_kernelPKfPfl", True),
        ("void at::native::relu_kernel<4>(int)", False),
        ("other(float*)", False),
        ("ns::relu_kernel(float*)", False),
        ("", False),
    ],
)
def test_a_profiled_kernel_is_own_by_its_whole_name(profiled, own):
    assert is_own(profiled, OWN) is own


@given(st.text())
def test_any_name_can_be_asked_about(name):
    assert isinstance(plain_name(name), str)
    assert is_own(name, NONE) is False


X = 4 * 32 * 64
"""Bytes of the input."""


@pytest.mark.parametrize(
    ("output", "changes", "flop", "moved_bytes", "operations", "least_bytes"),
    [
        ("torch.relu(x)", {}, 0, 2 * X, 1, 2 * X),
        ("torch.relu(x * 2).t().contiguous()", {}, 0, 4 * X, 2, 2 * X),
        ("x.t().contiguous()", {}, 0, 0, 0, 2 * X),
        ("x @ x.t()", {}, 2 * 32 * 64 * 32, 2 * X + 4 * 32 * 32, 1, X + 4 * 32 * 32),
        # Forward, backward, the gradient of the output, and the gradient of the input.
        ("torch.relu(x)", {"backward": True}, 0, 5 * X, 2, 4 * X),
    ],
)
def test_the_work_of_a_reference(output, changes, flop, moved_bytes, operations, least_bytes):
    needed = needed_work(reference(output, **changes))
    assert needed.cost == (flop, moved_bytes, operations)
    assert needed.least_bytes == least_bytes


def test_the_operations_of_a_reference_have_names():
    assert needed_work(reference("torch.relu_(x + 1).t()")).operations == {"add", "relu"}
