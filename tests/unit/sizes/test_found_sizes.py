"""Sizes for files in KernelBench's form that the shipped table does not know; the files are our own."""

import functools

import msgspec
import pytest

from evaluator.catalog.kernelbench import read_file
from evaluator.errors import ProblemError
from evaluator.records import SizeName, cases_of
from evaluator.sizes import found_sizes
from evaluator.sizes.degenerate import Operations
from evaluator.sizes.found_sizes import SizeQuestion, SizesFound, about_sizes, with_sizes
from evaluator.sizes.size_search import MOST, candidates
from evaluator.sizes.size_search import find as search

FORM = """import torch
from torch import nn
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
{constants}
def get_inputs(): return [{inputs}]
def get_init_inputs(): return [{arguments}]
"""


def text(forward, constants, inputs, init="pass", arguments=""):
    parameters = "".join(f", {name.strip()}" for name in arguments.split(",") if name.strip())
    return FORM.format(
        parameters=parameters, init=init, forward=forward, constants=constants, inputs=inputs, arguments=arguments
    )


@functools.cache
def searched(source):
    return search(SizeQuestion(source, None))


def find(source):
    return searched(source).small


GEMM = text("self.lin(x)", "m = 4096\nk = 8192\nn = 8192", "torch.rand(m, k)", "self.lin = nn.Linear(k, n)", "k, n")
NORM = text(
    "self.norm(self.conv(x))",
    "batch = 64\nc = 96\ngroups = 12\nsize = 256\nkernel = 3",
    "torch.rand(batch, 3, size, size)",
    "self.conv, self.norm = nn.Conv2d(3, c, kernel), nn.GroupNorm(groups, c)",
    "c, groups, kernel",
)
SUM = text("x.sum(dim)", "rows = 4096\ncolumns = 8192\ndim = 1", "torch.rand(rows, columns)")
POOL = text(
    "nn.functional.avg_pool1d(x, 16).softmax(-1)",
    "batch = 32\nlength = 1 << 20".replace("1 << 20", "1048576"),
    "torch.rand(batch, 8, length)",
)


@pytest.mark.parametrize("source", [GEMM, NORM, SUM, POOL], ids=["gemm", "group norm", "sum", "pool"])
def test_constants_are_made_smaller_while_the_reference_runs(source):
    found = find(source)
    assert found is not None
    module = {}
    for name, value in found.items():
        source = "\n".join(f"{name} = {value}" if line.startswith(f"{name} =") else line for line in source.split("\n"))
    exec(source, module)
    (x,) = module["get_inputs"]()
    with Operations() as trace:
        module["Model"](*module["get_init_inputs"]())(x)
    assert x.numel() <= MOST[0].inputs
    assert all(size > 1 for size in x.shape)
    assert trace.elements <= MOST[0].outputs


def test_what_must_divide_still_does():
    found = find(NORM)
    assert found["c"] % found["groups"] == 0
    assert found["c"] // found["groups"] > 1
    assert found["kernel"] == 3
    assert find(SUM)["dim"] == 1
    assert find(POOL)["length"] >= 32  # The softmax is not over one.


def test_a_file_that_is_small_already_keeps_its_constants():
    assert find(text("torch.relu(x)", "n = 64", "torch.rand(n, n)")) == {"n": 64}
    assert find(text("torch.relu(x)", "", "torch.rand(64, 64)")) == {}
    assert find(INPUTS_ON_CUDA) == {"n": 64}


def test_rows_beyond_the_shared_memory_of_a_block_keep_their_length():
    """56 KB of a row in shared memory need cudaFuncSetAttribute; a shorter row would hide the missing call."""
    constants = "rows = 24\ncols = 14000"
    assert find(text("torch.softmax(x, -1)", constants, "torch.rand(rows, cols)")) == {"rows": 24, "cols": 14000}
    assert find(text("x @ x.T", constants, "torch.rand(rows, cols)"))["cols"] < 14000


HISTOGRAM = text("torch.bincount(x, minlength=bins)", "count = 8192\nbins = 64", "torch.randint(0, bins, (count,))")
MASK = text("x.masked_fill(x > 0.5, -float('inf'))", "n = 64", "torch.rand(n, n)")


@pytest.mark.parametrize("source", [HISTOGRAM, MASK], ids=["needs values", "minus infinity"])
def test_a_small_file_keeps_its_constants_whatever_its_outputs_are(source):
    assert find(source).items() <= {"count": 8192, "bins": 64, "n": 64}.items()


def test_a_large_file_keeps_the_constants_of_its_operation():
    large = HISTOGRAM.replace("8192", "16777216").replace("64", "96")
    assert find(large) == {"count": 8192, "bins": 96}
    assert find(text("self.lin(x)", "n = 4096", "torch.rand(n, n)", "self.lin = nn.Linear(n, n)"))["n"] == 256


def test_a_small_size_takes_the_branches_of_the_full_one():
    source = text("x.sum(1) if x.shape[0] > 600 else x.amax(1)", "n = 4096", "torch.rand(n, n)")
    assert find(source)["n"] == 1024


@pytest.mark.parametrize(
    ("source", "extents"),
    [
        (GEMM, {"m": 251, "k": 251, "n": 251}),
        (SUM, {"rows": 509, "columns": 509, "dim": 1}),
        (HISTOGRAM, {"count": 8191, "bins": 64}),
        (text("x.view(-1, 16).sum(1)", "n = 64\nc = 48", "torch.rand(n, c)"), {"n": 61, "c": 48}),
        (text("x + x.T", "m = 64\nn = 64", "torch.rand(m, n)"), {"m": 61, "n": 61}),
    ],
    ids=["gemm", "sum", "histogram", "an extent that must divide", "equal extents"],
)
def test_an_awkward_size_has_extents_that_are_multiples_of_no_tile(source, extents):
    assert searched(source).awkward == extents


def test_a_window_is_no_extent():
    source = text(
        "self.conv(x)", "n = 32\nkernel = 7", "torch.rand(2, 3, n, n)", "self.conv = nn.Conv2d(3, 8, kernel)", "kernel"
    )
    assert searched(source).awkward == {"n": 31, "kernel": 7}


@pytest.mark.parametrize(
    "source",
    [
        text("x.view(64, 64)", "n = 64", "torch.rand(n, n)"),
        text("x", "", "torch.rand(64, 64)"),
        text("x[:n]", "n = 64", "torch.rand(n, n)"),
    ],
    ids=["fixed shape", "no constants", "a constant of the operation"],
)
def test_a_reference_that_needs_its_extents_has_no_awkward_size(source):
    assert searched(source).awkward is None


def test_a_known_small_size_is_not_searched():
    known = {"rows": 64, "columns": 32, "dim": 1}
    assert search(SizeQuestion(SUM, known)) == SizesFound(small=known, awkward={"rows": 61, "columns": 31, "dim": 1})


INPUTS_ON_CUDA = text("x * 2", "n = 64", "torch.rand(n, n, device='cuda'), torch.rand(n).cuda()").replace(
    "forward(self, x)", "forward(self, x, y)"
)
BROKEN = {
    "not finite": (text("torch.relu(x) / 0 * 0", "n = 64", "torch.rand(n, n)"), "is NaN or infinite"),
    "no such thing": (
        text("x.no_such_thing()", "n = 64", "torch.rand(n, n)"),
        "line 8: forward failed: AttributeError",
    ),
    "a missing import": (f"import lacking\n{SUM}", "line 1: reading it failed: ModuleNotFoundError"),
    "a name": (text("x", "n = 64", "torch.rand(m, n)"), "get_inputs() failed: NameError"),
    "none": (text("None", "n = 64", "torch.rand(n, n)"), "forward returns no tensor"),
    "empty": (text("x[:0]", "n = 64", "torch.rand(n, n)"), "has shape [0, 64], with no element to compare"),
    "sparse": (text("x.to_dense()", "n = 64", "torch.rand(n, n).to_sparse()"), "get_inputs() returns a sparse tensor"),
    "sparse output": (text("x.to_sparse()", "n = 64", "torch.rand(n, n)"), "forward returns a sparse tensor"),
    "nested": (text("x", "n = 64", "torch.nested.nested_tensor([torch.rand(n)])"), "get_inputs() returns a nested"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("source", "why"), BROKEN.values(), ids=BROKEN)
def test_a_reference_that_cannot_be_graded_says_why(source, why):
    assert why in searched(source).why_broken


def test_a_reference_that_needs_values_gets_no_dimension_of_one():
    needs = "x.flatten()[: int(x.sum()) * 0 + x.numel()].view(x.shape)"
    assert find(text(needs, "n = 4096", "torch.rand(n, n)"))["n"] > 1
    assert find(text(needs, "n = 1048576", "torch.rand(n, 1)")) == {"n": 1048576}  # as it is


def test_candidates_become_smaller_and_then_spare_one():
    tried = list(candidates({"n": 512, "k": 96, "p": 0.5, "flag": True}))
    assert tried[0] == {"n": 512, "k": 96, "p": 0.5, "flag": True}
    assert {"n": 64, "k": 48, "p": 0.5, "flag": True} in tried
    assert {"n": 512, "k": 8, "p": 0.5, "flag": True} in tried
    assert all(each["flag"] is True and each["p"] == 0.5 for each in tried)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "old_sum.py"
    path.write_text(SUM)
    return read_file(path)


SMALL, BOTH = (SizeName.SMALL,), (SizeName.SMALL, SizeName.AWKWARD)


@pytest.mark.process
def test_it_is_searched_once_in_a_process_of_its_own_and_kept(bare, monkeypatch):
    sized = with_sizes(bare, SMALL)
    found = searched(SUM)
    assert sized.cases == {**bare.cases, **cases_of({SizeName.SMALL: found.small, SizeName.AWKWARD: found.awkward})}
    assert about_sizes(sized, BOTH) == [
        "small size of old_sum: rows = 512, not 4096; columns = 512, not 8192",
        "awkward size of old_sum: rows = 509, not 512; columns = 509, not 512",
    ]
    monkeypatch.setattr(found_sizes, "_search", lambda *_: pytest.fail("searched again"))
    assert with_sizes(bare, BOTH) == sized
    assert with_sizes(sized, BOTH) is sized


def test_only_a_size_that_lacks_is_searched(bare, monkeypatch):
    monkeypatch.setattr(found_sizes, "_search", lambda *_: pytest.fail("searched"))
    assert with_sizes(bare, (SizeName.FULL,)) is bare
    assert about_sizes(bare, (SizeName.FULL,)) == []


@pytest.mark.process
def test_a_search_that_was_ended_is_not_kept(bare, monkeypatch):
    monkeypatch.setattr(found_sizes, "_LIMIT_S", 0.001)
    assert with_sizes(bare, SMALL) is bare
    monkeypatch.setattr(found_sizes, "_search", lambda *_: SizesFound(small={"rows": 4, "columns": 8, "dim": 1}))
    sized = with_sizes(bare, BOTH)
    assert sized.cases[SizeName.SMALL].axes["rows"] == 4
    assert about_sizes(sized, BOTH)[1] == "old_sum has no awkward size: the reference needs its extents"


def test_a_file_of_numbers_alone_is_graded_as_it_is_or_says_why_not(tmp_path):
    source = text("x.relu()", "", "torch.rand(512, 1000)")
    assert find(source) == {}
    assert "NameError" in search(SizeQuestion(source.replace("x.relu()", "missing(x)"), None)).why_broken
    assert find(source.replace("512", "8192")) == {}
    assert find(source.replace("512", "65536")) is None
    (tmp_path / "numbers.py").write_text(source)
    problem = read_file(tmp_path / "numbers.py")
    sized = msgspec.structs.replace(problem, cases={**problem.cases, **cases_of({SizeName.SMALL: {}})})
    assert "its extents are numbers" in about_sizes(sized, BOTH)[0]


@pytest.mark.process
def test_a_broken_reference_is_named_and_searched_again(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "broken.py"
    path.write_text(text("x @ y", "n = 64", "torch.rand(n, n)"))
    for _ in range(2):
        with pytest.raises(ProblemError, match=r"broken\.py, line 8: forward failed: NameError: name 'y'"):
            with_sizes(read_file(path), SMALL)
