"""Where the time goes: what the profiler's side gathers, what the judge makes of it, what ptxas says, the screen."""

import io
import os
from types import SimpleNamespace

import msgspec
import pytest
import torch
from msgspec.structs import replace
from rich.console import Console

from evaluator.compile.disassembly import VERBOSE, kernel_resources
from evaluator.cuda_source.symbols import Kernels
from evaluator.devices.memory import sealed_file
from evaluator.errors import UsageError
from evaluator.findings import Code, finding
from evaluator.grade_options import read_options
from evaluator.judge.exhibits import kernel_profile as judge_profiling
from evaluator.judge.exhibits.kernel_profile import described
from evaluator.judge.runners.build_service import BuildBudget, BuildService, ResourceUsageService, Served
from evaluator.judge.runners.jit_kernels import claimed_resources
from evaluator.protocol.frames import (
    BuildReply,
    BuildRequest,
    CompiledKernel,
    CompiledKernels,
    FromRunner,
    Profiled,
    SeenKernel,
)
from evaluator.protocol.standalone_call import PrebuiltLibraries
from evaluator.records import Counters, DeviceKind, KernelCounters, KernelResources, KernelUse, ProfilerKind, Profiling
from evaluator.report.card.card_screen import render_card
from evaluator.runner.instrumentation import profiled
from tests import cards

OWN = Kernels(device_code=True, names=["relu_kernel"])


def build_service(*kernels):
    made = ResourceUsageService(None, BuildBudget(1.0))
    made.device_code += kernels
    return made


def test_the_profiler_sees_one_call_of_three():
    calls = []
    found = profiled(lambda: calls.append(torch.randn(64, 64) @ torch.randn(64, 64)), gpu=False)
    assert len(calls) == 3
    seen = {each.name: each for each in found.kernels}
    assert seen["aten::mm"].launches == 1
    assert seen["aten::randn"].launches == 2
    assert all(each.time_us >= 0 for each in found.kernels)
    assert [each.time_us for each in found.kernels] == sorted((each.time_us for each in found.kernels), reverse=True)
    assert not any("ProfilerStep" in name for name in seen)


def test_own_kernels_are_told_by_what_was_built_and_by_the_text():
    names = [
        "relu_kernel(float const*, float*, int)",
        "void at::native::relu_kernel<4>(int)",
        "Memset (Device)",
        "tuned",
    ]
    answer = Profiled(kernels=[SeenKernel(name, 1, 10.0) for name in names], others=0)
    source = "import triton\n@triton.jit\ndef tuned(x):\n    pass\n"
    found = described(answer, build_service(OWN), gpu=True, source=source)
    assert [use.own for use in found.kernels] == [True, False, False, True]
    assert (found.own_share, found.launches, found.time_us) == (pytest.approx(1 / 2), 4, 40.0)


def test_resources_that_a_runner_reports_are_marked():
    reported = CompiledKernels(cache=b"", kernels=[CompiledKernel("k", registers=40, local_bytes=12, shared_bytes=99)])
    assert claimed_resources(reported) == [KernelResources("k", 40, 99, 12, 0, 0, claimed=True)]
    profiling = Profiling([], 0, 0, 0.0, None, claimed_resources(reported))
    stream = io.StringIO()
    render_card(cards.card(profiling=profiling), Console(file=stream, width=120))
    (shown,) = [line for line in stream.getvalue().splitlines() if "40 registers" in line]
    assert "99 bytes shared, 12 bytes of stack and spills" in shown
    assert "reported by the" in shown


def test_operations_belong_to_nobody():
    found = described(Profiled(kernels=[SeenKernel("aten::mm", 1, 10.0)], others=0), build_service(OWN), gpu=False)
    assert (found.kernels[0].own, found.own_share) == (None, None)


def test_what_a_runner_says_is_bounded_and_has_no_nan():
    kernels = [SeenKernel(f"k{number}", 2**31, 1e12) for number in range(250)] + [SeenKernel("n", 1, float("nan"))]
    found = described(Profiled(kernels=kernels, others=2**62), build_service(), gpu=True)
    assert len(found.kernels) == 32
    assert found.other_kernels == 2**62 + 250 - 32
    assert msgspec.json.decode(msgspec.json.encode(found), type=Profiling) == found


RIGHT = SeenKernel("k", 1, 1.0)


@pytest.mark.parametrize(
    "kernels",
    [[SeenKernel("k", -1, 1.0)], [SeenKernel("k", 1, -1.0)], [SeenKernel("k", 1, float("inf"))], [RIGHT] * 257],
)
def test_a_frame_that_is_no_profile_is_refused(kernels):
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(Profiled(kernels, 0)), type=FromRunner)


LOG = """\
step: split
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z11wide_kernelIfLi4EEvPKT_PS0_i' for 'sm_90a'
ptxas info    : Function properties for _Z11wide_kernelIfLi4EEvPKT_PS0_i
    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, 16384 bytes smem, 12 bytes cmem[2]
ptxas info    : Compile time = 9.603 ms
ptxas info    : Compiling entry function '_ZN2ns5plainEPf' for 'sm_90a'
ptxas info    : Function properties for _ZN2ns5plainEPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""


def test_ptxas_is_read():
    assert kernel_resources(LOG) == [
        KernelResources("wide_kernel", 255, 16384, 48, 40, 44),
        KernelResources("ns::plain", 12, 0, 0, 0, 0),
    ]


def test_a_log_of_something_else_has_no_kernels():
    assert kernel_resources("ptxas info    : Used 12 registers\nerror: Compiling entry function\n") == []
    forged = "".join(
        f"ptxas info : Compiling entry function 'k{n}' for\nptxas info : Used 1 registers\n" for n in range(999)
    )
    assert len(kernel_resources(forged)) == 64


def test_only_cuda_is_built_with_ptxas_made_to_talk():
    asked = []

    class Builder:
        def build(self, request):
            asked.append(request)
            raise RuntimeError("that is enough")

    for with_cuda in (True, False):
        with pytest.raises(RuntimeError, match="enough"):
            ResourceUsageService(Builder(), BuildBudget(1.0)).serve(
                BuildRequest(name="x", cpp_sources=["int f();"], with_cuda=with_cuda)
            )
    assert [request.extra_cuda_cflags for request in asked] == [[VERBOSE], []]


def test_what_a_desk_served_is_kept_and_still_to_be_read_by_the_runner(monkeypatch):
    """The runner reads the library from the descriptor's place, which keeping a copy must not move."""
    request = BuildRequest(name="x", cuda_sources=["void f();"], with_cuda=True)

    def serve(_, __):
        return BuildReply(ok=True, log="built"), sealed_file(b"a library")

    monkeypatch.setattr(BuildService, "serve", serve)
    made = build_service()
    reply, descriptor = made.serve(request)
    with os.fdopen(descriptor, "rb") as library:
        assert library.read() == b"a library"
    assert made.served == [Served(request, reply, b"a library")]


def test_prebuilt_libraries_answer_what_was_asked_before_and_nothing_else(tmp_path):
    asked = BuildRequest(name="x", cpp_sources=["int f();"], functions={"f": "f", "g": "g"})
    failed = BuildRequest(name="x", cpp_sources=["int f()"])
    libraries = PrebuiltLibraries(tmp_path / "libraries")
    libraries.put(asked, BuildReply(ok=True, log="built"), b"a library")
    libraries.put(failed, BuildReply(ok=False, log="expected ;"), None)
    libraries.send(replace(asked, functions={"g": "g", "f": "f"}))
    assert libraries.receive() == BuildReply(ok=True, log="built")
    (descriptor,) = libraries.take_descriptors()
    with os.fdopen(descriptor, "rb") as library:
        assert library.read() == b"a library"
    libraries.send(failed)
    assert libraries.receive() == BuildReply(ok=False, log="expected ;")
    libraries.send(replace(asked, extra_cflags=["-O3"]))
    assert not libraries.receive().ok
    with pytest.raises(TypeError, match="no judge is here"):
        libraries.send(BuildReply(ok=True, log=""))


PROFILE = Profiling(
    kernels=[KernelUse("relu_kernel(float const*)", 1, 90.0, True), KernelUse("void at::fill", 2, 10.0, False)],
    other_kernels=0,
    launches=3,
    time_us=100.0,
    own_share=0.9,
    resources=kernel_resources(LOG),
)


def screen(profile, **changes):
    buffer = io.StringIO()
    render_card(cards.card(profiling=profile, **changes), Console(file=buffer, width=80))
    return " ".join(buffer.getvalue().split())


def test_the_screen_says_where_the_time_goes():
    text = screen(PROFILE)
    assert "Profile 3 kernel runs, 100" in text
    assert "90 % of the time in own kernels reported by the submission's own process" in text
    assert "90 % relu_kernel(float const*) 90.0" in text
    assert "Compiled wide_kernel: 255 registers, 16384 bytes shared, spills 40 + 44 bytes" in text
    assert "ns::plain: 12 registers, 0 bytes shared, no spills" in text


@pytest.mark.parametrize(
    ("kind", "device", "said"),
    [
        ("torch", DeviceKind.EMULATED, "has no effect on emulated"),
        ("ncu", DeviceKind.CPU, "an NVIDIA GPU's counters, but this grade is on cpu"),
        ("ncu", DeviceKind.EMULATED, "an NVIDIA GPU's counters, but this grade is on emulated"),
    ],
)
def test_a_profile_needs_times_and_counters_a_gpu(kind, device, said):
    with pytest.raises(UsageError, match=said):
        read_options({"profile": kind, "device": device})
    assert read_options({"profile": kind, "device": "cuda"}).profile is ProfilerKind(kind)


COUNTERS = Counters(
    kernels=[
        KernelCounters("relu_kernel(float const*)", 1, 1490.0, 6.44e9, 4.32e12, 91.3, 87.2, own=True),
        KernelCounters("void at::fill", 12, 3.0, None, None, None, 55.5, own=False),
        KernelCounters("bare", 1, 2.0, None, None, None, None, own=False),
    ],
    other_kernels=4,
    launches=14,
    cut=False,
)


@pytest.mark.parametrize("kind", [None, *ProfilerKind])
def test_ncu_is_asked_only_where_it_was_wanted_and_adds_to_the_profile(kind, monkeypatch):
    monkeypatch.setattr(judge_profiling, "_torch_profile", lambda _, __: PROFILE)
    monkeypatch.setattr(judge_profiling, "counters", lambda _, __: COUNTERS)
    context = SimpleNamespace(
        build_services=SimpleNamespace(with_resource_usage=build_service),
        terms=SimpleNamespace(options=SimpleNamespace(profile=kind)),
    )
    wanted = COUNTERS if kind is ProfilerKind.NCU else None
    assert judge_profiling.profiling(context) == replace(PROFILE, counters=wanted)


def test_the_screen_says_what_the_hardware_counted():
    text = screen(replace(PROFILE, counters=COUNTERS))
    assert "Counters 14 kernel runs of a call that Nsight Compute watched" in text
    assert "1.49 ms own 6.44 GB at 4.32 TB/s, 91 % of peak, occupancy 87 % void" in text
    assert "in 12 occupancy 56 % bare" in text
    assert "2.00 µs not counted on this GPU and 4 others" in text
    assert "the first 14 kernel runs" in screen(replace(PROFILE, counters=replace(COUNTERS, cut=True)))


def test_a_line_of_counters_fits_into_80_columns():
    buffer = io.StringIO()
    full = replace(COUNTERS.kernels[0], bandwidth_percent=104.2, occupancy_percent=100.0, dram_bytes=1.23e6)
    render_card(
        cards.card(profiling=replace(PROFILE, counters=replace(COUNTERS, kernels=[full]))),
        Console(file=buffer, width=80),
    )
    (line,) = [line for line in buffer.getvalue().splitlines() if "of peak" in line]
    assert line.endswith("occupancy 100 %")


def test_hostile_names_are_shown_as_text():
    name = "\x1b[2J[red]kernel\u202e" * 50
    counted = replace(COUNTERS, kernels=[replace(COUNTERS.kernels[0], name=name)])
    resources = [replace(PROFILE.resources[0], name="\x1b]0;x\x07k")]
    text = screen(replace(PROFILE, kernels=[KernelUse(name, 1, 1.0, True)], resources=resources, counters=counted))
    assert not set(text) & set("\x1b\x07\u202e")


def test_what_was_not_profiled_or_counted_says_why_and_what_to_do():
    failed = finding(Code.NOT_PROFILED, "the profiled call failed: it raised")
    refused = finding(Code.COUNTERS_REFUSED, "the driver restricts this GPU's counters to administrators")
    text = screen(Profiling([], 0, 0, 0.0, None, [], failed, Counters([], 0, 0, cut=False, finding=refused)))
    assert "Profile the profiled call failed: it raised" in text
    assert "Counters the driver restricts this GPU's counters to administrators" in text
    assert "NVreg_RestrictProfilingToAdminUsers=0" in text
