"""Answers that are not the reference's: of the wrong kind, the wrong values, or right only for a while."""

import pytest

from evaluator.findings import Code
from evaluator.judge.trial.enough_calls import FEW_CALLS
from evaluator.records import Profile, Status
from tests.grading.harness import limit_s, module

WRONG = Status.WRONG_RESULT
FAILED = Status.RUNTIME_ERROR

BAD = {
    "forward raises": (module(forward=["y = x + 1", "raise ValueError('no')"]), FAILED, Code.FORWARD_FAILED),
    "sys.exit": (module(forward=["raise SystemExit(0)"]), FAILED, Code.FORWARD_FAILED),
    "KeyboardInterrupt": (module(forward=["raise KeyboardInterrupt"]), FAILED, Code.FORWARD_FAILED),
    "os._exit": (module("import os", forward=["os._exit(0)"]), FAILED, Code.RUNNER_DIED),
    "abort": (module("import os", forward=["os.abort()"]), FAILED, Code.RUNNER_DIED),
    "segfault": (module("import ctypes", forward=["ctypes.string_at(8)"]), FAILED, Code.RUNNER_DIED),
    "endless forward": (module(forward=["while True: pass"]), Status.TIMEOUT, Code.TIMED_OUT),
    "10^12 elements": (module(forward=["return torch.ones(10**12)"]), FAILED, Code.OUT_OF_MEMORY),
    "wrong shape": (module(forward=["return torch.relu(x)[:, :-1]"]), WRONG, Code.WRONG_SHAPE),
    "one more dimension": (module(forward=["return torch.relu(x)[None]"]), WRONG, Code.WRONG_SHAPE),
    "empty": (module(forward=["return x.new_empty(0)"]), WRONG, Code.WRONG_SHAPE),
    "giant by expansion": (module(forward=["return x.sum().expand(1 << 20, 1 << 20)"]), WRONG, Code.WRONG_SHAPE),
    "wrong dtype": (module(forward=["return torch.relu(x).double()"]), WRONG, Code.WRONG_DTYPE),
    "meta device": (module(forward=["return x.to('meta')"]), WRONG, Code.WRONG_DEVICE),
    "None": (module(forward=["torch.relu(x)"]), WRONG, Code.NOT_A_TENSOR),
    "a text": (module(forward=["return 'correct'"]), WRONG, Code.NOT_A_TENSOR),
    "a numpy array": (module(forward=["return torch.relu(x).numpy()"]), WRONG, Code.NOT_A_TENSOR),
    "sparse": (module(forward=["return torch.relu(x).to_sparse()"]), WRONG, Code.NOT_A_TENSOR),
    "a tensor that computes when asked": (
        module(
            "class Lazy(torch.Tensor):",
            "    detach = lambda self: torch.relu(self.x)",
            "    __torch_function__ = classmethod(lambda cls, f, types, args=(), kwargs=None: torch.relu(args[0].x))",
            forward=["y = torch.Tensor._make_subclass(Lazy, torch.empty(0))", "y.x = x", "return y"],
        ),
        WRONG,
        Code.WRONG_SHAPE,
    ),
    "a tensor that stays of its class": (
        module(
            "class Stays(torch.Tensor):",
            "    __torch_dispatch__ = classmethod(lambda cls, f, types, args=(), kwargs=None: args[0])",
            "    __torch_function__ = torch._C._disabled_torch_function_impl",
            forward=["return torch.Tensor._make_subclass(Stays, torch.relu(x))"],
        ),
        WRONG,
        Code.NOT_A_TENSOR,
    ),
    "nested": (
        module(forward=["return torch.nested.as_nested_tensor([torch.relu(x)], layout=torch.jagged)"]),
        WRONG,
        Code.NOT_A_TENSOR,
    ),
    "a sparse parameter": (
        module(forward=["return nn.Parameter(torch.relu(x).to_sparse())"]),
        WRONG,
        Code.NOT_A_TENSOR,
    ),
    "a list": (module(forward=["return [torch.relu(x)]"]), WRONG, Code.WRONG_STRUCTURE),
    "two outputs": (module(forward=["return torch.relu(x), x"]), WRONG, Code.WRONG_STRUCTURE),
    "contains itself": (module(forward=["y = []", "y.append(y)", "return y"]), WRONG, Code.WRONG_STRUCTURE),
    "NaN": (module(forward=["y = torch.relu(x)", "y[3, 5] = float('nan')", "return y"]), WRONG, Code.NOT_FINITE),
    "never written": (module(forward=["return torch.empty_like(x)"]), WRONG, None),
    "wrong values": (module(forward=["return x.abs()"]), WRONG, Code.WRONG_VALUES),
    "an earlier answer": (
        module("kept = []", forward=["kept.append(torch.relu(x))", "return kept[0].clone()"]),
        WRONG,
        Code.WRONG_VALUES,
    ),
    "one buffer for all": (
        module("kept = []", forward=["kept.append(torch.empty_like(x))", "return torch.clamp(x, min=0, out=kept[0])"]),
        WRONG,
        Code.OUTPUT_REUSED,
    ),
    "input changed in place": (module(forward=["return x.relu_()"]), WRONG, Code.INPUT_CHANGED),
    "input zeroed": (
        module(forward=["y = torch.relu(x)", "x.zero_()", "return y"]),
        WRONG,
        Code.INPUT_CHANGED,
    ),
}


SHOWN = ("forward raises", "segfault", "endless forward", "NaN")
"""Those that go through the command line: one for each kind of screen."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_bad_answer_is_shown(grade, name):
    source, status, code = BAD[name]
    line = len(source.splitlines()) if code is Code.FORWARD_FAILED else None
    grade(source, timeout_s=limit_s(status)).assert_verdict(status, code, line=line)


@pytest.mark.parametrize("name", sorted(BAD.keys() - set(SHOWN)))
def test_a_bad_answer_is_named(judged, name):
    source, status, code = BAD[name]
    outcome = judged(source, timeout_s=limit_s(status))
    allowed = (Code.WRONG_VALUES, Code.NOT_FINITE, Code.WRONG_ON_OTHER_VALUES) if code is None else (code,)
    assert outcome.status is status
    assert outcome.reason.code in allowed
    assert outcome.timing is None


CHECKS = len(Profile) + 3
"""Every profile but that of factors once, outliers twice more, as given once more, and one call again."""


def test_the_honest_twin_is_correct_with_every_profile_and_one_call_twice(judged):
    outcome = judged(module())
    assert outcome.status is Status.CORRECT
    assert len(outcome.checks) == CHECKS
    assert {check.profile for check in outcome.checks} == set(Profile) - {Profile.NEAR_ONE}, (
        "relu multiplies no factors"
    )
    assert len({check.seed for check in outcome.checks}) == CHECKS - 1
    timed = outcome.timing.submission
    assert len(timed.samples_ms) >= (FEW_CALLS if timed.windows is None else 3)
    # More where windows were made, kept or not: how fast the machine is decides.
    assert len(timed.seeds) >= 1 + len(timed.samples_ms) + timed.void_calls + timed.other_calls
