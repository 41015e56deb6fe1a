"""One trial, with the runner's own code in this process: answers are judged, for inputs of every form."""

import itertools
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from evaluator.devices.memory import HostRegion, SharedMemory
from evaluator.errors import ProblemError
from evaluator.findings import Code
from evaluator.judge.answer.output_checks import views
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.compare.tensor_comparison import Sides, begin
from evaluator.judge.numerics.precision_sampler import PrecisionWatch
from evaluator.judge.numerics.rounding_of_call import rounding_of_call
from evaluator.judge.reference.derived_seeds import derived
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import lay_out
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.protocol.frames import Call, Construct, DictItems, Done, Items, Prepare, Scalar, TensorView
from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.model_call import seed_torch
from evaluator.protocol.pytree import tensors_of
from evaluator.records import (
    ElementFormat,
    Formats,
    Mode,
    OutputFormat,
    Precision,
    Problem,
    SizeName,
    Status,
    ToleranceOverride,
    ToleranceRule,
    cases_of,
)
from evaluator.runner import main, submission_module
from evaluator.runner.main import Runner
from evaluator.runner.shared_memory import HostArena, Outbox, Shared, to_tensor

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {output}

def get_inputs():
    return [{input}]

def get_init_inputs():
    return []
"""
ROOM = 1 << 18


def problem(output: str, given: str, *, backward: bool = False) -> Problem:
    return Problem(
        name="p",
        title="p",
        level=1,
        description="",
        origin="shipped",
        path="reference.py",
        source=REFERENCE.format(output=output, input=given),
        sha256="0" * 64,
        cases=cases_of({SizeName.FULL: {}}),
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=backward,
        tolerance=ToleranceOverride(),
        split={},
    )


class SameProcess:
    """A clock whose runner is here: the frames are answered by the runner's own code."""

    memory_samples = None

    def __init__(self, runner: Runner, spoil) -> None:
        self._runner = runner
        self._spoil = spoil
        self.limits_s = []

    def prepare(self, frame, *, timeout_s):
        return self._runner._answer(frame)

    def call(self, frame, write, outline, *, timeout_s, queued_timeout_s, asks_late):
        self.limits_s.append((timeout_s, queued_timeout_s))
        write()
        return ClockedCall(self._spoil(self._runner._answer(frame)), 1.0)


@pytest.fixture
def trial_runner(tmp_path):
    """Make a bench of a reference and of a submission given as forward's expression."""
    with HostRegion(4 * ROOM) as inputs, HostRegion(4 * ROOM) as outputs:

        def make(given, output, answer=None, *, backward=False, spoil=lambda done: done, **settings):
            reference = Reference(problem(output, given, backward=backward), SizeName.FULL, 1)
            runner = Runner(None, tmp_path)
            runner._memory = Shared(inputs.flat, HostArena(outputs.flat, ROOM), None, None)
            text = REFERENCE.format(output=answer or output, input="").replace("class Model(", "class ModelNew(")
            space = {}
            exec(text.partition("def get_inputs")[0], space)
            runner._model_new = space["ModelNew"]
            placed = lay_out([("state", reference.state())], inputs)
            placed.write()
            (state,) = placed.nodes
            none = Items(is_tuple=False, items=[])
            construct = Construct(
                weight_seed=1, mode=ModelMode.TRAIN, args=none, kwargs=DictItems(keys=[], items=[]), state=state
            )
            assert runner._answer(construct).difference is None
            once = reference.draw(0)
            reference.settle(once, reference.forward(once, 0))
            memory = SharedMemory(inputs, outputs, ROOM, None, 2 * ROOM)
            return TrialRunner(reference, SameProcess(runner, spoil), memory, ToleranceRule.MEASURED, None, **settings)

        yield make


def trials(trial_runner, count=3):
    return [trial_runner.run(index, fresh_seed(), timeout_s=1) for index in range(count)]


def test_only_a_first_call_that_has_not_queued_its_work_may_take_longer(trial_runner):
    made = trial_runner("torch.rand(8)", "x * 2", first_call_s=10.0)
    trials(made, 2)
    assert made._clock.limits_s == [(10.0, 1), (1, 1)]


def test_the_pace_leaves_out_the_first_call_which_may_build_or_tune(trial_runner, monkeypatch):
    made = trial_runner("torch.randn(16, 6)", "x * 2")
    clock = itertools.accumulate([0, 60, 0, 2, 0, 4])
    assert made.pace_s == 0.0
    monkeypatch.setattr("evaluator.judge.trial.trial_runner.time", SimpleNamespace(monotonic=lambda: next(clock)))
    for index, pace_s in enumerate((0.0, 2.0, 3.0)):
        made.run(index, 70 + index, timeout_s=1)
        assert made.pace_s == pace_s


def test_empty_calls_have_inputs_that_are_drawn_once(trial_runner, monkeypatch):
    made = trial_runner("torch.rand(8)", "x * 2")
    trials(made, 1)
    drawn = []
    draw = made._reference.draw
    monkeypatch.setattr(made._reference, "draw", lambda *asked: drawn.append(asked) or draw(*asked))
    answers = list(itertools.islice(made.run_empty(timeout_s=1), 4))
    assert [answer.done.index for answer in answers] == [0, 1, 2, 3]
    assert len(drawn) == 1


HONEST = {
    "a matrix": ("torch.rand(8, 8)", "x * 2"),
    "a number as a tensor": ("torch.rand(())", "x * 2"),
    "half precision": ("torch.rand(8).half()", "x * 2"),
    "complex": ("torch.rand(8, dtype=torch.complex64)", "x * 2"),
    "lazily conjugated": ("torch.rand(8, dtype=torch.complex64).conj()", "x * 2"),
    "booleans": ("torch.rand(8) > 0.5", "~x"),
    "an empty input beside": ("(torch.rand(8), torch.rand(0))", "x[0] + x[1].sum()"),
    "an input that requires gradients": ("torch.rand(8, requires_grad=True) * 2", "x * 2"),
    "NaN and infinity": ("torch.tensor([float('nan'), float('inf'), 1.0])", "x * 2"),
    "several outputs": ("torch.rand(8)", "{'a': (x + 1, x.argmax()), 'b': [3, 'text', None]}"),
    "an element of every fifth": ("torch.rand(8)[::5][:1]", "x * 2"),
    "the input itself": ("torch.rand(2000)", "x"),
    "a mean as a number": ("torch.rand(8)", "(x * 2, x.mean().item())"),
    "a number that is none": ("torch.rand(8)", "(x * 2, float('nan'), float('-inf'), 0.0, 1e300)"),
    "the input overwritten": ("torch.rand(8)", "x.mul_(2).add_(1)"),
    "one of two inputs overwritten": ("(torch.rand(8), torch.rand(8))", "x[0] + x[1].mul_(2)"),
    "a view of the input": ("torch.rand(2000)", "x[100:].reshape(100, 19)"),
}


@pytest.mark.parametrize(("given", "output"), HONEST.values(), ids=HONEST)
def test_the_reference_passes_its_own_check(trial_runner, given, output):
    for trial in trials(trial_runner(given, output), 8):
        assert trial.fault is None
        assert trial.check.ok
        assert trial.check.tensors
        assert trial.copied


_COMPLEX = "torch.rand(8, 60, dtype=torch.complex64)"
LAZY = {
    "conjugated": (_COMPLEX, "torch.fft.fft(x).conj()", "torch.fft.fft(x).conj().resolve_conj()"),
    "adjoint": (_COMPLEX, "(x * 2).mH", "(x * 2).mH.resolve_conj()"),
    "imaginary part": (_COMPLEX, "(x * 2).conj().imag", "-(x * 2).imag"),
    "negative view": ("torch.rand(8, 60)", "torch._neg_view(x * 2)", "x * -2"),
    "two of them": (
        _COMPLEX,
        "[(x * 2).conj(), (x * 3).conj().imag]",
        "[(x * 2).conj().resolve_conj(), -(x * 3).imag]",
    ),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("sides", ["both", "reference", "submission"])
@pytest.mark.parametrize(("given", "lazy", "written_out"), LAZY.values(), ids=LAZY)
def test_an_output_with_a_lazy_bit_is_right_and_kept_as_it_is_read(
    trial_runner, monkeypatch, given, lazy, written_out, sides, backward
):
    read = []
    asked = HostArena.copy
    monkeypatch.setattr(HostArena, "copy", lambda arena, tensor: read.append(tensor.data_ptr()) or asked(arena, tensor))
    output, answer = (written_out if sides == side else lazy for side in ("submission", "reference"))
    made = trial_runner(given, output, answer, backward=backward)
    for trial in trials(made, 4):
        assert trial.fault is None
        (held,) = made._clock._runner._held[-1]
        kept = [*tensors_of(held.outputs), *(held.gradients or {}).values()]
        assert [tensor.data_ptr() for tensor in kept if tensor is not None] == read[-len(kept) :]


class _Negated(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return torch._neg_view(gradient * -2)


def test_a_gradient_with_a_lazy_bit_is_right(trial_runner):
    made = trial_runner("torch.rand(8)", "x * 2", "negated(x)", backward=True)
    type(made._clock._runner._model).forward.__globals__["negated"] = _Negated.apply
    for trial in trials(made, 4):
        assert trial.fault is None
        assert len(trial.check.tensors) == 2


@pytest.mark.parametrize(("given", "output"), HONEST.values(), ids=HONEST)
def test_a_quick_trial_of_the_references_own_answer_needs_no_float64(trial_runner, given, output):
    made = trial_runner(given, output)
    with pytest.MonkeyPatch.context() as patch:
        if "nan" not in given + output:  # Not a number equals nothing, and is left to the comparison.
            patch.setattr(made._reference, "_exact", None)
        for index in range(3):
            assert made.run(index, fresh_seed(), timeout_s=1, quick=True).fault is None


def test_a_quick_trial_of_another_answer_is_compared_in_float64(trial_runner):
    given = "torch.rand(8, 8)"
    near = trial_runner(given, "x * 2", "x * 2 * (1 + 2e-7)").run(0, fresh_seed(), timeout_s=1, quick=True)
    assert (near.fault, near.check.precision, len(near.check.tensors)) == (None, "float64", 1)
    wrong = trial_runner(given, "x * 2", "x * 2.01").run(0, fresh_seed(), timeout_s=1, quick=True)
    assert wrong.fault.finding.code == Code.WRONG_VALUES.value


def compared(made, seed):
    """Compare a call as those of a window are: its values are no samples."""
    plan = made._plan(seed, ())
    wanted = made._answers.begin(plan)
    placed, answer = made.call_driver.ask(1, plan, wanted, schedule=None, timeout_s=1)
    return made.compared(1, plan, placed, answer)


@pytest.mark.parametrize(("given", "output"), [("torch.randn(9, 300)", "x * 2"), ("torch.randn(64)", "(x * 2, x + 1)")])
def test_a_windows_call_near_the_reference_needs_no_float64(trial_runner, monkeypatch, given, output):
    made = trial_runner(given, output, output.replace("x * 2", "x * 2 * (1 + 2e-7)"))
    assert made.run(0, fresh_seed(), timeout_s=1).check.precision == "float64"
    monkeypatch.setattr(made._reference, "_exact", None)
    for _ in range(3):
        assert compared(made, fresh_seed()).fault is None


def test_the_reference_in_a_runner_needs_no_float64_where_it_rounds_otherwise(trial_runner, monkeypatch):
    made = trial_runner("torch.randn(9, 300)", "x * 2", "x * 2 * (1 + 2e-7)", trusted=True)
    monkeypatch.setattr(made._reference, "_exact", None)
    for index in range(3):
        assert made.run(index, fresh_seed(), timeout_s=1, quick=True).fault is None
    far = trial_runner("torch.randn(9, 300)", "x * 2", "x * 2.01", trusted=True)
    assert far.run(0, fresh_seed(), timeout_s=1, quick=True).fault.finding.code == Code.WRONG_VALUES.value


@pytest.mark.parametrize(
    ("given", "output", "answer"),
    [
        ("torch.randn(9, 300)", "x * 2", "x * 2 * (1 + 4e-5)"),  # 0.8 of the floor
        ("torch.randn(9, 3)", "x * 2", "x * 2 * (1 + 2e-7)"),  # columns have sizes
        ("torch.randn(300)", "(x * 2, x > 0)", "(x * 2 * (1 + 2e-7), x > 0)"),  # booleans are equal, or not
    ],
)
def test_other_calls_of_a_window_are_compared_in_float64(trial_runner, given, output, answer):
    made = trial_runner(given, output, answer)
    made.run(0, fresh_seed(), timeout_s=1)
    for _ in range(2):
        trial = compared(made, fresh_seed())
        assert (trial.fault, trial.check.precision) == (None, "float64")


def test_a_wrong_call_of_a_window_is_wrong_after_right_ones(trial_runner):
    made = trial_runner("torch.randn(9, 300)", "x * 2", "x * 2 * (1 + 2e-7 + (x[0, 0] > 0) * 1e-3)")
    right = [compared(made, seed).fault is None for seed in range(40)]
    assert True in right
    assert False in right
    assert right == [bool(made._plan(seed, ()).inputs.args[0][0, 0] <= 0) for seed in range(40)]


WRONG = {
    "another factor": ("torch.rand(8)", "x * 2", "x * 2.01", Code.WRONG_VALUES),
    "NaN": ("torch.rand(8)", "x * 2", "x / 0 * 0", Code.NOT_FINITE),
    "another shape": ("torch.rand(8)", "x * 2", "(x * 2)[None]", Code.WRONG_SHAPE),
    "empty": ("torch.rand(8)", "x * 2", "(x * 2)[:0]", Code.WRONG_SHAPE),
    "double precision": ("torch.rand(8)", "x * 2", "x.double() * 2", Code.WRONG_DTYPE),
    "a tuple": ("torch.rand(8)", "x * 2", "(x * 2,)", Code.WRONG_STRUCTURE),
    "a list of numbers": ("torch.rand(8)", "x * 2", "(x * 2).tolist()", Code.WRONG_STRUCTURE),
    "nothing": ("torch.rand(8)", "x * 2", "None", Code.NOT_A_TENSOR),
    "on no device": ("torch.rand(8)", "x * 2", "(x * 2).to('meta')", Code.WRONG_DEVICE),
    "the input overwritten": ("torch.rand(8)", "x * 2", "x.mul_(2)", Code.INPUT_CHANGED),
    "a number overwritten": ("torch.rand(())", "x * 2", "x.mul_(2) + 0", Code.INPUT_CHANGED),
    "one of two values": ("torch.rand(8)", "(x * 2, 3)", "(x * 2, 4)", Code.WRONG_VALUES),
    "another mean": (
        "torch.rand(8)",
        "(x * 2, x.mean().item())",
        "(x * 2, x.mean().item() * 1.001)",
        Code.WRONG_VALUES,
    ),
    "no mean": ("torch.rand(8)", "(x * 2, x.mean().item())", "(x * 2, float('nan'))", Code.NOT_FINITE),
    "another large number": ("torch.rand(8)", "(x * 2, 1e300)", "(x * 2, 2e300)", Code.WRONG_VALUES),
    "a tensor for a number": (
        "torch.rand(8)",
        "(x * 2, x.mean().item())",
        "(x * 2, x.mean())",
        Code.WRONG_STRUCTURE,
    ),
    "another input overwritten": (
        "(torch.rand(8), torch.rand(8))",
        "x[0] + x[1].mul_(2)",
        "x[0].add_(x[1] * 2) + 0",
        Code.INPUT_CHANGED,
    ),
}


@pytest.mark.parametrize(("given", "output", "answer", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_seen(trial_runner, given, output, answer, code):
    (trial,) = trials(trial_runner(given, output, answer), 1)
    assert trial.fault.status is Status.WRONG_RESULT
    assert trial.fault.finding.code == code.value
    assert not trial.check.ok
    assert trial.check.finding == trial.fault.finding


def test_a_number_may_be_off_as_a_tensor_of_one_element_may(trial_runner):
    given, wanted = "torch.randn(64, 64)", "(x * 2, x.square().mean().item())"
    made = trial_runner(given, wanted, "(x * 2, (torch.dot(x.view(-1), x.view(-1)) / x.numel()).item() * (1 + 1e-6))")
    for trial in [*trials(made), made.run(3, fresh_seed(), timeout_s=1, quick=True)]:
        assert trial.fault is None
        assert [check.path for check in trial.check.tensors] == ["output[0]", "output[1]"]


def test_an_input_that_the_reference_writes_into_may_be_written_into(trial_runner):
    for output, answer in (("x.mul_(2)", "x * 2"), ("x.mul_(2)", "x.mul_(2) + 0"), ("x.mul_(2) + 0", "x * 2")):
        assert all(trial.fault is None for trial in trials(trial_runner("torch.rand(8)", output, answer)))


def test_an_output_in_the_last_ones_memory_is_seen(trial_runner):
    kept = "self.__dict__.setdefault('y', torch.empty(8)).copy_(x)"
    first, second = trials(trial_runner("torch.rand(8)", "x * 1", kept), 2)
    assert first.fault is None
    assert second.fault.finding.code == Code.OUTPUT_REUSED.value


def test_an_output_that_is_kept_is_allowed_where_the_reference_keeps_it_as_a_weight(trial_runner):
    weight = "(x * 2, self._parameters.setdefault('w', torch.nn.Parameter(torch.ones(8))))"
    assert all(trial.fault is None for trial in trials(trial_runner("torch.rand(8)", weight)))


def test_a_wrong_gradient_is_seen(trial_runner):
    right = trial_runner("torch.rand(8)", "x * x", backward=True)
    assert [check.path for check in trials(right, 1)[0].check.tensors] == ["output", "gradient of input 0"]
    (trial,) = trials(trial_runner("torch.rand(8)", "x * x", "x * x.detach()", backward=True), 1)
    assert trial.fault.finding.code == Code.WRONG_VALUES.value
    assert trial.fault.finding.message.startswith("gradient of input 0")
    (trial,) = trials(trial_runner("torch.rand(8)", "x * x", "(x * x).detach()", backward=True), 1)
    assert trial.fault.finding.code == Code.NO_GRADIENT.value


def test_the_gradient_of_an_input_that_was_made_to_require_one_is_checked(trial_runner):
    given = "torch.rand(8, requires_grad=True) * 2"
    (trial,) = trials(trial_runner(given, "x * x", "x * x.detach()", backward=True), 1)
    assert trial.fault.finding.code == Code.WRONG_VALUES.value


def test_what_the_runner_is_told_before_it_may_go_tells_nothing_of_what_is_propagated_back(trial_runner):
    told = []
    made = trial_runner("torch.rand(8)", "x * x", backward=True)
    prepared, called = made._clock.prepare, made._clock.call
    made._clock.prepare = lambda frame, **rest: (told.append(frame), prepared(frame, **rest))[1]
    made._clock.call = lambda frame, *rest, **more: (told.append(frame), called(frame, *rest, **more))[1]
    made.run(0, 5, timeout_s=1)
    prepare, go = told
    view = go.output_gradients.items[0]
    gradient = to_tensor(view, made.call_driver._inputs.flat).clone()
    assert prepare == Prepare(index=0, token=prepare.token, poison=prepare.poison, ahead_bytes=prepare.ahead_bytes)
    for seed in (go.random_seed, 5):
        assert not torch.equal(gradient, made._reference.output_gradients(torch.zeros(8), seed)[0])


def test_the_seed_of_a_call_comes_with_the_call_and_with_an_empty_one_too(trial_runner):
    made = trial_runner("torch.rand(8)", "x + torch.randn(8)")
    seeded = []
    prepared, called = made._clock.prepare, made._clock.call

    def watched(frame, answer):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(main, "seed_torch", lambda seed: (seeded.append((type(frame), seed)), seed_torch(seed)))
            return answer()

    made._clock.prepare = lambda frame, **rest: watched(frame, lambda: prepared(frame, **rest))
    made._clock.call = lambda frame, *rest, **more: watched(frame, lambda: called(frame, *rest, **more))
    assert made.run(0, 5, timeout_s=1).fault is None
    assert seeded == [(Call, derived(5, b"in forward"))]
    next(made.run_empty(timeout_s=1))
    assert [kind for kind, _ in seeded] == [Call, Call]


@pytest.mark.parametrize(
    ("output", "draws"), [("x * 2", False), ("x + torch.randn(8)", True), ("torch.nn.functional.dropout(x)", True)]
)
def test_a_clock_is_told_whether_the_question_has_a_secret_in_it(trial_runner, output, draws):
    made = trial_runner("torch.rand(8)", output)
    asked_late = []
    called = made._clock.call
    made._clock.call = lambda *rest, **more: (asked_late.append(more["asks_late"]), called(*rest, **more))[1]
    assert made.run(0, 5, timeout_s=1).fault is None
    next(made.run_empty(timeout_s=1))
    assert asked_late == [draws, draws]


def test_a_place_outside_of_the_memory_is_tampering(trial_runner):
    def spoil(done):
        return replace(done, outputs=replace(done.outputs, offset_bytes=2**60)) if views(done.outputs) else done

    (trial,) = trials(trial_runner("torch.rand(8)", "x * 2", spoil=spoil), 1)
    assert trial.fault.status is Status.REJECTED
    assert trial.fault.finding.code == Code.MALFORMED_FRAME.value


def test_an_output_without_room_in_the_memory_is_no_tampering(trial_runner):
    def spoil(done):
        return replace(done, outputs=replace(done.outputs, offset_bytes=None)) if views(done.outputs) else done

    (trial,) = trials(trial_runner("torch.rand(8)", "x * 2", spoil=spoil), 1)
    assert trial.fault.status is Status.RUNTIME_ERROR
    assert trial.fault.finding.code == Code.OUT_OF_MEMORY.value
    assert "the memory for outputs is exhausted" in trial.fault.finding.message


def test_an_answer_nested_as_deeply_as_may_be_does_not_end_the_judge(trial_runner):
    def spoil(done):
        if not isinstance(done.outputs, TensorView):
            return done
        node = done.outputs
        for _ in range(20_000):
            node = Items(is_tuple=True, items=[node])
        return replace(done, outputs=node)

    (trial,) = trials(trial_runner("torch.rand(8)", "x * 2", spoil=spoil), 1)
    assert trial.fault.finding.code == Code.WRONG_STRUCTURE.value


def folded(done):
    """Describe the rows of an output as one and the same row."""
    view = done.outputs
    return replace(done, outputs=replace(view, strides=(0, 1))) if isinstance(view, TensorView) else done


@pytest.mark.parametrize("quick", [False, True])
def test_an_output_that_repeats_a_row_is_wrong_where_the_reference_writes_all(trial_runner, quick):
    made = trial_runner("torch.rand(1, 64)", "(x * 2).repeat(8, 1)", spoil=folded)
    trial = made.run(0, fresh_seed(), timeout_s=1, quick=quick)
    assert trial.fault.status is Status.WRONG_RESULT
    assert trial.fault.finding.code == Code.SHARED_ELEMENTS.value


def test_it_is_right_where_the_reference_repeats_it_itself(trial_runner):
    made = trial_runner("torch.rand(1, 64)", "(x * 2).expand(8, 64)", spoil=folded)
    assert all(trial.fault is None for trial in trials(made))


def test_an_output_that_repeats_a_row_is_wrong_where_the_reference_is_computed_in_blocks(trial_runner, monkeypatch):
    made = trial_runner("torch.rand(8, 1, 64)", "(x * 2).repeat(1, 8, 1)", spoil=folded_within)
    reference = made._reference
    made._answers._outline = reference.outline
    monkeypatch.setattr(reference, "blocks", lambda given: [Arguments([part], {}) for part in given.args[0].split(4)])
    (trial,) = trials(made, 1)
    assert trial.fault.finding.code == Code.SHARED_ELEMENTS.value


@pytest.mark.parametrize("shape", ["[:, 0]", "[:, :1]"])
def test_a_single_row_is_measured_as_a_whole_where_the_reference_is_computed_in_blocks(
    trial_runner, monkeypatch, shape
):
    """The last block has one element, which is small because its terms cancel."""
    given = "torch.cat([torch.rand(8, 2) + 1, torch.tensor([[1e-4, 0.0]])])"
    for error, code in ((2e-5, None), (2e-3, Code.WRONG_VALUES.value)):
        answer = f"(x + (x < 1e-3) * {error}){shape}"
        made = trial_runner(given, f"(x * 1){shape}", answer)
        reference = made._reference
        made._answers._outline = reference.outline
        monkeypatch.setattr(
            reference, "blocks", lambda given: [Arguments([part], {}) for part in given.args[0].split(4)]
        )
        (trial,) = trials(made, 1)
        assert (trial.fault and trial.fault.finding.code) == code
        (check,) = trial.check.tensors
        assert check.shape[0] == 9
        assert code is None or check.first_mismatch.index[0] == 8


@pytest.mark.parametrize(
    "output",
    [
        "(x * 1)[:, 0]",
        "self.__dict__.setdefault(f'{len(x)} {x.dtype}', torch.empty_like(x)).copy_(x)[:, 0]",
    ],
    ids=["a view", "a view of memory that each block overwrites"],
)
def test_a_single_row_in_blocks_is_kept_without_the_memory_of_the_blocks(trial_runner, monkeypatch, output):
    made = trial_runner("torch.rand(8, 100)", output, "x[:, 0] * 1")
    reference = made._reference
    made._answers._outline = reference.outline
    monkeypatch.setattr(reference, "blocks", lambda given: [Arguments([part], {}) for part in given.args[0].split(4)])
    held_bytes = []
    cat = torch.cat
    with monkeypatch.context() as patch:
        patch.setattr(
            torch,
            "cat",
            lambda pieces: held_bytes.append([each.untyped_storage().nbytes() for each in pieces]) or cat(pieces),
        )
        (trial,) = trials(made, 1)
    assert trial.fault is None
    assert held_bytes == [[32, 32], [16, 16]]


def test_a_single_row_with_scales_is_compared_in_parts_beside_the_parts_of_its_scales(trial_runner, monkeypatch):
    given, output = "torch.randint(16, (32,), dtype=torch.uint8) * 16 + 7", "(x * 1, x[::16] // 8 + 112)"
    outcomes = []
    for answer in (output, "(x ^ (torch.arange(len(x)) == 20).to(x.dtype) * 8, x[::16] // 8 + 112)"):
        made = trial_runner(given, output, answer)
        reference = made._reference
        formats = Formats(outputs={"output[0]": OutputFormat(ElementFormat.MXFP4, "output[1]")})
        reference.problem = replace(reference.problem, formats=formats)
        made._answers._outline = reference.outline
        monkeypatch.setattr(
            reference, "blocks", lambda given: [Arguments([part], {}) for part in given.args[0].split(16)]
        )
        outcomes += [trial.fault and trial.fault.finding.code for trial in trials(made, 1)]
    assert outcomes == [None, Code.WRONG_VALUES.value]


CANCELLING = "(lambda half: torch.cat([half, half.flip(1) * -(1 + {})], 1))(torch.rand({}, 128) + 1)"


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("rows", "code"),
    [("torch.rand(8, 256) + 1", Code.WRONG_VALUES.value), (CANCELLING.format(1e-3, 8), None)],
    ids=["rows of positive numbers", "rows that cancel"],
)
def test_the_rounding_of_a_single_row_in_blocks_is_relative_to_the_whole_row(
    trial_runner, monkeypatch, keepdim, rows, code
):
    """The last block has one element, of the size of its own rounding: any answer of this size would be right."""
    total = f"x.sum(1, keepdim={keepdim})"
    tolerances = []
    for each in (4, 9):
        made = trial_runner(f"torch.cat([{rows}, {CANCELLING.format(1e-6, 1)}])", total, f"{total} * (1 + 1e-3)")
        reference = made._reference
        made._answers._outline = reference.outline
        monkeypatch.setattr(
            reference,
            "blocks",
            lambda given, each=each: [Arguments([part], {}) for part in given.args[0].split(each)],
        )
        trial = made.run(0, 70, timeout_s=1)
        assert (trial.fault and trial.fault.finding.code) == code
        tolerances += [check.tolerance for check in trial.check.tensors]
    in_blocks, whole = tolerances
    assert in_blocks == pytest.approx(whole, rel=0.2)  # Roundings are drawn for each block.
    assert (whole > 5e-4) == (code is None)


def folded_within(done):
    view = done.outputs
    return replace(done, outputs=replace(view, strides=(512, 0, 1))) if isinstance(view, TensorView) else done


def test_the_same_seed_draws_the_same_and_fresh_seeds_differ(trial_runner):
    made = trial_runner("torch.rand(8)", "x * 2")
    one, same, other = (made._reference.draw(seed).args[0] for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len({fresh_seed() for _ in range(50)}) == 50
    assert all(0 <= fresh_seed() < 2**63 for _ in range(50))


def test_an_error_that_cannot_be_encoded_is_still_described(tmp_path):
    failed = submission_module.describe(ValueError("bad \udcff name"))
    assert failed.message == "bad ? name"


def test_frames_hold_what_honest_outputs_are_made_of():
    with HostRegion(ROOM) as region:
        outbox = Outbox(HostArena(region.flat, ROOM))
        value = (np.float64(1.5), True, 2**70, object(), "x" * 5000, {1: None, (1, 2): torch.zeros(2)})
        done = Done(index=0, outputs=outbox.from_value(value))
        answer = msgspec.msgpack.decode(msgspec.msgpack.encode(done), type=Done)
        assert answer == done
        assert answer.outputs.items[0] == Scalar(value=1.5)
        del outbox


LONG = ("torch.rand(24, 8192)", "x @ x.t()")
IN_TF32 = "(lambda y: y @ y.t())(((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32))"


def test_a_right_answer_in_tf32_is_seen_when_it_is_looked_at_closely(trial_runner):
    made = trial_runner(*LONG, IN_TF32)
    checks = [trial.check for trial in trials(made)]
    assert all(check.ok for check in checks)
    looked = made.look_closely()
    assert (looked.fault.status, looked.fault.finding.code) == (Status.WRONG_RESULT, Code.LOWER_PRECISION.value)
    assert looked.check.finding == looked.fault.finding
    (same,) = [check for check in checks if check.seed == looked.check.seed]
    assert same == replace(looked.check, ok=True, finding=None)


IN_BF16 = "(x.bfloat16().float() @ x.t().bfloat16().float()) + 0"


def call_of_a_window(made, seed):
    """Make a call as one of a window, of which no sample is drawn, after a first call."""
    (plan,) = made.plans(1, [seed])
    placed, answer = made.call_driver.ask(1, plan, made._answers.begin(plan), schedule=None, timeout_s=1)
    return made.compared(1, plan, placed, answer)


def test_a_right_call_of_a_window_is_not_sampled(trial_runner, monkeypatch):
    sampled = []
    monkeypatch.setattr(PrecisionWatch, "add", lambda *_, **__: sampled.append(1))
    made = trial_runner("torch.rand(24, 64)", "x * 1.1", "x * 0.6 + x * 0.5")
    (first,) = trials(made, 1)
    assert first.check.ok
    assert len(sampled) == 1
    right = call_of_a_window(made, fresh_seed())
    assert right.check.ok
    assert right.check.precision == "float64"  # compared, not equal to the plain reference
    assert len(sampled) == 1


def test_the_cause_of_a_wrong_call_of_a_window_is_found(trial_runner):
    made = trial_runner("torch.randn(64, 64)", "x @ x.t()", IN_BF16)
    single = made.run(0, seed := fresh_seed(), timeout_s=1)
    in_window = call_of_a_window(made, seed)
    for trial in (single, in_window):
        assert trial.fault.finding.code == Code.LOWER_PRECISION.value
    assert in_window.fault.finding.message == single.fault.finding.message
    assert in_window.check.tensors == single.check.tensors


def test_the_first_comparison_of_a_wrong_call_is_the_verdict(trial_runner, monkeypatch):
    """A submission's kernel may still write right values after the comparison."""
    made = trial_runner("torch.randn(64, 64)", "x @ x.t()", IN_BF16)
    made.run(0, fresh_seed(), timeout_s=1)
    begun = []

    def repairing(path, sides, limit):
        begun.append(path)
        return begin(path, sides if len(begun) == 1 else sides._replace(actual=sides.honest), limit)

    monkeypatch.setattr(made._answers, "_comparison", repairing)
    trial = call_of_a_window(made, fresh_seed())
    assert len(begun) == 2
    assert trial.fault is not None
    assert trial.check.tensors[0].mismatches > 0


@pytest.mark.parametrize("failure", [MemoryError("taken"), ProblemError("changed its mind")])
def test_a_wrong_call_whose_cause_cannot_be_computed_stays_wrong(trial_runner, monkeypatch, failure):
    made = trial_runner("torch.randn(64, 64)", "x @ x.t()", IN_BF16)
    made.run(0, fresh_seed(), timeout_s=1)
    begun = []

    def failing(path, sides, limit):
        begun.append(path)
        if len(begun) > 1:
            raise failure
        return begin(path, sides, limit)

    monkeypatch.setattr(made._answers, "_comparison", failing)
    trial = call_of_a_window(made, fresh_seed())
    assert len(begun) == 2
    assert trial.fault.status is Status.WRONG_RESULT
    assert trial.check.tensors[0].mismatches > 0


@pytest.mark.parametrize("answer", [None, "x.flip(-1) @ x.flip(-1).t()", "(x.double() @ x.double().t()).float()"])
def test_an_honest_answer_bears_to_be_looked_at_closely(trial_runner, answer):
    made = trial_runner(*LONG, answer)
    assert made.look_closely() is None
    assert all(trial.fault is None for trial in trials(made))
    assert made.look_closely() is None


def test_kernelbenchs_rule_allows_what_is_within_it(trial_runner):
    made = trial_runner(*LONG, IN_TF32)
    trials(made)
    made._answers.rule = ToleranceRule.KERNELBENCH
    assert made.look_closely() is None


def test_each_right_call_may_be_the_one_that_is_looked_at():
    drawn = set()
    for _ in range(100):
        watch = PrecisionWatch(Precision.FP32)
        for seed in range(3):
            watch.begin(1)
            values = torch.rand(64)
            watch.add(0, "output", Sides(values, values.double(), values), in_float64=True)
            watch.draw_lots(seed, None)
        ((one,),) = watch.drawn
        drawn.add(one.seed)
    assert drawn == {0, 1, 2}


def test_of_small_outputs_many_right_calls_are_drawn_if_there_are_as_many():
    watch = PrecisionWatch(Precision.FP32)
    numbers = []
    for seed in range(100):
        watch.begin(1)
        for path, size in (("output[0]", 63), ("output[1]", 64)):
            values = torch.rand(size)
            watch.add(0, path, Sides(values, values.double(), values), in_float64=True)
        watch.draw_lots(seed, None)
        numbers.append([len(each) for each in watch.drawn])
    assert numbers == [[1]] * 19 + [[1, count] for count in range(20, 32)] + [[1, 32]] * 69
    (one,), many = watch.drawn
    assert set(one.sample.outputs) == {"output[1]"}
    assert {path for each in many for path in each.sample.outputs} == {"output[0]"}
    assert len({each.seed for each in many}) == 32
    assert max(each.seed for each in many) > 32  # Not the first ones.


LOSS = ("torch.randn(256, 64)", "torch.nn.functional.mse_loss(x[:, :32], x[:, 32:])")
IN_HALF = "torch.nn.functional.mse_loss(x[:, :32].half().float(), x[:, 32:].half().float())"


def test_a_right_number_in_half_precision_is_seen_over_many_calls(trial_runner):
    made = trial_runner(*LOSS, IN_HALF)
    assert all(trial.check.ok for trial in trials(made, 19))
    assert made.look_closely() is None
    checks = [trial.check for trial in trials(made, 10)]
    looked = made.look_closely()
    assert (looked.fault.status, looked.fault.finding.code) == (Status.WRONG_RESULT, Code.LOWER_PRECISION.value)
    assert "over 29 calls" in looked.fault.finding.message
    assert all(check.ok for check in checks)


def test_more_calls_are_wanted_until_there_are_enough_to_look_at_one_number(trial_runner):
    made = trial_runner(*LOSS)
    assert not made.lacks_calls  # The form of an output is not known yet.
    wanted = []
    for index in range(33):
        # The first answer is the reference's own to the bit, and looked at no further.
        assert made.run(index, fresh_seed(), timeout_s=1, quick=index == 0).fault is None
        wanted.append(made.lacks_calls)
    assert wanted == [True] * 32 + [False]
    made._answers.rule = ToleranceRule.KERNELBENCH
    trials(made, 1)
    assert not made.lacks_calls


@pytest.mark.parametrize("given", [("torch.rand(64, 64)", "x @ x"), ("torch.rand(8).half()", "x * 2")])
def test_where_one_call_says_enough_or_none_does_no_more_are_wanted(trial_runner, given):
    made = trial_runner(*given)
    trials(made, 1)
    assert not made.lacks_calls


@pytest.mark.parametrize("answer", [None, "sum((x[:, :32] - x[:, 32:]).square().flatten().unbind()) / 8192"])
def test_an_honest_number_bears_to_be_looked_at_closely(trial_runner, answer):
    """Added up one after the other it is off by about as much as half precision is."""
    made = trial_runner(*LOSS, answer)
    trials(made, 32)
    assert made.look_closely() is None


@pytest.mark.parametrize(("precision", "in_float64"), [(Precision.BF16, True), (Precision.FP32, False)])
def test_nothing_is_drawn_where_it_could_not_tell(precision, in_float64):
    watch = PrecisionWatch(precision)
    watch.begin(1)
    watch.add(0, "output", Sides(*[torch.rand(64)] * 3), in_float64=in_float64)
    watch.draw_lots(1, None)
    assert watch.drawn == []


NEARLY_EQUAL = "1 + 3e-2 * torch.rand(16, 2048)"
"""The spread is a small difference: rounding of the mean moves it."""
ONE_ACCUMULATOR = "__import__('functools').reduce(torch.add, x.unbind(1)).div(2048).unsqueeze(1)"


def test_rounding_of_the_call_itself_widens_the_tolerance_of_an_answer_that_deviates(trial_runner):
    made = trial_runner(NEARLY_EQUAL, "x - x.mean(1, keepdim=True)", f"x - {ONE_ACCUMULATOR}")
    tolerances = []
    for trial in trials(made, 4):
        assert trial.fault is None
        (check,) = trial.check.tensors
        assert check.error_ratio < 1
        tolerances.append(check.tolerance)
    assert max(tolerances) > 1e-4
    plain = trial_runner(NEARLY_EQUAL, "x - x.mean(1, keepdim=True)")
    assert all(trial.check.tensors[0].tolerance < 1e-4 for trial in trials(plain, 2))


def test_a_textbook_formula_counts_in_a_call_whose_values_it_bears_badly(trial_runner):
    """Where x is about -9, 1 + exp(x) keeps only the first three digits of exp(x)."""
    given = "torch.randn(16, 2048) - 9"
    made = trial_runner(given, "torch.nn.functional.softplus(x)", "torch.log(1 + torch.exp(x))")
    (trial,) = trials(made, 1)
    assert trial.fault is None
    assert trial.check.tensors[0].max_abs_error > 1e-8


@pytest.fixture
def measured(monkeypatch):
    """Return a list with an entry for each call whose rounding is measured."""
    found = []
    monkeypatch.setattr(
        "evaluator.judge.answer.call_limits.rounding_of_call",
        lambda plan, compare: found.append(plan) or rounding_of_call(plan, compare),
    )
    return found


@pytest.mark.parametrize(("wrong", "is_near"), [("x * 1.0 + 1e-3", True), ("x * 2", False)])
def test_a_wrong_answer_stays_wrong_and_far_errors_are_not_explained_at_all(trial_runner, measured, wrong, is_near):
    made = trial_runner("torch.rand(16, 2048)", "x * 1.0", wrong)
    (trial,) = trials(made, 1)
    assert trial.fault.finding.code == Code.WRONG_VALUES.value
    assert len(measured) == is_near


def test_no_rounding_of_a_right_answer_is_measured(trial_runner, measured):
    assert all(
        trial.fault is None for trial in trials(trial_runner("torch.rand(16, 2048)", "x.sum(1)", "x.flip(1).sum(1)"))
    )
    assert measured == []


def test_the_rule_of_kernelbench_knows_no_rounding(trial_runner, measured):
    made = trial_runner("torch.rand(16, 2048)", "x * 1.0", "x * 1.0 + 3e-4")
    made._answers.rule = ToleranceRule.KERNELBENCH
    (trial,) = trials(made, 1)
    assert trial.fault.finding.code == Code.WRONG_VALUES.value
    assert measured == []
