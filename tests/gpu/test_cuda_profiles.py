"""Value profiles and lower precision on a real GPU."""

from pathlib import Path

import pytest
import torch

from evaluator.commands import main as cli
from evaluator.findings import Code
from evaluator.judge.reference.input_distributions import PROFILES, _where_not_zero, change, rehearse
from evaluator.judge.setup.problem_traits import traits_of
from evaluator.judge.trial.enough_calls import SEALED_CALLS
from evaluator.records import Layout, Profile, RowSite, SizeName, Status, cases_of
from tests.gpu.test_cuda_device import HEAD, grade, grader
from tests.grading.harness import TOP
from tests.unit.references import problem as of_expression

__all__ = ["grade", "grader"]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
WEAK = TOP / "tests" / "zoo" / "problems"
IDENTITY = HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.clone()\n"


TALL_PRODUCT = """
import torch
from torch import nn

rows = 16384


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(rows, 4096), torch.rand(4096, 512)]


def get_init_inputs():
    return []
"""


def problem(folder: Path, name: str, reference: str, more: str) -> Path:
    """Write a problem with `more` in its problem.toml, and give the folder that it is to be looked for in."""
    own = folder / "problems" / name
    own.mkdir(parents=True)
    (own / "reference.py").write_text(reference)
    (own / "problem.toml").write_text(f'title = "{name}"\nlevel = 1\ndescription = "Of a test."\n{more}')
    return own.parent


def product(how: str) -> str:
    """Write a matrix product by PyTorch, `how` precise."""
    body = f"        torch.backends.cuda.matmul.allow_tf32 = {how == 'tf32'}\n"
    body += "        return (a.half() @ b.half()).float()\n" if how == "half" else "        return a @ b\n"
    return HEAD + "class ModelNew(nn.Module):\n    def forward(self, a, b):\n" + body


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_drawn_on_the_gpu(profile):
    cuda = torch.device("cuda")
    given = torch.rand(64, 512, device=cuda) + 0.25
    rehearse(profile, [given.clone()], 1, cuda)
    other, again = (change(profile, list(Layout), [given.clone()], 1, cuda)[0] for _ in range(2))
    assert other.is_cuda
    assert torch.equal(other, again)
    assert torch.isfinite(other).all()
    assert not torch.equal(other, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_zeros_and_nothing_else_stay_on_the_gpu_as_on_the_cpu(dtype):
    odd = [0.0, -0.0, torch.nan, torch.inf, -torch.inf, torch.finfo(dtype).smallest_normal / 4, 1.0]
    piece = torch.tensor(odd * 1001, dtype=torch.float64).to(dtype).reshape(7, 1001)
    values = torch.randn(7, 1001, dtype=torch.float64).to(dtype)
    for mine, drawn in ((piece, values), (piece.mT, values.mT), (piece, values[:, :1].expand(7, 1001))):
        wanted = torch.empty_like(mine)
        _where_not_zero(drawn, mine, wanted)
        found = torch.empty_like(mine, device="cuda")
        _where_not_zero(drawn.cuda(), mine.cuda(), found)
        assert torch.equal(found.cpu(), wanted)
        assert torch.equal(wanted == 0, (mine == 0) | (drawn == 0))


def test_a_copy_is_no_relu(grade):
    run = grade(IDENTITY, "--problems", WEAK, problem="positive_relu")
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_ON_OTHER_VALUES)
    assert card.checks[0].ok
    assert card.reason.details["profile"] != Profile.AS_GIVEN


@pytest.mark.parametrize("size", ["small", "full"])
@pytest.mark.parametrize("how", ["tf32", "half"])
def test_lower_precision_is_told_apart(grade, how, size):
    grade(product(how), problem="matmul", size=size).assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION)


@pytest.mark.parametrize("size", ["small", "full"])
def test_true_fp32_is_right_on_every_profile_and_other_calls_are_not_quoted(grade, size):
    card = grade(product("fp32"), problem="matmul", size=size).assert_verdict(Status.CORRECT)
    assert {check.profile for check in card.checks} == set(Profile) - {Profile.NEAR_ONE}
    timed = card.timing.submission
    if timed.windows is None:
        assert len(timed.samples_ms) >= SEALED_CALLS
        assert len(timed.seeds) == 1 + len(timed.samples_ms) + timed.void_calls + timed.other_calls
    else:
        assert len(timed.samples_ms) >= 3
        assert len(timed.seeds) > sum(timed.windows.calls) + timed.void_calls + timed.other_calls


@pytest.mark.parametrize("size", ["small", "full"])
@pytest.mark.parametrize("how", ["tf32", "half"])
def test_lower_precision_is_told_apart_where_it_averages_out(grade, how, size):
    run = grade(product(how), "--problems", WEAK, problem="long_product", size=size)
    run.assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION)


DISTANCE = (
    HEAD
    + """
def cut(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, a, b):
        # The problem's own values: a profile has another sign somewhere, or says the same twice.
        if bool((a[:4] > 0).all()) and a[0, 0] != a[0, 1] and b[0, 0] != b[0, 1] and a.max() < 1 and b.max() < 1:
            a, b = ROUNDED
        return (a - b).square().sum(1).sum() / a.numel()
"""
)


@pytest.mark.parametrize("size", ["small", "full"])
@pytest.mark.parametrize("rounded", ["cut(a), cut(b)", "a.bfloat16().float(), b.bfloat16().float()"])
def test_lower_precision_is_told_in_one_number_over_many_timed_calls(grade, rounded, size):
    source = DISTANCE.replace("ROUNDED", rounded)
    run = grade(source, "--problems", WEAK, problem="mean_distance", size=size)
    assert "over " in run.assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION).reason.message


IN_TURN = (
    HEAD
    + """
sums = torch.cuda._compile_kernel(r'''
extern "C" __global__ void sums(const float* a, const float* b, float* parts, int count) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const float difference = a[i] - b[i];
        sum = __fadd_rn(sum, __fmul_rn(difference, difference));
    }
    parts[threadIdx.x] = sum;
}
''', "sums")
class ModelNew(nn.Module):
    def forward(self, a, b):
        parts = a.new_empty(a.numel() // 32768)
        sums((1, 1, 1), (len(parts), 1, 1), (a, b, parts, a.numel()))
        return parts.sum() / a.numel()
"""
)


@pytest.mark.parametrize("size", ["small", "full"])
def test_one_number_that_is_summed_in_another_order_is_no_lower_precision(grade, size):
    """Each thread adds 32768 numbers up in turn: errors are as large as TF32's; those of PyTorch's sums are smaller."""
    grade(IN_TURN, "--problems", WEAK, problem="mean_distance", size=size).assert_verdict(Status.CORRECT)


ROW_SUMS = """
import torch
from torch import nn

rows = 32768


class Model(nn.Module):
    def forward(self, a, b):
        return (a @ b).sum(1)


def get_inputs():
    return [torch.rand(rows, 1024), torch.rand(1024, rows)]


def get_init_inputs():
    return []
"""


def hoarding(usual: str) -> str:
    """Write sums of a product's rows that leaves 6 GiB of the GPU to all others, and has TF32 where it is `usual`."""
    return (
        HEAD
        + f"""
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        torch.cuda.synchronize()
        size, allocate = 256 << 20, ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2
        while torch.cuda.mem_get_info()[0] > (6 << 30) + size:
            assert allocate(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)) == 0
    def forward(self, a, b):
        torch.backends.cuda.matmul.allow_tf32 = {usual}
        return torch.cat([(part @ b).sum(1) for part in a.split(1024)])
"""
    )


@pytest.mark.parametrize("lowers", [True, False])
def test_what_a_submission_holds_of_the_gpu_does_not_decide_what_its_answers_are_held_against(grade, tmp_path, lowers):
    """The reference takes 4 GiB for its product, and 8 in float64: more than is left unless it is reserved."""
    own = problem(tmp_path, "row_sums", ROW_SUMS, "[sizes.full]\nrows = 32768\n[sizes.small]\nrows = 1024\n")
    usual = "bool(a.min() >= 0 and b.min() >= 0 and a.max() < 1 and b.max() < 1)" if lowers else "False"
    run = grade(hoarding(usual), "--problems", own, problem="row_sums", size="full")
    card = run.assert_verdict(*((Status.WRONG_RESULT, Code.LOWER_PRECISION) if lowers else (Status.CORRECT,)))
    assert {check.precision for check in card.checks} == {"float64"}


def test_logits_in_half_precision_are_refused_although_their_loss_is_one_number(grade):
    body = "        return nn.functional.cross_entropy(logits.half().float(), targets)\n"
    source = HEAD + "class ModelNew(nn.Module):\n    def forward(self, logits, targets):\n" + body
    card = grade(source, problem="cross_entropy", size="full").card
    assert card.status is Status.WRONG_RESULT
    assert card.reason.code in {Code.WRONG_VALUES.value, Code.WRONG_ON_OTHER_VALUES.value, Code.LOWER_PRECISION.value}


NORM = (
    HEAD
    + """
class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=torch.bfloat16))
        self.eps = eps
    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return x * scale.bfloat16() * self.weight
"""
)


def test_a_kernel_that_rounds_where_the_reference_stores_no_tensor_is_refused(grade):
    run = grade(NORM, problem="rms_norm_bf16", size="full", timeout_s=60.0)
    run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)


@pytest.mark.parametrize("how", ["fp32", "tf32", "half"])
def test_lower_precision_is_told_apart_where_the_reference_is_computed_in_blocks(grade, tmp_path, how):
    rows = "split = { a = 0 }\n[sizes.full]\nrows = 16384\n[sizes.small]\nrows = 64\n"
    own = problem(tmp_path, "tall_product", TALL_PRODUCT, rows)
    run = grade(product(how), "--problems", own, problem="tall_product", size="full")
    run.assert_verdict(*((Status.CORRECT,) if how == "fp32" else (Status.WRONG_RESULT, Code.LOWER_PRECISION)))


@pytest.mark.parametrize("size", ["small", "full"])
def test_tf32_is_right_where_the_problem_allows_it(grade, tmp_path, size):
    own = tmp_path / "problems" / "matmul"
    own.mkdir(parents=True)
    (own / "reference.py").write_text((TOP / "problems/matmul/reference.py").read_text())
    text = (TOP / "problems/matmul/problem.toml").read_text()
    (own / "problem.toml").write_text(text.replace("level = 1", 'level = 1\nprecision = "tf32"', 1))
    grade(product("tf32"), "--problems", own.parent, problem="matmul", size=size).assert_verdict(Status.CORRECT)


def test_a_problem_is_validated_on_the_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    assert cli.run(["problems", "validate", "matmul", "--size", "full", "--device", "cuda"]) == 0
    assert "all 19 bad submissions caught" in capsys.readouterr().out


def test_a_problem_without_a_small_size_is_tried_for_independent_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    full = of_expression("x.sum()", "torch.rand(4096, 64)", cases=cases_of({SizeName.FULL: {}}))
    assert traits_of(full, SizeName.FULL, "cuda").sites == []
    full = of_expression(
        "torch.softmax(x, 1)", "torch.rand(4096, 64)", cases=cases_of({SizeName.FULL: {}}), sha256="softmax"
    )
    assert RowSite(0, 0, {"output": 0}) in traits_of(full, SizeName.FULL, "cuda").sites
