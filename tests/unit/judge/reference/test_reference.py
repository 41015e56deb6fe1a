"""The problem's own code, run by the judge."""

import pytest
import torch

from evaluator.errors import JudgeFailed, ProblemError
from evaluator.judge.clock.device_backend import CallSizes
from evaluator.judge.reference import agreement as blocks_module
from evaluator.judge.reference import reference as reference_module
from evaluator.judge.reference.agreement import forward_parameters
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import problem_setup
from evaluator.judge.setup.memory_plan import MemoryPlan, judge_bytes, plan
from evaluator.judge.setup.problem_setup import try_one_call
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.protocol.pytree import leaves
from evaluator.records import Mode, Precision, Problem, Profile, SizeName, ToleranceOverride, cases_of
from tests.unit import references

GIB = 1 << 30
TEXT = """
import torch

n = 8

class Model(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.args, self.kwargs = args, kwargs

    def forward(self, x, other=None):
        {forward}

def get_inputs():
    {inputs}

def get_init_inputs():
    {init}
"""


def problem(
    forward="return self.linear(x)", inputs="return [torch.rand(n, 4)]", init="return []", text=TEXT, **changes
):
    fields = {
        "name": "p",
        "title": "p",
        "level": 1,
        "description": "",
        "origin": "shipped",
        "path": "/problems/p/reference.py",
        "source": text.format(forward=forward, inputs=inputs, init=init),
        "sha256": "0" * 64,
        "cases": cases_of({SizeName.FULL: {}, SizeName.SMALL: {"n": 2}}),
        "precision": Precision.FP32,
        "mode": Mode.TRAIN,
        "backward": False,
        "tolerance": ToleranceOverride(),
        "split": {},
    }
    return Problem(**fields | changes)


def made(*args, size=SizeName.FULL, seed=1, **kwargs):
    return Reference(problem(*args, **kwargs), size, seed)


def expected(reference, *, seed=5, gradients=False):
    inputs = reference.draw(seed)
    drawn = reference.output_gradients(reference.forward(inputs, 7), 7) if gradients else None
    return inputs, reference.expected(inputs, 7, drawn)


def line_of(given, text):
    return next(n for n, line in enumerate(given.source.split("\n"), 1) if text in line)


def test_inputs_and_weights_follow_their_seeds():
    one, same, other = made(seed=1), made(seed=1), made(seed=2)
    assert torch.equal(one.state()["linear.weight"], same.state()["linear.weight"])
    assert not torch.equal(one.state()["linear.weight"], other.state()["linear.weight"])
    assert torch.equal(one.draw(3).args[0], other.draw(3).args[0])
    assert not torch.equal(one.draw(3).args[0], one.draw(4).args[0])


def test_a_size_replaces_the_constants():
    assert made(size=SizeName.FULL).draw(1).args[0].shape == (8, 4)
    assert made(size=SizeName.SMALL).draw(1).args[0].shape == (2, 4)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_model_is_in_the_problems_mode(mode):
    assert made(mode=mode).model.training == (mode is Mode.TRAIN)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_constructor_may_put_its_model_into_evaluation_mode(mode):
    assert not references.reference("x", init="self.eval()", mode=mode).model.training


def test_the_exact_value_is_in_float64_and_near_the_honest_one():
    _, wanted = expected(made())
    assert wanted.in_float64
    assert wanted.exact.outputs.dtype is torch.float64
    assert wanted.honest.outputs.dtype is torch.float32
    distance = (wanted.exact.outputs - wanted.honest.outputs).abs().max()
    assert 0 < distance < 1e-5


def test_positional_and_keyword_inputs():
    reference = made(
        forward="return self.linear(x) + other",
        inputs="return {'x': torch.ones(2, 4), 'other': torch.full((2, 4), 100.0)}",
        init="return {'size': 3}",
    )
    assert reference.model.kwargs == {"size": 3}
    inputs, wanted = expected(reference)
    assert inputs.args == []
    assert list(inputs.kwargs) == ["x", "other"]
    assert wanted.in_float64
    assert (wanted.exact.outputs > 90).all()
    assert made(inputs="return (torch.ones(2, 4),)", init="return (1, 2)").model.args == (1, 2)


def test_inputs_are_the_same_after_forward_even_if_it_writes_into_them():
    reference = made(forward="return x.mul_(2)")
    inputs, wanted = expected(reference)
    assert torch.equal(inputs.args[0], reference.draw(5).args[0])
    assert torch.equal(wanted.honest.outputs, inputs.args[0] * 2)
    assert wanted.exact.outputs.dtype is torch.float64
    assert torch.equal(wanted.exact.outputs, inputs.args[0].double() * 2)


def test_double_inputs_are_not_written_into_either():
    reference = made(forward="return x.mul_(2)", inputs="return [torch.rand(n, 4).double()]")
    inputs, wanted = expected(reference)
    assert torch.equal(wanted.exact.outputs, inputs.args[0] * 2)
    assert torch.equal(wanted.honest.outputs, inputs.args[0] * 2)


def settled(forward):
    reference = made(forward=forward)
    inputs = reference.draw(3)
    reference.settle(inputs, reference.forward(inputs, 7))
    return reference


def test_a_reference_that_writes_into_its_inputs_is_given_copies():
    inputs, wanted = expected(settled("return x.mul_(2)"))
    assert torch.equal(wanted.honest.outputs, inputs.args[0] * 2)


def test_a_reference_that_does_not_is_given_the_inputs_themselves():
    inputs, wanted = expected(settled("return x"))
    assert wanted.honest.outputs.data_ptr() == inputs.args[0].data_ptr()
    assert wanted.borrowed == {"output"}


def test_a_reference_that_writes_now_and_then_is_a_broken_problem():
    reference = settled("return x if x[0, 0] < 1 else x.mul_(2)")
    inputs = reference.draw(5)
    inputs.args[0][0, 0] = 3.0
    with pytest.raises(ProblemError, match="changes its inputs in some calls only"):
        reference.expected(inputs, 7, None)


@pytest.mark.parametrize("settle", [False, True])
def test_a_tensor_that_the_author_keeps_is_not_written_into(settle):
    reference = made(inputs="return [kept]", text=TEXT.replace("n = 8", "n = 8\nkept = torch.rand(8, 4)"))
    before = reference.draw(1).args[0].clone()
    if settle:
        reference.settle(reference.draw(1), reference.forward(reference.draw(1), 7))
    other = reference.draw(1, Profile.SIGNED_NORMAL).args[0]
    assert not torch.equal(other, before)
    assert torch.equal(reference.draw(1).args[0], before)


def test_a_profile_is_drawn_in_place_where_inputs_are_made_anew(monkeypatch):
    reference = settled("return x")
    monkeypatch.setattr(reference_module, "cloned", None)
    assert (reference.draw(1, Profile.SIGNED_NORMAL).args[0] < 0).any()


def test_the_first_block_says_for_all_whether_float64_is_comparable(monkeypatch):
    looks = []
    comparable = reference_module.same_function
    monkeypatch.setattr(reference_module, "same_function", lambda *pair: looks.append(0) or comparable(*pair))
    reference = made()
    blocks = [reference.draw(seed) for seed in (1, 2, 3)]
    found = list(reference.expected_of_blocks(blocks, 7))
    assert [each.in_float64 for each in found] == [True] * 3
    assert len(looks) == 1
    for block, each in zip(blocks, found, strict=True):
        assert torch.equal(each.honest.outputs, reference.forward(block, 7))
    casting = made(forward="return x if x.dtype == torch.float32 else x * 2")
    assert [each.in_float64 for each in casting.expected_of_blocks(blocks, 7)] == [False] * 3


NOT_IN_FLOAT64 = {
    "casts before a layer": "return self.linear(x.float())",
    "something else in double": "return x if x.dtype == torch.float32 else x * 2",
    "another shape in double": "return x if x.dtype == torch.float32 else x[:1]",
    "another structure in double": "return x if x.dtype == torch.float32 else (x,)",
    "more outputs in double": "return [x] if x.dtype == torch.float32 else [x, x]",
    "an error in double": "assert x.dtype == torch.float32; return x",
    "random numbers of a dtype": "return x + torch.randn(x.shape, dtype=x.dtype)",
    "complex numbers of single precision": "return torch.view_as_complex(x.float().reshape(-1, 2))",
}


@pytest.mark.parametrize("forward", NOT_IN_FLOAT64.values(), ids=NOT_IN_FLOAT64)
def test_a_reference_that_is_something_else_in_float64_is_its_own_measure(forward):
    _, wanted = expected(made(forward=forward))
    assert not wanted.in_float64
    assert wanted.exact is wanted.honest


IN_FLOAT64 = {
    "casts its input": "return torch.relu(x.float())",
    "casts its output": "return self.linear(x).half()",
    "one of two outputs": "return torch.relu(x), torch.relu(x.float())",
    "integers beside": "return x * 2, x.argmax(1), x > 0.5, 3, 'text', None",
    "nothing finite": "return x / 0",
    "some not finite": "return torch.where(x > 0.5, x / 0, x)",
    "complex": "return torch.view_as_complex(x.reshape(-1, 2)) * 2j",
    "zeros": "return x * 0",
}


@pytest.mark.parametrize("forward", IN_FLOAT64.values(), ids=IN_FLOAT64)
def test_a_reference_that_is_the_same_in_float64_is_measured_in_it(forward):
    _, wanted = expected(made(forward=forward))
    assert wanted.in_float64


def test_complex_inputs_are_widened():
    _, wanted = expected(made(forward="return x * x", inputs="return [torch.rand(n, 4, dtype=torch.complex64)]"))
    assert wanted.in_float64
    assert wanted.exact.outputs.dtype is torch.complex128
    assert (wanted.exact.outputs - wanted.honest.outputs).abs().max() > 0


def test_dropout_is_drawn_from_the_calls_seed():
    reference = made(forward="return torch.nn.functional.dropout(x, 0.5, self.training)")
    inputs = reference.draw(5)
    first, again, other = (reference.expected(inputs, seed, None) for seed in (7, 7, 8))
    assert torch.equal(first.honest.outputs, again.honest.outputs)
    assert not torch.equal(first.honest.outputs, other.honest.outputs)
    if first.in_float64:
        assert torch.equal(first.exact.outputs == 0, first.honest.outputs == 0)


def test_a_model_that_cannot_be_widened_is_its_own_measure():
    text = TEXT.replace("def forward", "def double(self):\n        raise TypeError('no')\n\n    def forward")
    _, wanted = expected(made(text=text))
    assert not wanted.in_float64


def test_gradients_are_in_float64_too():
    _, wanted = expected(made(), gradients=True)
    assert wanted.in_float64
    assert set(wanted.exact.gradients) == {"input 0", "parameter linear.weight", "parameter linear.bias"}
    for name, gradient in wanted.exact.gradients.items():
        assert gradient.dtype is torch.float64
        assert torch.allclose(gradient.float(), wanted.honest.gradients[name], rtol=1e-4)


def test_nothing_expected_hangs_on_a_graph():
    _, wanted = expected(made("return self.linear(x), self.linear.weight"), gradients=True)
    _, plain = expected(made("return x, self.linear.weight"))
    for result in (wanted.exact, wanted.honest, plain.exact, plain.honest):
        assert not any(leaf.requires_grad for leaf in result.outputs)


def test_output_gradients_are_one_for_each_floating_output():
    outputs = [torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), (torch.zeros(4).half(), 3)]
    reference = made()
    drawn, again = reference.output_gradients(outputs, 5), reference.output_gradients(outputs, 5)
    assert [(g.shape, g.dtype) for g in drawn] == [((2, 3), torch.float32), ((4,), torch.float16)]
    assert all(torch.equal(one, other) for one, other in zip(drawn, again, strict=True))
    assert not torch.equal(drawn[0], reference.output_gradients(outputs, 6)[0])


def test_inputs_that_require_gradients_are_leaves():
    reference = made(inputs="return [torch.rand(n, 4, requires_grad=True) * 2]", forward="return x * x")
    inputs, wanted = expected(reference, gradients=True)
    assert not inputs.args[0].requires_grad
    assert wanted.honest.gradients["input 0"] is not None
    assert wanted.in_float64


BLOCKS = {
    "one output": ("return self.linear(x) + other[0]", {"x": 0}),
    "two inputs": ("return self.linear(x) * other", {"x": 0, "other": 0}),
    "nested outputs": ("return {'a': [self.linear(x), (x * 2, x.argmax(1))], 'b': 3}", {"x": 0}),
    "another dimension": ("return self.linear(x) @ x.T[:, :0] if False else other.T * 2", {"other": 1}),
}


@pytest.mark.parametrize(("forward", "split"), BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("keywords", [False, True])
def test_blocks_give_what_the_whole_gives(monkeypatch, forward, split, keywords):
    names = "{'x': %s, 'other': %s}" if keywords else "[%s, %s]"
    shape = (
        "torch.rand(n + 3, 4), torch.rand(n + 3, 4)" if split != {"other": 1} else "torch.rand(4, 4), torch.rand(4, n)"
    )
    parts = shape.replace("), ", ")|").split("|")
    inputs = "return " + names % tuple(parts)
    monkeypatch.setattr(blocks_module, "_BLOCK_BYTES", 200)
    reference = made(forward, inputs, split=split)
    drawn = reference.draw(5)
    whole = reference.expected(drawn, 7, None)
    reference.settle(drawn, whole.honest.outputs)
    blocks = [reference.expected(block, 7, None) for block in reference.blocks(drawn)]
    assert len(blocks) > 1
    assert whole.in_float64
    assert all(block.in_float64 for block in blocks)
    parts = [list(leaves(block.exact.outputs)) for block in blocks]
    for place, (path, value) in enumerate(leaves(whole.exact.outputs)):
        assert all(part[place][0] == path for part in parts)
        if isinstance(value, torch.Tensor):
            assert torch.allclose(value, torch.cat([part[place][1] for part in parts]), rtol=1e-14)
        else:
            assert all(part[place][1] == value for part in parts)


@pytest.mark.parametrize(
    ("forward", "split"),
    [
        ("return x.mean()", {"x": 0}),  # a number cannot be put together
        ("return x - x.mean(0)", {"x": 0}),  # depends on the other rows
        ("return x @ other", {"x": 0, "other": 0}),  # fails on a part
        ("return self.linear(x)", {"elsewhere": 0}),
        ("return self.linear(x)", {"x": 7}),
    ],
)
def test_a_split_that_changes_the_result_is_left_out(monkeypatch, forward, split):
    monkeypatch.setattr(blocks_module, "_BLOCK_BYTES", 40)
    inputs = "return [torch.rand(n, 4) * torch.arange(8.0)[:, None], torch.rand(4, 8)]"
    reference = made(forward, inputs, split=split)
    drawn = reference.draw(5)
    reference.settle(drawn, reference.forward(drawn, 7))
    assert len(reference.blocks(drawn)) == 1


def test_forward_parameters_are_paired_with_the_values():
    reference = made()
    x = torch.zeros(1)
    arguments = Arguments([x, 2, 3], {"k": 4})
    assert [name for name, _ in forward_parameters(reference.model, arguments)] == ["x", "other", "2", "k"]


def test_a_forward_without_code_of_its_own_is_no_obstacle():
    text = TEXT + "\nimport functools\nModel.forward = functools.partialmethod(Model.forward)\n"
    _, wanted = expected(made(text=text))
    assert wanted.in_float64


@pytest.mark.parametrize(
    ("forward", "borrowed"),
    [
        ("return x * 2, x.clone()", set()),
        ("return x", {"output"}),
        ("return x * 2, x[1:], {'w': self.linear.weight}", {"output[1]", "output[2].w"}),
    ],
)
def test_outputs_in_memory_of_inputs_and_weights_are_named(forward, borrowed):
    _, wanted = expected(made(forward))
    assert wanted.borrowed == borrowed


BROKEN = {
    "reading it": ({"text": TEXT + "\nraise ValueError('boom')\n"}, "reading it", "boom"),
    "get_inputs": ({"inputs": "raise ValueError('boom')"}, "get_inputs()", "boom"),
    "get_inputs, deeper": ({"inputs": "return [torch.rand(n, 4) @ torch.rand(5)]  # boom"}, "get_inputs()", "boom"),
    "get_init_inputs": ({"init": "return 1 / 0  # boom"}, "get_init_inputs()", "boom"),
    "constructor": ({"init": "return [1]", "text": TEXT.replace("super", "boom; super")}, "Model(...)", "boom"),
    "forward": ({"forward": "return x @ x  # boom"}, "forward", "boom"),
    "SystemExit": ({"inputs": "raise SystemExit('boom')"}, "get_inputs()", "boom"),
    "too deep": ({"forward": "return self.forward(x)  # boom"}, "forward", "boom"),
}


@pytest.mark.parametrize(("changes", "doing", "text"), BROKEN.values(), ids=BROKEN)
def test_what_the_problem_raises_names_its_file_and_line(changes, doing, text):
    with pytest.raises(ProblemError) as caught:
        expected(made(**changes))
    line = line_of(problem(**changes), text)
    assert caught.value.message.startswith(f"/problems/p/reference.py, line {line}: {doing} failed: ")
    assert "not in the submission" in caught.value.hint


def test_what_expected_raises_names_its_line_too():
    reference = made(forward="raise ValueError('boom')")
    with pytest.raises(ProblemError, match="line 13: forward failed: ValueError: boom"):
        reference.expected(reference.draw(1), 1, None)


def test_an_error_of_the_test_runner_is_not_the_problems():
    with pytest.raises(KeyboardInterrupt):
        made(inputs="raise KeyboardInterrupt").draw(1)


@pytest.mark.parametrize("raised", ["torch.empty(2**50)", "(_ for _ in ()).throw(MemoryError('small'))"])
def test_memory_that_runs_out_is_the_machines_failure(raised):
    with pytest.raises(MemoryError):
        made(inputs=f"return [{raised}]").draw(1)


@pytest.mark.parametrize("value", ["torch.rand(3)", "None", "3", "'text'", "{1, 2}"])
def test_inputs_are_a_list_or_a_dict(value):
    with pytest.raises(ProblemError, match=r"get_inputs\(\) returns a"):
        made(inputs=f"return {value}").draw(1)


def test_what_the_problem_prints_goes_to_stderr(capsys):
    text = "print('while reading')" + TEXT.replace("super", "print('while making'); super")
    reference = made("print('in forward'); return x", "print('in inputs'); return [torch.rand(n)]", text=text)
    expected(reference)
    printed = capsys.readouterr()
    assert printed.out == ""
    for said in ("while reading", "while making", "in forward", "in inputs"):
        assert said in printed.err


@pytest.mark.parametrize("from_bytes", [0, 1 << 20])
def test_a_problem_is_planned_once_and_its_code_not_run_again(tmp_path, monkeypatch, from_bytes):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    told = tmp_path / "told"
    told.write_text("")
    tell = f"import pathlib; told = pathlib.Path({str(told)!r}); told.write_text(told.read_text() + 'drawn '); "
    one = problem(inputs=tell + "return [torch.randn(n, 4)]")
    first = plan(one, SizeName.FULL, from_bytes=from_bytes)
    assert plan(one, SizeName.FULL, from_bytes=from_bytes) == first
    assert (first is None) is (from_bytes > 0)
    assert told.read_text() == "drawn "


def test_what_is_computed_whole_takes_more_of_a_gpu_than_what_is_computed_in_blocks():
    sizes = MemoryPlan(input_bytes=100, output_bytes=10, state_bytes=1)
    least = 2 * 100 + 3 * 10 + 6 * 1
    assert sizes.gpu_bytes(backward=False, in_blocks=True) == least + (3 << 30)
    assert sizes.gpu_bytes(backward=False, in_blocks=False) == least + 2 * 100 + 3 * 10 + (3 << 30)


def test_planning_prints_nothing_and_ends_nothing(capsys):
    sizes = plan(problem("print('in forward'); return self.linear(x)"), SizeName.FULL)
    assert (sizes.input_bytes, sizes.output_bytes, sizes.state_bytes) == (128, 128, 80)
    assert plan(problem(inputs="raise SystemExit(0)"), SizeName.FULL) is None
    assert plan(problem("return x[x > 0]"), SizeName.FULL) is None
    assert capsys.readouterr().out == ""


def one_call(**changes):
    """Try a problem's one call, without the processes of a grade."""
    return try_one_call(made(**changes), on_gpu=False)


@pytest.fixture
def counters(monkeypatch):
    """Play PyTorch's counters of a GPU's memory, which go up by a number that is known in each call that is watched."""

    def play(*seen):
        left = list(seen)
        now = [0, 0]

        def reset():
            now[:] = 1000 * len(left), 1000 * len(left) + left.pop(0)

        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: now[0])
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: now[1])
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        return left

    return play


@pytest.mark.parametrize("backward", [False, True])
def test_what_a_reference_holds_on_a_gpu_is_looked_at_without_the_copies_of_its_inputs(counters, backward):
    left = counters(*([512, 4096, 6 * GIB] if backward else [512, 6 * GIB]))
    gaps = "return [torch.rand(n, 8)[:, ::2]]"  # Eight rows of four, each of which lies in eight.
    sizes, _ = try_one_call(made(inputs=gaps, backward=backward), on_gpu=True)
    assert sizes.peak_bytes == (4096 if backward else 512) - 8 * 4 * 4
    assert left == []


BESIDE = 576 << 20  # For comparing, and to overwrite L2.


def test_the_judge_keeps_what_float64_takes_at_its_worst_moment(counters):
    counters(512, 6 * GIB)
    sizes, _ = try_one_call(made(), on_gpu=True)
    kept = sizes.input_bytes + 2 * sizes.output_bytes + BESIDE
    assert sizes.judge_bytes == kept + (sizes.output_bytes + 6 * GIB) * 17 // 16
    assert sizes.plain_judge_bytes == kept + (sizes.output_bytes + sizes.peak_bytes) * 17 // 16


def test_what_float64_took_until_it_failed_is_not_kept(counters):
    """But what the plain reference takes is."""
    counters(2 * GIB, 6 * GIB)
    sizes, _ = try_one_call(made("assert x.dtype == torch.float32; return x * 2"), on_gpu=True)
    assert sizes.judge_bytes == sizes.plain_judge_bytes
    kept = sizes.input_bytes + 2 * sizes.output_bytes + BESIDE
    assert sizes.judge_bytes == kept + (sizes.output_bytes + sizes.peak_bytes) * 17 // 16


def test_of_blocks_one_counts(counters):
    assert judge_bytes(8, 80, peak_bytes=0, exact_bytes=GIB, blocks=8) == 8 + 10 + GIB + (200 << 20)
    assert judge_bytes(8, 80, peak_bytes=8 * GIB, exact_bytes=1, blocks=8) == 8 + 10 + GIB + (200 << 20)
    # relu in 64 blocks: inputs, three of its outputs as the runner has them, and a GiB are what was promised.
    assert judge_bytes(6 * GIB, 6 * GIB, peak_bytes=6 * GIB, exact_bytes=384 << 20, blocks=64) < 7 * GIB
    assert judge_bytes(8, 16, peak_bytes=0, exact_bytes=1, blocks=1) == 8 + 32 + BESIDE + (16 + 48) * 17 // 16


def test_gradients_that_nobody_asks_for_hold_no_memory():
    reference = made(backward=True)
    try_one_call(reference, on_gpu=False)
    models = (reference.model, reference.exact_model)
    assert [weight.grad for model in models for weight in model.parameters()] == [None] * 4


def test_the_judge_takes_what_it_lacks_of_its_memory(monkeypatch):
    taken = []
    monkeypatch.setattr(torch, "empty", lambda size, **_: taken.append(size))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 100)
    for size in (0, 99, 100, 107):
        problem_setup.keep_memory(size)
    assert taken == [7]


def failing_in_float64(reference, error):
    """Have float64 fail from now on, as it does where another process has the memory."""

    def forward(x):
        raise error

    reference.exact_model.forward = forward
    return reference


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryError),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), MemoryError),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), MemoryError),
        (RuntimeError("an engine is missing"), JudgeFailed),
    ],
)
def test_float64_that_was_there_and_is_gone_is_not_done_without(error, raised):
    """Whoever took the memory away would choose what answers are held against."""
    reference = made()
    inputs = reference.draw(5)
    reference.settle_float64(inputs, None)
    assert reference.expected(inputs, 7, None).in_float64
    failing_in_float64(reference, error)
    with pytest.raises(raised, match="no longer"):
        reference.expected(inputs, 7, None)
    with pytest.raises(raised, match="no longer"):
        list(reference.expected_of_blocks([inputs, inputs], 7))
    # This is the reference's own doing, whoever has the memory.
    assert not failing_in_float64(reference, TypeError("of these values")).expected(inputs, 7, None).in_float64


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), ValueError("no double")])
def test_float64_that_was_never_there_is_done_without_in_all_calls(error):
    reference = failing_in_float64(made(), error)
    inputs = reference.draw(5)
    assert not reference.expected(inputs, 7, None).in_float64
    reference.settle_float64(inputs, None)
    assert reference.exact_model is None
    assert not reference.expected(inputs, 7, None).in_float64


@pytest.mark.parametrize(("free_bytes", "in_float64"), [(10 * GIB, True), (10 * GIB - 1, False)])
def test_float64_that_leaves_no_room_for_a_runner_is_left_out(free_bytes, in_float64):
    reference = made()
    reference.settle_float64(reference.draw(5), None)
    sizes = CallSizes(GIB, GIB // 2, GIB)
    assert sizes.runner_bytes == 2 * GIB + (128 << 20) + GIB + (256 << 20) + GIB  # Inputs, outputs, a context.
    assert sizes.temporary_bytes == GIB // 2
    taken = sizes._replace(judge_bytes=10 * GIB - sizes.runner_bytes - sizes.temporary_bytes, plain_judge_bytes=2 * GIB)
    found = problem_setup.planned(reference, taken, free_bytes)
    assert reference.expected(reference.draw(5), 7, None).in_float64 is in_float64
    assert found == (taken if in_float64 else taken._replace(judge_bytes=2 * GIB))


def test_a_call_is_measured():
    sizes, reference_s = one_call()
    assert sizes.output_bytes >= 8 * 4 * 4
    assert sizes.input_bytes >= sizes.output_bytes + (8 * 4 + 4 * 4 + 4) * 4
    assert reference_s > 0


@pytest.mark.parametrize(
    "forward",
    ["return x[:0]", "return x, x[:, :0]", "return torch.empty(0)", "return None", "return 3", "return []"],
)
def test_an_output_with_nothing_to_compare_is_refused(forward):
    with pytest.raises(ProblemError, match=r"output.* has shape .*, with no element to compare|returns no tensor"):
        one_call(forward=forward)


def test_gaps_in_inputs_and_keywords_of_the_constructor_need_room():
    gaps, _ = one_call(inputs="return [torch.rand(8, 400)[:, ::100]]")
    assert gaps.input_bytes >= (7 * 400 + 301) * 4
    keywords, _ = one_call(init="return {'table': torch.zeros(10_000)}")
    assert keywords.input_bytes >= 40_000


@pytest.mark.parametrize("output", ["(x.float() * 1.1).to(torch.bfloat16) * y", "torch.tanh(x.float()).bfloat16() @ y"])
def test_a_cast_in_the_middle_rounds_no_exact_value_of_half_precision(output):
    """A fused kernel keeps fp32 between operations."""
    given = ", ".join(["torch.rand(8, 8).bfloat16()"] * 2)
    half = references.reference(output, given, forward="x, y", precision=Precision.BF16)
    inputs = half.draw(3)
    x, y = (tensor.double() for tensor in inputs.args)
    found = half.expected(inputs, 0, None)
    assert found.in_float64
    assert torch.allclose(found.exact.outputs, x * 1.1 * y if "1.1" in output else torch.tanh(x) @ y, rtol=1e-12)
