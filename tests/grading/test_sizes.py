"""Default sizes of a grade on the emulator (small and awkward), and sizes of bare problem files."""

import pytest

from evaluator.findings import Code
from evaluator.records import SizeName, Status

pytestmark = pytest.mark.slow

PROBLEM = """\
import torch
from torch import nn
{more}

class Model(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
DOUBLED = PROBLEM.format(more="rows = 64\ncols = 96", forward="x * 2", inputs="torch.randn(rows, cols)")
KERNEL = """\
import torch
from torch.utils.cpp_extension import load_inline

cuda = r'''
#include <torch/extension.h>
__global__ void twice(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    GUARD y[row * cols + col] = 2 * x[row * cols + col];
}
torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    CHECK
    auto y = torch::empty_like(x);
    twice<<<GRID, dim3(16, 16)>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    return y;
}
'''
made = load_inline(name="made", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=cuda, functions="run")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return made.run(x)
"""
PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return BODY\n"
RIGHT = {"GUARD": "if (row < rows && col < cols)", "GRID": "dim3((cols + 15) / 16, (rows + 15) / 16)", "CHECK": ""}


def kernel(**changes):
    source = KERNEL
    for name, text in {**RIGHT, **changes}.items():
        source = source.replace(name, text)
    return source


@pytest.fixture
def graded(grader, tmp_path):
    """Grade a submission on the emulator against a bare file."""

    def run(submission, *options, problem=DOUBLED):
        (tmp_path / "bare.py").write_text(problem)
        return grader(tmp_path, submission, "--device", "emulated", *options, problem=str(tmp_path / "bare.py"))

    return run


def test_a_right_kernel_is_checked_at_both_sizes_and_built_once(graded, grader, tmp_path):
    card = graded(kernel()).assert_verdict(Status.CORRECT)
    assert card.problem.constants == {"rows": 64, "cols": 96}
    assert [(each.name, each.axes, each.status) for each in card.cases] == [
        (SizeName.SMALL, {"rows": 64, "cols": 96}, Status.CORRECT),
        (SizeName.AWKWARD, {"rows": 61, "cols": 89}, Status.CORRECT),
    ]
    assert {(each.size, *each.tensors[0].shape) for each in card.checks} == {
        (SizeName.SMALL, 64, 96),
        (SizeName.AWKWARD, 61, 89),
    }
    assert len(card.build.units) == 1
    (found,) = (each for each in card.findings if each.code == Code.SIZE_FOUND)
    assert found.message == "awkward size of bare: rows = 61, not 64; cols = 89, not 96"
    (tmp_path / "card.json").rename(tmp_path / "before.json")
    again = grader.run(
        tmp_path,
        str(tmp_path / "bare.py"),
        "--replay",
        tmp_path / "before.json",
        "--device",
        "emulated",
        "--timeout",
        "60",
    )
    assert again.card.reason is None, again.card.reason
    assert [each.seed for each in again.card.checks] == [each.seed for each in card.checks]
    assert "same result" in again.err


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"GUARD": "if (row <= rows && col < cols)"}, Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS),
        ({"GUARD": "if (row < rows)"}, Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS),
        ({"GRID": "dim3(cols / 16, rows / 16)"}, Status.WRONG_RESULT, Code.NOT_FINITE),
    ],
    ids=["guard of one too many", "no guard of a column", "grid rounded down"],
)
def test_a_fault_of_the_tail_is_found(graded, changes, status, code):
    card = graded(kernel(**changes)).assert_verdict(status, code)
    assert card.reason.message.startswith("at case awkward (rows = 61, not 64; cols = 89, not 96): ")
    assert [each.ok for each in card.checks if each.size == SizeName.SMALL].count(False) == 0
    card = graded(kernel(**changes), "--size", "small").assert_verdict(Status.CORRECT)
    assert card.cases == []
    assert {each.size for each in card.checks} == {SizeName.SMALL}


def test_code_that_refuses_a_size_that_no_author_asks_for_is_right(graded):
    card = graded(kernel(CHECK='TORCH_CHECK(cols % 16 == 0, "no tail");')).assert_verdict(Status.CORRECT)
    assert {each.size for each in card.checks} == {SizeName.SMALL}
    (found,) = (each for each in card.findings if each.code == Code.SIZE_REFUSED)
    assert "no tail" in found.message


def test_code_for_the_file_s_own_numbers_has_no_verdict(graded):
    answer, problem = kernel(GUARD="cols = 1000; if (row < rows && col < cols)"), DOUBLED.replace("96", "1000")
    graded(answer, problem=problem).assert_verdict(Status.INCONCLUSIVE, Code.HARD_CODED_SIZE)


def test_a_problem_in_a_folder_has_its_author_s_awkward_size(grader, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "reference.py").write_text(DOUBLED)
    sizes = "[sizes.full]\nrows = 64\n[sizes.small]\nrows = 32\n[sizes.awkward]\nrows = 33\n"
    (folder / "problem.toml").write_text(f'title = "Mine"\nlevel = 1\ndescription = "Twice."\n{sizes}')
    refusing = kernel(CHECK='TORCH_CHECK(rows % 16 == 0, "no tail");')
    run = grader(tmp_path, refusing, "--device", "emulated", problem=str(folder))
    run.assert_verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED)


HISTOGRAM = """\
import torch
from torch.utils.cpp_extension import load_inline

cuda = r'''
#include <torch/extension.h>
__global__ void count(const int64_t* x, unsigned long long* y, int n) {
    for (int i = threadIdx.x; i < n; i += n) atomicAdd(y + x[i], 1ull);
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({64}, x.options());
    count<<<1, 256>>>(x.data_ptr<int64_t>(), reinterpret_cast<unsigned long long*>(y.data_ptr<int64_t>()), x.numel());
    return y;
}
'''
made = load_inline(name="made", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=cuda, functions="run")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return made.run(x)
"""


def test_a_histogram_of_the_first_block_alone_is_wrong(graded):
    forward, inputs = "torch.bincount(x, minlength=bins)", "torch.randint(0, bins, (count,))"
    problem = PROBLEM.format(more="count = 8192\nbins = 64", forward=forward, inputs=inputs)
    card = graded(HISTOGRAM, problem=problem).assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert card.problem.constants == {"count": 8192, "bins": 64}


def test_minus_infinity_where_the_reference_has_it_is_right(graded):
    forward = "x.masked_fill(x > 0, -float('inf'))"
    problem = PROBLEM.format(more="rows = 64", forward=forward, inputs="torch.randn(rows, rows)")
    graded(PLAIN.replace("BODY", "torch.where(x > 0, -torch.inf, x)"), problem=problem).assert_verdict(Status.CORRECT)


def test_inputs_made_on_a_gpu_are_brought_to_the_device_of_the_grade(graded):
    inputs = "torch.randn(rows, 32, device='cuda').cuda()"
    problem = PROBLEM.format(more="rows = 64", forward="x * 2", inputs=inputs)
    graded(PLAIN.replace("BODY", "x + x"), problem=problem).assert_verdict(Status.CORRECT)


def test_an_honest_sampler_is_not_blamed_for_a_random_reference(graded):
    problem = PROBLEM.format(more="rows = 64", forward="torch.multinomial(x, 1)", inputs="torch.rand(rows, 128)")
    other = PLAIN.replace("BODY", "(x / -torch.rand_like(x).clamp_min(1e-20).log()).argmax(1, keepdim=True)")
    graded(other, problem=problem).assert_verdict(Status.INCONCLUSIVE, Code.RANDOM_REFERENCE)
    graded(PLAIN.replace("BODY", "x"), problem=problem).assert_verdict(Status.WRONG_RESULT, Code.WRONG_SHAPE)


def test_weights_by_numpy_are_those_of_the_reference(graded):
    scale = "        self.scale = torch.tensor(np.random.rand(96), dtype=torch.float32)\n\n"
    init = f"    def __init__(self):\n        super().__init__()\n{scale}    def forward"
    given = {"more": "import numpy as np\nrows = 64", "forward": "x * self.scale", "inputs": "torch.randn(rows, 96)"}
    problem = PROBLEM.format(**given).replace("    def forward", init)
    graded(problem.replace("Model", "ModelNew"), problem=problem).assert_verdict(Status.CORRECT)


def test_defaults_that_a_submission_changes_are_its_own(graded):
    changed = """\
import torch

torch.set_default_dtype(torch.float64)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_grad_enabled(False)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.two = torch.tensor(2.0, dtype=torch.float32)

    def forward(self, x):
        with torch.device("cuda"):
            return x * torch.full((), 1.0, dtype=torch.float32) * self.two
"""
    graded(changed).assert_verdict(Status.CORRECT)
