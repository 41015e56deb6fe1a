"""Where the time goes: what the profiler's side gathers, what the judge makes of it, what ptxas says, the screen."""

import io

import msgspec
import pytest
import torch
from msgspec.structs import replace
from rich.console import Console

from evaluator.build.artefact import Kernels
from evaluator.build.cuda_steps import steps
from evaluator.build.prepared import prepare
from evaluator.build.resources import VERBOSE, resources
from evaluator.errors import UsageError
from evaluator.findings import Code, finding
from evaluator.frames import BuildRequest, Done, FromRunner, Profiled, Scalar, SeenKernel
from evaluator.judge.profiling import described
from evaluator.judge.resource_desk import ResourceDesk
from evaluator.records import DeviceKind, KernelResources, KernelUse, Profiling
from evaluator.report.terminal import render_card
from evaluator.request import _profile
from evaluator.runner.profiling import profiled
from tests import cards
from tests.cuda_builds import ARCHITECTURE, has_nvcc, local_tool, stand_ins

OWN = Kernels(device_code=True, names=["relu_kernel"])


def desk(*kernels):
    made = ResourceDesk(None, 1.0)
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


def test_own_kernels_are_told_by_what_was_built():
    names = ["relu_kernel(float const*, float*, int)", "void at::native::relu_kernel<4>(int)", "Memset (Device)"]
    answer = Profiled(kernels=[SeenKernel(name, 1, 10.0) for name in names], others=0)
    found = described(answer, desk(OWN), gpu=True)
    assert [use.own for use in found.kernels] == [True, False, False]
    assert (found.own_share, found.launches, found.time_us) == (pytest.approx(1 / 3), 3, 30.0)


def test_operations_belong_to_nobody():
    found = described(Profiled(kernels=[SeenKernel("aten::mm", 1, 10.0)], others=0), desk(OWN), gpu=False)
    assert (found.kernels[0].own, found.own_share) == (None, None)


def test_what_a_runner_says_is_bounded_and_has_no_nan():
    kernels = [SeenKernel(f"k{number}", 2**31, 1e12) for number in range(250)] + [SeenKernel("n", 1, float("nan"))]
    found = described(Profiled(kernels=kernels, others=2**62), desk(), gpu=True)
    assert len(found.kernels) == 32
    assert found.other_kernels == 2**62 + 250 - 32
    assert msgspec.json.decode(msgspec.json.encode(found), type=Profiling) == found


@pytest.mark.parametrize(
    "kernel",
    [
        {"name": "k" * 5000, "launches": 1, "time_us": 1.0},
        {"name": "k", "launches": -1, "time_us": 1.0},
        {"name": "k", "launches": 1, "time_us": -1.0},
        {"name": "k", "launches": 1, "time_us": float("inf")},
        {"name": "k", "launches": 1.5, "time_us": 1.0},
    ],
)
def test_a_frame_that_is_no_profile_is_refused(kernel):
    body = {"type": "Profiled", "kernels": [{"type": "SeenKernel", **kernel}], "others": 0}
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=FromRunner)
    right = {"type": "SeenKernel", "name": "k", "launches": 1, "time_us": 1.0}
    good = msgspec.msgpack.encode(body | {"kernels": [right]})
    assert msgspec.msgpack.decode(good, type=FromRunner) == Profiled([SeenKernel("k", 1, 1.0)], 0)
    many = msgspec.msgpack.encode(body | {"kernels": [right] * 257})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(many, type=FromRunner)


def test_another_answer_where_a_profile_belongs_is_out_of_place():
    """The union of frames holds it, so the judge must look: `Session.out_of_place` rejects it."""
    assert not isinstance(Done(index=0, outputs=Scalar(value=None)), Profiled)


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
    assert resources(LOG) == [
        KernelResources("wide_kernel", 255, 16384, 48, 40, 44),
        KernelResources("ns::plain", 12, 0, 0, 0, 0),
    ]


def test_a_log_of_something_else_has_no_kernels():
    assert resources("ptxas info    : Used 12 registers\nerror: Compiling entry function\n") == []
    forged = "".join(
        f"ptxas info : Compiling entry function 'k{n}' for\nptxas info : Used 1 registers\n" for n in range(999)
    )
    assert len(resources(forged)) == 64


def test_only_cuda_is_built_with_ptxas_made_to_talk():
    asked = []

    class Builder:
        def build(self, request):
            asked.append(request)
            raise RuntimeError("that is enough")

    for with_cuda in (True, False):
        with pytest.raises(RuntimeError, match="enough"):
            ResourceDesk(Builder(), 1.0).serve(BuildRequest(name="x", cpp_sources=["int f();"], with_cuda=with_cuda))
    assert [request.extra_cuda_cflags for request in asked] == [[VERBOSE], []]


@pytest.mark.slow
@pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
def test_every_way_of_building_lets_ptxas_be_heard(tmp_path):
    cuda = """
__global__ void relu_kernel(const float* x, float* y, int n) {
    __shared__ float tile[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = fmaxf(tile[255 - threadIdx.x], 0.0f);
}
torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    relu_kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
    request = BuildRequest(
        name="ext",
        cpp_sources=["torch::Tensor relu(torch::Tensor x);"],
        cuda_sources=[cuda],
        functions={"relu": "relu"},
        with_cuda=True,
        extra_cuda_cflags=[VERBOSE],
    )
    tool = local_tool(stand_ins(tmp_path / "stand-ins"))
    assert prepare(tool, tmp_path) is not None
    ways = steps(request, ARCHITECTURE, tmp_path).steps
    assert len(ways) == 3
    for step in ways:
        found = {each.name: each for each in resources(step.build(tool, 600.0).result.output)}
        assert found["relu_kernel"].shared_bytes == 1024, step.name
        assert found["relu_kernel"].registers > 0


PROFILE = Profiling(
    kernels=[KernelUse("relu_kernel(float const*)", 1, 90.0, True), KernelUse("void at::fill", 2, 10.0, False)],
    other_kernels=0,
    launches=3,
    time_us=100.0,
    own_share=0.9,
    resources=resources(LOG),
)


def screen(profile, **changes):
    buffer = io.StringIO()
    render_card(cards.card(profiling=profile, **changes), Console(file=buffer, width=80))
    return " ".join(buffer.getvalue().split())


def test_the_screen_says_where_the_time_goes():
    text = screen(PROFILE)
    assert "Profile 3 kernel runs, 100" in text
    assert "90 % of it in own kernels as its own process says" in text
    assert "90 % relu_kernel(float const*) 90.0" in text
    assert "Compiled wide_kernel: 255 registers, 16384 bytes shared, spills 40 + 44 bytes" in text
    assert "ns::plain: 12 registers, 0 bytes shared, no spills" in text


def test_hostile_names_are_shown_as_text():
    use = KernelUse("\x1b[2J[red]kernel\u202e" * 50, 1, 1.0, True)
    text = screen(replace(PROFILE, kernels=[use], resources=[replace(PROFILE.resources[0], name="\x1b]0;x\x07k")]))
    assert not set(text) & set("\x1b\x07\u202e")


def test_what_was_not_profiled_says_why():
    why = finding(Code.NOT_PROFILED, "the profiled call failed: it raised")
    assert "Profile the profiled call failed: it raised" in screen(Profiling([], 0, 0, 0.0, None, [], why))


def test_the_emulated_device_has_no_times_to_profile():
    with pytest.raises(UsageError, match="says nothing on emulated"):
        _profile(DeviceKind.EMULATED, wanted=True)
