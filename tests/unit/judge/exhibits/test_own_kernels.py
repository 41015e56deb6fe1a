"""The share of a submission's own kernels: out of which evidence, and what a policy makes of it."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.compile.binary_files import ImportedSymbols
from evaluator.cuda_source.symbols import (
    NONE,
    Kernels,
    is_own,
    joined,
    kernels_in_library,
    kernels_in_text,
    plain_name,
)
from evaluator.findings import Code
from evaluator.judge.exhibits.ablation import AblationResult, AblationResults
from evaluator.judge.exhibits.own_kernels import NeededWork, OwnKernelEvidence, not_known, own_kernels, too_little
from evaluator.judge.setup.operation_cost import Cost
from evaluator.protocol.frames import Counted, SourceFile
from evaluator.records import DeviceKind, Profiling, ShareBasis, Status

STRIPPED = Kernels(device_code=True, names=[])
OWN = Kernels(device_code=True, names=["relu_kernel"])


def counted(launches=0, library_calls=0, own_calls=0, mixed_calls=0, **work):
    return Counted(launches, library_calls, own_calls, mixed_calls, **work)


def evidence(device, kernels=OWN, libraries=1, source="", **more):
    return OwnKernelEvidence(device, kernels, libraries, source, **more)


def profile(own_share, time_us):
    return Profiling([], 0, 0, time_us, own_share, [])


NEEDED = AblationResults(AblationResult.WRONG, AblationResult.RIGHT)
DIED, DIED_WITHOUT_LIBRARY = (
    AblationResults(AblationResult.UNTOLD),
    AblationResults(AblationResult.WRONG, AblationResult.UNTOLD),
)
CALLS_RELU, CALLS_EMPTY = (
    ImportedSymbols(operations=["empty_like", "relu"]),
    ImportedSymbols(operations=["empty_memory_format"]),
)
CALLS_BESIDE = ImportedSymbols(beside=["dlsym"])
EMULATED, CPU, CUDA = DeviceKind.EMULATED, DeviceKind.CPU, DeviceKind.CUDA


@pytest.mark.parametrize(
    ("what", "basis", "low", "high"),
    [
        (evidence(EMULATED, NONE, 0), ShareBasis.BUILT, 0, 0),
        (evidence(EMULATED, NONE, 1, counted=counted(9)), ShareBasis.BUILT, 0, 0),
        (evidence(EMULATED, counted=counted(1)), ShareBasis.LAUNCHES, 1, 1),
        (evidence(EMULATED, counted=counted(0, 1)), ShareBasis.LAUNCHES, 0, 0),
        (evidence(EMULATED, counted=counted(0, 0)), ShareBasis.LAUNCHES, 0, 0),
        (evidence(EMULATED, counted=counted(1, 3)), ShareBasis.LAUNCHES, 0.25, 0.25),
        (evidence(EMULATED), ShareBasis.UNKNOWN, 0, 1),
        (evidence(EMULATED, NONE, 0, "import triton", counted=counted(1)), ShareBasis.LAUNCHES, 1, 1),
        (evidence(EMULATED, counted=counted(1), needs=NEEDED), ShareBasis.LAUNCHES, 1, 1),
        (
            evidence(EMULATED, counted=counted(1), needs=AblationResults(AblationResult.RIGHT)),
            ShareBasis.LEFT_OUT,
            0,
            0,
        ),
        (
            evidence(EMULATED, counted=counted(1), needs=AblationResults(AblationResult.WRONG, AblationResult.WRONG)),
            ShareBasis.REFUTED,
            0,
            0,
        ),
        (
            evidence(EMULATED, counted=counted(1, 1), needs=AblationResults(AblationResult.WRONG)),
            ShareBasis.LAUNCHES,
            0.5,
            0.5,
        ),
        (evidence(EMULATED, needs=AblationResults(AblationResult.RIGHT)), ShareBasis.LEFT_OUT, 0, 0),
        (
            evidence(
                CPU,
                NONE,
                counted=counted(own_calls=1000),
                needs=AblationResults(AblationResult.WRONG, AblationResult.WRONG),
            ),
            ShareBasis.REFUTED,
            0,
            0,
        ),
        (evidence(CPU, NONE, 0, needs=AblationResults(AblationResult.RIGHT)), ShareBasis.BUILT, 0, 0),
        (
            evidence(CUDA, profiling=profile(1.0, 1.0), needs=AblationResults(AblationResult.RIGHT)),
            ShareBasis.LEFT_OUT,
            0,
            0,
        ),
        (
            evidence(CUDA, profiling=profile(0.75, 1.0), needs=AblationResults(AblationResult.WRONG)),
            ShareBasis.PROFILE,
            0.75,
            0.75,
        ),
        (evidence(CPU, NONE, 0), ShareBasis.BUILT, 0, 0),
        (evidence(CPU, NONE, counted=counted(own_calls=1)), ShareBasis.CALLS, 1, 1),
        (evidence(CPU, NONE, counted=counted(0, 1, 1, 1)), ShareBasis.CALLS, 0, 0.5),
        (evidence(CPU, NONE, counted=counted(0, 1, 0)), ShareBasis.CALLS, 0, 0),
        (evidence(CPU, NONE), ShareBasis.UNKNOWN, 0, 1),
        (evidence(CUDA, NONE), ShareBasis.BUILT, 0, 0),
        (evidence(CUDA, NONE, 0, "import triton"), ShareBasis.UNKNOWN, 0, 1),
        (evidence(CUDA), ShareBasis.UNKNOWN, 0, 1),
        (evidence(CUDA, NONE, profiling=profile(1.0, 1000.0)), ShareBasis.BUILT, 0, 0),
        (evidence(CUDA, profiling=profile(0.75, 1000.0)), ShareBasis.PROFILE, 0.75, 0.75),
        (evidence(CUDA, profiling=profile(0.0, 1000.0)), ShareBasis.PROFILE, 0, 0),
        (evidence(CUDA, profiling=profile(None, 0.0)), ShareBasis.UNKNOWN, 0, 1),
        (evidence(CUDA, STRIPPED, profiling=profile(0.0, 1.0)), ShareBasis.PROFILE, 0, 1),
        (evidence(CUDA, source="import triton", profiling=profile(0.5, 1.0)), ShareBasis.PROFILE, 0.5, 1),
    ],
)
def test_a_share_comes_from_what_is_known(what, basis, low, high):
    own = own_kernels(what)
    assert (own.basis, own.share_low, own.share_high) == (basis, low, high)


@given(*[st.integers(0, 2**62)] * 4, st.sampled_from(DeviceKind), st.booleans())
def test_no_number_of_a_runners_makes_a_share_where_nothing_was_built(launches, library, own, mixed, device, built):
    claims = counted(launches, library, own, mixed)
    found = own_kernels(
        evidence(device, OWN if built else NONE, int(built), counted=claims, profiling=profile(1.0, 1.0))
    )
    assert 0 <= found.share_low <= found.share_high <= 1
    if not built:
        assert too_little(found, 0.001).finding.code == Code.TOO_LITTLE_OWN.value


@pytest.mark.parametrize(
    ("what", "basis", "low", "high"),
    [
        # A submission can die of what is left out; that is worth no more than what it can prove.
        (evidence(EMULATED, counted=counted(1), needs=DIED), ShareBasis.LAUNCHES, 0, 1),
        (evidence(EMULATED, counted=counted(1, 3), needs=DIED), ShareBasis.LAUNCHES, 0, 0.25),
        (evidence(EMULATED, counted=counted(1), needs=DIED_WITHOUT_LIBRARY), ShareBasis.LAUNCHES, 0, 1),
        (evidence(CPU, NONE, counted=counted(own_calls=1), needs=DIED), ShareBasis.CALLS, 0, 1),
        (evidence(CPU, NONE, counted=counted(0, 1), needs=DIED), ShareBasis.CALLS, 0, 0),
        (evidence(CUDA, profiling=profile(0.75, 1.0), needs=AblationResults()), ShareBasis.PROFILE, 0.75, 0.75),
        # What a library imports makes its functions mixed, unless the answer is right without the operations.
        (evidence(CPU, NONE, counted=counted(own_calls=1), imports=CALLS_RELU), ShareBasis.CALLS, 0, 1),
        (evidence(CPU, NONE, counted=counted(own_calls=1), imports=CALLS_RELU, needs=NEEDED), ShareBasis.CALLS, 1, 1),
        (evidence(CPU, NONE, counted=counted(own_calls=1), imports=CALLS_EMPTY), ShareBasis.CALLS, 1, 1),
        (evidence(CPU, NONE, counted=counted(0, 1, 1), imports=CALLS_RELU), ShareBasis.CALLS, 0, 0.5),
        (evidence(CPU, NONE, counted=counted(own_calls=1), imports=CALLS_BESIDE, needs=NEEDED), ShareBasis.CALLS, 0, 1),
        (evidence(EMULATED, counted=counted(1), imports=CALLS_RELU, needs=NEEDED), ShareBasis.LAUNCHES, 1, 1),
        (evidence(EMULATED, counted=counted(1), imports=CALLS_BESIDE, needs=NEEDED), ShareBasis.LAUNCHES, 0, 1),
        (
            evidence(CPU, NONE, counted=counted(own_calls=1), imports=ImportedSymbols(readable=False)),
            ShareBasis.CALLS,
            0,
            1,
        ),
        # Functions that are called past a module are neither counted nor left out.
        (evidence(CPU, NONE, counted=counted(), source="import ctypes"), ShareBasis.CALLS, 0, 1),
        (
            evidence(CPU, NONE, source="import ctypes", needs=AblationResults(AblationResult.RIGHT)),
            ShareBasis.UNKNOWN,
            0,
            1,
        ),
        (
            evidence(CPU, NONE, imports=ImportedSymbols(classes=True), needs=AblationResults(AblationResult.RIGHT)),
            ShareBasis.UNKNOWN,
            0,
            1,
        ),
        (
            evidence(EMULATED, source="import ctypes", needs=AblationResults(AblationResult.RIGHT)),
            ShareBasis.LEFT_OUT,
            0,
            0,
        ),
    ],
)
def test_what_cannot_be_told_is_at_least_none(what, basis, low, high):
    own = own_kernels(what)
    assert (own.basis, own.share_low, own.share_high) == (basis, low, high)


@given(
    *[st.integers(0, 2**62)] * 4,
    st.sampled_from([CPU, EMULATED]),
    st.sampled_from(AblationResult),
    st.sampled_from(AblationResult),
)
def test_no_failure_to_answer_raises_the_least_share(launches, library, own, mixed, device, kernels, without):
    claims = counted(launches, library, own, mixed)
    found = own_kernels(evidence(device, counted=claims, needs=AblationResults(kernels, without)))
    alone = own_kernels(evidence(device, counted=claims))
    assert found.share_low <= alone.share_low
    if AblationResult.UNTOLD in (kernels, without):
        assert found.share_low == 0


PRODUCT = NeededWork(Cost(flop=10**9, moved_bytes=10**7, operations=1), least_bytes=10**7)
"""A product of matrices."""
RELU = NeededWork(Cost(flop=0, moved_bytes=800, operations=1), least_bytes=800)
CHAIN = NeededWork(Cost(flop=0, moved_bytes=2400, operations=3), least_bytes=800, operations=frozenset(["relu", "mul"]))
"""Three operations, which one could do."""
COPY = NeededWork(Cost(flop=0, moved_bytes=0, operations=0), least_bytes=800)


@pytest.mark.parametrize(
    ("what", "needed", "basis", "low", "high"),
    [
        # Copies around PyTorch's operation, and decoys beside it.
        (evidence(CPU, NONE, counted=counted(0, 1, 2, moved_bytes=800)), RELU, ShareBasis.WORK, 0, 0),
        (
            evidence(EMULATED, counted=counted(3, 1, flop=10**9, moved_bytes=10**7)),
            PRODUCT,
            ShareBasis.WORK,
            0,
            0,
        ),
        (
            evidence(CUDA, counted=counted(0, 1, flop=10**9, moved_bytes=10**7), profiling=profile(0.9, 1.0)),
            PRODUCT,
            ShareBasis.WORK,
            0,
            0,
        ),
        # One operation of PyTorch's may stand for all three of the reference.
        (
            evidence(EMULATED, counted=counted(3, 1, moved_bytes=800, operations=["silu"])),
            CHAIN,
            ShareBasis.WORK,
            0,
            2 / 3,
        ),
        (
            evidence(EMULATED, counted=counted(3, 1, moved_bytes=800, operations=["relu"])),
            CHAIN,
            ShareBasis.WORK,
            2 / 3,
            2 / 3,
        ),
        # A product of PyTorch's, where the reference has none.
        (
            evidence(EMULATED, counted=counted(9, 1, flop=10**9, moved_bytes=600, operations=["mm"])),
            CHAIN,
            ShareBasis.WORK,
            0.25,
            0.75,
        ),
        # An operation on a hundredth of the values.
        (evidence(EMULATED, counted=counted(3, 1, moved_bytes=8)), RELU, ShareBasis.LAUNCHES, 0.75, 0.75),
        (evidence(CPU, NONE, counted=counted(0, 0, 1)), RELU, ShareBasis.CALLS, 1, 1),
        (
            evidence(EMULATED, counted=counted(1, 1, moved_bytes=80, operations=["mul"])),
            COPY,
            ShareBasis.LAUNCHES,
            0,
            0.5,
        ),
        # The work of NumPy and of NVIDIA's libraries is not seen.
        (evidence(CPU, NONE, counted=counted(0, 0, 1, exported_bytes=400)), RELU, ShareBasis.CALLS, 0, 1),
        (evidence(CPU, NONE, counted=counted(0, 0, 1, exported_bytes=40)), RELU, ShareBasis.CALLS, 1, 1),
        (
            evidence(EMULATED, counted=counted(3, 1, library_launches=1)),
            PRODUCT,
            ShareBasis.LAUNCHES,
            0,
            0.75,
        ),
    ],
)
def test_own_kernels_did_not_do_what_pytorch_computed(what, needed, basis, low, high):
    own = own_kernels(what._replace(needed=needed))
    assert own.basis is basis
    assert (own.share_low, own.share_high) == pytest.approx((low, high))


def test_a_rejection_says_what_pytorch_computed():
    own = own_kernels(evidence(EMULATED, counted=counted(3, 1, moved_bytes=600), needed=RELU))
    message = "own kernels do 25% of the work, 60% is required: PyTorch's operations do 75%, in FLOP and bytes"
    assert too_little(own, 0.6).finding.message == message


def test_a_policy_rejects_too_little_and_passes_nothing_that_is_not_known():
    half = own_kernels(evidence(EMULATED, counted=counted(1, 1)))
    assert too_little(half, 0.5) is None
    assert not_known(half, 0.5) is None
    rejected = too_little(half, 0.51)
    assert (rejected.status, rejected.finding.code) == (Status.REJECTED, Code.TOO_LITTLE_OWN.value)
    assert rejected.finding.message.endswith("a call has 1 launch of own kernels and 1 library operation")
    unknown = own_kernels(evidence(CUDA))
    assert too_little(unknown, 1.0) is None
    assert not_known(unknown, 0.01).status is Status.INCONCLUSIVE
    assert not_known(None, 0.01).finding.code == Code.OWN_SHARE_UNKNOWN.value
    assert (too_little(unknown, None), not_known(None, None)) == (None, None)
    between = own_kernels(evidence(CPU, NONE, counted=counted(0, 1, 1, 1)))
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
