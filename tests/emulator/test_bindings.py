"""Functions bound without pybind11 in their unit, and the same functions bound by pybind11: both answer the same."""

import json
import subprocess
import sys

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.own_libraries import binding_support
from evaluator.emulator.frontend.build_ladder import SUPPORT, StepName, build_steps
from evaluator.emulator.frontend.front_end import front_end
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest
from tests.cuda_builds import local_tool

pytestmark = pytest.mark.long

SOURCE = """
torch::Tensor same(torch::Tensor x) { return x; }
int64_t total(std::vector<int64_t> v) { int64_t sum = 0; for (auto n : v) sum += n; return sum; }
double scaled(double a, std::optional<double> b) { return a * b.value_or(2.0); }
std::string twice(const std::string& s) { return s + s; }
bool flipped(bool b) { return !b; }
int plus_one(int n) { return n + 1; }
std::tuple<torch::Tensor, int> both(const torch::Tensor& t, int n) { return {t, n}; }
std::vector<torch::Tensor> reversed(std::vector<torch::Tensor> v) { return {v.rbegin(), v.rend()}; }
bool is_there(std::optional<torch::Tensor> t) { return t.has_value(); }
at::ScalarType kind(torch::Tensor t) { return t.scalar_type(); }
void nothing() {}
torch::Tensor undefined() { return {}; }
torch::Tensor refused(torch::Tensor x) { TORCH_CHECK(x.dim() == 7, "seven dimensions, please"); return x; }
void invalid() { throw std::invalid_argument("not valid"); }
void outside() { TORCH_CHECK_INDEX(false, "outside"); }
"""
FUNCTIONS = (
    "same total scaled twice flipped plus_one both reversed is_there kind nothing undefined refused invalid outside"
)
CALLS = """
same(X); same(None); same(1); same(X.half()); same(); same(X, X); same(x=X); total([1, 2]); total((1, 2)); total([1.5]);
total("ab"); total([2**70]); total(X.long()); scaled(1, None); scaled(1.5, 3); scaled("a", 1); scaled(True, None);
twice("ab"); twice(b"ab"); twice(1); flipped(True); flipped(0); flipped(None); plus_one(1); plus_one(1.0);
plus_one(2**31); plus_one(True); plus_one(X.long()[0]); both(X, 3); both(X, None); reversed([X, X + 1]); reversed((X,));
reversed(X); reversed([None]); is_there(None); is_there(X); is_there(1); kind(X); kind(X.half()); nothing(); nothing(1);
undefined(); refused(X); invalid(); outside(); same.__name__; same.__doc__.split("(")[0]
"""
CALLER = """
import importlib.util, json, os, sys
import torch
sys.setdlopenflags(os.RTLD_LAZY)  # The emulator's own functions are missing, and unused.
spec = importlib.util.spec_from_file_location("ext", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
names = {name: getattr(module, name) for name in sys.argv[2].split()}
answers = {}
for call in sys.argv[3].replace("\\n", " ").split(";"):
    try:
        answers[call.strip()] = repr(eval(call.strip(), {"X": torch.tensor([1.0, 2.0]), **names}))
    except Exception as error:
        answers[call.strip()] = f"{type(error).__name__}: {str(error).split('The following')[0].splitlines()[0]}"
print(json.dumps(answers))
"""


def answers(folder, step):
    for name, text in step.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if step.name is StepName.BOUND:
        support = binding_support(local_tool({}), BuildCache(cache_folder()))
        assert support is not None
        (folder / SUPPORT).symlink_to(support)
    done = subprocess.run(step.argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    argv = [sys.executable, "-c", CALLER, str(folder / step.library), FUNCTIONS, CALLS]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def test_arguments_results_and_exceptions_are_the_same(tmp_path):
    functions = {name: name for name in FUNCTIONS.split()}
    request = BuildRequest(name="ext", cpp_sources=[SOURCE], functions=functions)
    bound, full = build_steps(request, front_end(request))[:2]
    assert (bound.name, full.name) == (StepName.BOUND, StepName.FULL)
    found = answers(tmp_path / "bound", bound)
    assert found == answers(tmp_path / "full", full)
    kinds = {answer.split(":")[0] for answer in found.values()}
    assert {"TypeError", "RuntimeError", "IndexError", "tensor([1., 2.])", "None"} <= kinds
