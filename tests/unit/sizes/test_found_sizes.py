"""A small size for files in KernelBench's form that the shipped table does not know; the files are our own."""

import pytest

from evaluator.catalog.kernelbench import read_file
from evaluator.records import SizeName
from evaluator.sizes import small_size
from evaluator.sizes.degenerate import Operations
from evaluator.sizes.scaling import candidates
from evaluator.sizes.size_search import MOST, find
from evaluator.sizes.small_size import SmallFound, found_small, with_small_size

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
    assert x.numel() <= MOST[0].given
    assert all(size > 1 for size in x.shape)
    assert trace.elements <= MOST[0].made


def test_what_must_divide_still_does():
    found = find(NORM)
    assert found["c"] % found["groups"] == 0
    assert found["kernel"] == 3
    assert find(SUM)["dim"] == 1


def test_a_pool_does_not_leave_a_softmax_over_one():
    assert find(POOL)["length"] >= 32


def test_a_file_that_is_small_already_keeps_its_constants():
    assert find(text("torch.relu(x)", "n = 64", "torch.rand(n, n)")) == {"n": 64}
    assert find(text("torch.relu(x)", "", "torch.rand(64, 64)")) == {}


@pytest.mark.parametrize(
    "source",
    [
        text("torch.relu(x)", "", "torch.rand(16384, 16384)"),
        text("torch.relu(x) / 0 * 0", "n = 64", "torch.rand(n, n)"),
        text("x.no_such_thing()", "n = 64", "torch.rand(n, n)"),
    ],
    ids=["no constants", "not finite", "broken"],
)
def test_where_there_is_none_none_is_found(source):
    assert find(source) is None


def test_a_group_norm_keeps_more_than_one_channel_in_a_group():
    found = find(NORM)
    assert found["c"] // found["groups"] > 1


def test_a_reference_that_needs_values_gets_no_dimension_of_one():
    needs = "x.flatten()[: int(x.sum()) * 0 + x.numel()].view(x.shape)"
    assert find(text(needs, "n = 4096", "torch.rand(n, n)"))["n"] > 1
    assert find(text(needs, "n = 4096", "torch.rand(n, 1)")) is None


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


def test_it_is_searched_once_in_a_process_of_its_own_and_kept(bare, monkeypatch):
    sized = with_small_size(bare, SizeName.SMALL)
    assert sized.sizes[SizeName.SMALL] == find(SUM)
    assert sized.sizes[SizeName.FULL] == bare.sizes[SizeName.FULL]
    assert "columns = " in found_small(sized, SizeName.SMALL)
    monkeypatch.setattr(small_size, "_search", lambda _: pytest.fail("searched again"))
    assert with_small_size(bare, SizeName.SMALL) == sized


def test_only_a_small_size_that_lacks_is_searched(bare, monkeypatch):
    monkeypatch.setattr(small_size, "_search", lambda _: pytest.fail("searched"))
    assert with_small_size(bare, SizeName.FULL) is bare
    assert with_small_size(bare, SizeName.AWKWARD) is bare
    assert found_small(bare, SizeName.SMALL) is None


def test_a_search_that_was_ended_is_not_kept(bare, monkeypatch):
    monkeypatch.setattr(small_size, "_LIMIT_S", 0.001)
    assert with_small_size(bare, SizeName.SMALL) is bare
    monkeypatch.setattr(small_size, "_search", lambda _: SmallFound(constants={"rows": 4, "columns": 8, "dim": 1}))
    assert with_small_size(bare, SizeName.SMALL).sizes[SizeName.SMALL]["rows"] == 4
