"""One trial, with the runner's own code in this process: answers are judged, for inputs of every form."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.errors import ProblemError
from evaluator.findings import Code
from evaluator.judge.answer.output_checks import views
from evaluator.judge.compare.tensor_comparison import Sides, begin
from evaluator.judge.numerics.precision_sampler import PrecisionWatch
from evaluator.judge.numerics.rounding_of_call import rounding_of_call
from evaluator.judge.reference.derived_seeds import derived
from evaluator.protocol.frames import Call, Prepare, TensorView
from evaluator.protocol.pytree import tensors_of
from evaluator.records import ElementFormat, Formats, OutputFormat, Precision, Status, ToleranceRule
from evaluator.runner import main
from evaluator.runner.shared_memory import HostArena, to_tensor


@pytest.fixture
def trials_of(in_process):
    return in_process.of_expression


def codes(trials):
    return [trial.fault and trial.fault.finding.code for trial in trials]


def test_only_a_first_call_that_has_not_queued_its_work_may_take_longer(trials_of):
    trials = trials_of("torch.rand(8)", "x * 2", first_call_s=10.0)
    trials.several(2)
    assert trials.clock.limits_s == [(10.0, 1), (1, 1)]


def test_the_pace_leaves_out_the_first_call_which_may_build_or_tune(trials_of, monkeypatch):
    trials = trials_of("torch.randn(16, 6)", "x * 2")
    clock = itertools.accumulate([0, 60, 0, 2, 0, 4])
    assert trials.pace_s == 0.0
    monkeypatch.setattr("evaluator.judge.trial.trial_runner.time", SimpleNamespace(monotonic=lambda: next(clock)))
    for index, pace_s in enumerate((0.0, 2.0, 3.0)):
        trials.run(index, 70 + index, timeout_s=1)
        assert trials.pace_s == pace_s


def test_empty_calls_have_inputs_that_are_drawn_once(trials_of, monkeypatch):
    trials = trials_of("torch.rand(8)", "x * 2")
    trials.several(1)
    drawn = []
    draw = trials.reference.draw
    monkeypatch.setattr(trials.reference, "draw", lambda *asked: drawn.append(asked) or draw(*asked))
    answers = list(itertools.islice(trials.run_empty(timeout_s=1), 4))
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
def test_the_reference_passes_its_own_check_and_a_quick_one_without_float64(trials_of, given, output):
    trials = trials_of(given, output)
    for trial in trials.several(4):
        assert trial.fault is None
        assert trial.check.ok
        assert trial.check.tensors
        assert trial.copied
    for trial in trials.several(2, quick=True):
        # Not a number equals nothing, and is left to the comparison.
        assert (trial.fault, trial.check.precision) == (None, "float64" if "nan" in given + output else "reference")


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


@pytest.mark.parametrize("sides", ["both", "reference", "submission"])
@pytest.mark.parametrize(("given", "lazy", "written_out"), LAZY.values(), ids=LAZY)
def test_an_output_with_a_lazy_bit_is_right_and_kept_as_it_is_read(
    trials_of, monkeypatch, given, lazy, written_out, sides
):
    read = []
    copy = HostArena.copy
    monkeypatch.setattr(HostArena, "copy", lambda arena, tensor: read.append(tensor.data_ptr()) or copy(arena, tensor))
    output, answer = (written_out if sides == side else lazy for side in ("submission", "reference"))
    trials = trials_of(given, output, answer, backward=True)
    for _ in range(2):
        assert codes(trials.several(1)) == [None]
        held = trials.clock.last_result
        kept = [each for each in (*tensors_of(held.outputs), *held.gradients.values()) if each is not None]
        assert [tensor.data_ptr() for tensor in kept] == read[-len(kept) :]


class _Negated(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return torch._neg_view(gradient * -2)


def test_a_gradient_with_a_lazy_bit_is_right(trials_of):
    trials = trials_of("torch.rand(8)", "x * 2", "negated(x)", backward=True)
    type(trials.clock.model).forward.__globals__["negated"] = _Negated.apply
    for trial in trials.several():
        assert trial.fault is None
        assert len(trial.check.tensors) == 2


def test_a_quick_trial_of_another_answer_is_compared_in_float64(trials_of):
    given = "torch.rand(8, 8)"
    (near,) = trials_of(given, "x * 2", "x * 2 * (1 + 2e-7)").several(1, quick=True)
    assert (near.fault, near.check.precision, len(near.check.tensors)) == (None, "float64", 1)
    assert codes(trials_of(given, "x * 2", "x * 2.01").several(1, quick=True)) == [Code.WRONG_VALUES.value]


@pytest.mark.parametrize(
    ("given", "output", "error", "precision"),
    [
        ("torch.randn(9, 300)", "x * 2", 2e-7, "reference"),
        ("torch.randn(64)", "(x * 2, x + 1)", 2e-7, "reference"),
        ("torch.randn(9, 300)", "x * 2", 4e-5, "float64"),  # 0.8 of the floor
        ("torch.randn(9, 3)", "x * 2", 2e-7, "float64"),  # columns have sizes
        ("torch.randn(300)", "(x * 2, x > 0)", 2e-7, "float64"),  # booleans are equal, or not
    ],
)
def test_a_windows_call_needs_float64_unless_it_is_near_the_reference(trials_of, given, output, error, precision):
    trials = trials_of(given, output, output.replace("x * 2", f"x * 2 * (1 + {error})"))
    assert trials.several(1)[0].check.precision == "float64"
    for seed in range(2):
        trial = trials.in_window(seed)
        assert (trial.fault, trial.check.precision) == (None, precision)


def test_the_reference_in_a_runner_needs_no_float64_where_it_rounds_otherwise(trials_of):
    given = "torch.randn(9, 300)"
    trials = trials_of(given, "x * 2", "x * 2 * (1 + 2e-7)", trusted=True).several(quick=True)
    assert [(trial.fault, trial.check.precision) for trial in trials] == [(None, "reference")] * 3
    assert codes(trials_of(given, "x * 2", "x * 2.01", trusted=True).several(1, quick=True)) == [
        Code.WRONG_VALUES.value
    ]


def test_a_wrong_call_of_a_window_is_wrong_after_right_ones(trials_of):
    trials = trials_of("torch.randn(9, 300)", "x * 2", "x * 2 * (1 + 2e-7 + (x[0, 0] > 0) * 1e-3)")
    trials.several(1)
    right = [trials.in_window(seed).fault is None for seed in range(12)]
    assert {*right} == {True, False}
    assert right == [bool(plan.inputs.args[0][0, 0] <= 0) for plan in trials.plans(1, range(12))]


WRONG = {
    "another factor": ("torch.rand(8)", "x * 2", "x * 2.01", Code.WRONG_VALUES),
    "NaN": ("torch.rand(8)", "x * 2", "x / 0 * 0", Code.NOT_FINITE),
    "empty": ("torch.rand(8)", "x * 2", "(x * 2)[:0]", Code.WRONG_SHAPE),
    "a list of numbers": ("torch.rand(8)", "x * 2", "(x * 2).tolist()", Code.WRONG_STRUCTURE),
    "on no device": ("torch.rand(8)", "x * 2", "(x * 2).to('meta')", Code.WRONG_DEVICE),
    "the input overwritten": ("torch.rand(8)", "x * 2", "x.mul_(2)", Code.INPUT_CHANGED),
    "a number overwritten": ("torch.rand(())", "x * 2", "x.mul_(2) + 0", Code.INPUT_CHANGED),
    "one of two values": ("torch.rand(8)", "(x * 2, 3)", "(x * 2, 4)", Code.WRONG_VALUES),
    "no mean": ("torch.rand(8)", "(x * 2, x.mean().item())", "(x * 2, float('nan'))", Code.NOT_FINITE),
    "another large number": ("torch.rand(8)", "(x * 2, 1e300)", "(x * 2, 2e300)", Code.WRONG_VALUES),
    "another input overwritten": (
        "(torch.rand(8), torch.rand(8))",
        "x[0] + x[1].mul_(2)",
        "x[0].add_(x[1] * 2) + 0",
        Code.INPUT_CHANGED,
    ),
}


@pytest.mark.parametrize(("given", "output", "answer", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_seen(trials_of, given, output, answer, code):
    (trial,) = trials_of(given, output, answer).several(1)
    assert (trial.fault.status, trial.fault.finding.code) == (Status.WRONG_RESULT, code.value)
    assert not trial.check.ok
    assert trial.check.finding == trial.fault.finding


def test_a_number_may_be_off_as_a_tensor_of_one_element_may(trials_of):
    given, wanted = "torch.randn(64, 64)", "(x * 2, x.square().mean().item())"
    trials = trials_of(given, wanted, "(x * 2, (torch.dot(x.view(-1), x.view(-1)) / x.numel()).item() * (1 + 1e-6))")
    for trial in [*trials.several(), *trials.several(1, quick=True)]:
        assert trial.fault is None
        assert [check.path for check in trial.check.tensors] == ["output[0]", "output[1]"]
    off = "(x * 2, x.square().mean().item() * 1.001)"
    assert codes(trials_of(given, wanted, off).several(1)) == [Code.WRONG_VALUES.value]


@pytest.mark.parametrize(
    ("output", "answer"),
    [("x.mul_(2)", "x * 2"), ("x.mul_(2)", "x.mul_(2) + 0"), ("x.mul_(2) + 0", "x * 2")],
)
def test_an_input_that_the_reference_writes_into_may_be_written_into(trials_of, output, answer):
    assert codes(trials_of("torch.rand(8)", output, answer).several()) == [None] * 3


def test_an_output_in_the_last_ones_memory_is_seen(trials_of):
    kept = "self.__dict__.setdefault('y', torch.empty(8)).copy_(x)"
    assert codes(trials_of("torch.rand(8)", "x * 1", kept).several(2)) == [None, Code.OUTPUT_REUSED.value]


def test_an_output_that_is_kept_is_allowed_where_the_reference_keeps_it_as_a_weight(trials_of):
    weight = "(x * 2, self._parameters.setdefault('w', torch.nn.Parameter(torch.ones(8))))"
    assert codes(trials_of("torch.rand(8)", weight).several()) == [None] * 3


def test_a_wrong_gradient_is_seen(trials_of):
    (right,) = trials_of("torch.rand(8)", "x * x", backward=True).several(1)
    assert [check.path for check in right.check.tensors] == ["output", "gradient of input 0"]
    for given in ("torch.rand(8)", "torch.rand(8, requires_grad=True) * 2"):
        (trial,) = trials_of(given, "x * x", "x * x.detach()", backward=True).several(1)
        assert trial.fault.finding.code == Code.WRONG_VALUES.value
        assert trial.fault.finding.message.startswith("gradient of input 0")
    assert codes(trials_of("torch.rand(8)", "x * x", "(x * x).detach()", backward=True).several(1)) == [
        Code.NO_GRADIENT.value
    ]


def test_what_the_runner_is_told_before_it_may_go_tells_nothing_of_what_is_propagated_back(trials_of):
    trials = trials_of("torch.rand(8)", "x * x", backward=True)
    trials.run(0, 5, timeout_s=1)
    prepare, go = trials.clock.frames
    gradient = to_tensor(go.output_gradients.items[0], trials.inputs).clone()
    assert prepare == Prepare(index=0, token=prepare.token, poison=prepare.poison, ahead_bytes=prepare.ahead_bytes)
    for seed in (go.random_seed, 5):
        assert not torch.equal(gradient, trials.reference.output_gradients(torch.zeros(8), seed)[0])


@pytest.mark.parametrize(
    ("output", "draws"), [("x * 2", False), ("x + torch.randn(8)", True), ("torch.nn.functional.dropout(x)", True)]
)
def test_the_seed_of_a_call_comes_with_it_and_with_an_empty_one_and_a_clock_is_told_of_the_secret(
    trials_of, monkeypatch, output, draws
):
    trials = trials_of("torch.rand(8)", output)
    seeded, seed_torch = [], main.seed_torch

    def noted(seed):
        seeded.append((type(trials.clock.frames[-1]), seed))
        seed_torch(seed)

    monkeypatch.setattr(main, "seed_torch", noted)
    assert trials.run(0, 5, timeout_s=1).fault is None
    next(trials.run_empty(timeout_s=1))
    assert seeded == [(Call, derived(5, b"in forward")), (Call, 0)]
    assert trials.clock.asked_late == [draws, draws]


@pytest.mark.parametrize(
    ("offset_bytes", "status", "code"),
    [(2**60, Status.REJECTED, Code.MALFORMED_FRAME), (None, Status.RUNTIME_ERROR, Code.OUT_OF_MEMORY)],
    ids=["a place outside of the memory is tampering", "no room in the memory is none"],
)
def test_an_output_outside_of_the_memory(trials_of, offset_bytes, status, code):
    def spoil(done):
        return replace(done, outputs=replace(done.outputs, offset_bytes=offset_bytes)) if views(done.outputs) else done

    (trial,) = trials_of("torch.rand(8)", "x * 2", spoil=spoil).several(1)
    assert (trial.fault.status, trial.fault.finding.code) == (status, code.value)


def folded(*strides):
    """Describe the rows of an output as one and the same row."""

    def spoil(done):
        view = done.outputs
        return replace(done, outputs=replace(view, strides=strides)) if isinstance(view, TensorView) else done

    return spoil


@pytest.mark.parametrize("quick", [False, True])
def test_an_output_that_repeats_a_row_is_wrong_where_the_reference_writes_all(trials_of, quick):
    (trial,) = trials_of("torch.rand(1, 64)", "(x * 2).repeat(8, 1)", spoil=folded(0, 1)).several(1, quick=quick)
    assert (trial.fault.status, trial.fault.finding.code) == (Status.WRONG_RESULT, Code.SHARED_ELEMENTS.value)
    itself = trials_of("torch.rand(1, 64)", "(x * 2).expand(8, 64)", spoil=folded(0, 1))
    assert codes(itself.several(quick=quick)) == [None] * 3


def test_an_output_that_repeats_a_row_is_wrong_where_the_reference_is_computed_in_blocks(trials_of, monkeypatch):
    trials = trials_of("torch.rand(8, 1, 64)", "(x * 2).repeat(1, 8, 1)", spoil=folded(512, 0, 1))
    trials.in_blocks(monkeypatch, 4)
    assert codes(trials.several(1)) == [Code.SHARED_ELEMENTS.value]


@pytest.mark.parametrize("shape", ["[:, 0]", "[:, :1]"])
@pytest.mark.parametrize(("error", "code"), [(2e-5, None), (2e-3, Code.WRONG_VALUES.value)])
def test_a_single_row_is_measured_as_a_whole_where_the_reference_is_computed_in_blocks(
    trials_of, monkeypatch, shape, error, code
):
    """The last block has one element, which is small because its terms cancel."""
    given = "torch.cat([torch.rand(8, 2) + 1, torch.tensor([[1e-4, 0.0]])])"
    trials = trials_of(given, f"(x * 1){shape}", f"(x + (x < 1e-3) * {error}){shape}")
    trials.in_blocks(monkeypatch, 4)
    (trial,) = trials.several(1)
    assert codes([trial]) == [code]
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
def test_a_single_row_in_blocks_is_kept_without_the_memory_of_the_blocks(trials_of, monkeypatch, output):
    trials = trials_of("torch.rand(8, 100)", output, "x[:, 0] * 1")
    trials.in_blocks(monkeypatch, 4)
    held_bytes, cat = [], torch.cat

    def noted(pieces):
        held_bytes.append([each.untyped_storage().nbytes() for each in pieces])
        return cat(pieces)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "cat", noted)
        assert codes(trials.several(1)) == [None]
    assert held_bytes == [[32, 32], [16, 16]]


def test_a_single_row_with_scales_is_compared_in_parts_beside_the_parts_of_its_scales(trials_of, monkeypatch):
    given, output = "torch.randint(16, (32,), dtype=torch.uint8) * 16 + 7", "(x * 1, x[::16] // 8 + 112)"
    outcomes = []
    for answer in (output, "(x ^ (torch.arange(len(x)) == 20).to(x.dtype) * 8, x[::16] // 8 + 112)"):
        trials = trials_of(given, output, answer)
        formats = Formats(outputs={"output[0]": OutputFormat(ElementFormat.MXFP4, "output[1]")})
        trials.reference.problem = replace(trials.reference.problem, formats=formats)
        trials.in_blocks(monkeypatch, 16)
        outcomes += codes(trials.several(1))
    assert outcomes == [None, Code.WRONG_VALUES.value]


CANCELLING = "(lambda half: torch.cat([half, half.flip(1) * -(1 + {})], 1))(torch.rand({}, 128) + 1)"


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("rows", "code"),
    [("torch.rand(8, 256) + 1", Code.WRONG_VALUES.value), (CANCELLING.format(1e-3, 8), None)],
    ids=["rows of positive numbers", "rows that cancel"],
)
def test_the_rounding_of_a_single_row_in_blocks_is_relative_to_the_whole_row(
    trials_of, monkeypatch, keepdim, rows, code
):
    """The last block has one element, of the size of its own rounding: any answer of this size would be right."""
    total = f"x.sum(1, keepdim={keepdim})"
    tolerances = []
    for each in (4, 9):
        trials = trials_of(f"torch.cat([{rows}, {CANCELLING.format(1e-6, 1)}])", total, f"{total} * (1 + 1e-3)")
        trials.in_blocks(monkeypatch, each)
        (trial,) = trials.several(1)
        assert codes([trial]) == [code]
        tolerances += [check.tolerance for check in trial.check.tensors]
    in_blocks, whole = tolerances
    assert in_blocks == pytest.approx(whole, rel=0.2)  # Roundings are drawn for each block.
    assert (whole > 5e-4) == (code is None)


LONG = ("torch.rand(24, 8192)", "x @ x.t()")
IN_TF32 = "(lambda y: y @ y.t())(((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32))"


def test_a_right_answer_in_tf32_is_seen_when_it_is_looked_at_closely(trials_of):
    trials = trials_of(*LONG, IN_TF32)
    checks = [trial.check for trial in trials.several()]
    assert all(check.ok for check in checks)
    looked = trials.look_closely()
    assert (looked.fault.status, looked.fault.finding.code) == (Status.WRONG_RESULT, Code.LOWER_PRECISION.value)
    assert looked.check.finding == looked.fault.finding
    (same,) = [check for check in checks if check.seed == looked.check.seed]
    assert same == replace(looked.check, ok=True, finding=None)


IN_BF16 = "(x.bfloat16().float() @ x.t().bfloat16().float()) + 0"


def test_a_right_call_of_a_window_is_not_sampled(trials_of, monkeypatch):
    sampled = []
    monkeypatch.setattr(PrecisionWatch, "add", lambda *_, **__: sampled.append(1))
    trials = trials_of("torch.rand(24, 64)", "x * 1.1", "x * 0.6 + x * 0.5")
    assert codes(trials.several(1)) == [None]
    assert len(sampled) == 1
    right = trials.in_window(5)
    assert (right.fault, right.check.precision) == (None, "float64")  # compared, not equal to the plain reference
    assert len(sampled) == 1


def test_the_cause_of_a_wrong_call_of_a_window_is_found(trials_of):
    trials = trials_of("torch.randn(64, 64)", "x @ x.t()", IN_BF16)
    single, in_window = trials.run(0, 5, timeout_s=1), trials.in_window(5)
    assert codes([single, in_window]) == [Code.LOWER_PRECISION.value] * 2
    assert in_window.fault.finding.message == single.fault.finding.message
    assert in_window.check.tensors == single.check.tensors


@pytest.mark.parametrize("failure", [None, MemoryError("taken"), ProblemError("changed its mind")])
def test_the_first_comparison_of_a_wrong_call_is_the_verdict(trials_of, failure):
    """A submission's kernel may still write right values after the comparison, or take the memory for the cause."""
    begun = []

    def second_is_other(path, sides, limit):
        begun.append(path)
        if len(begun) > 2 and failure is not None:
            raise failure
        return begin(path, sides if len(begun) <= 2 else sides._replace(actual=sides.honest), limit)

    trials = trials_of("torch.randn(64, 64)", "x @ x.t()", IN_BF16, comparison=second_is_other)
    trials.several(1)
    assert len(begun) == 1
    trial = trials.in_window(5)
    assert len(begun) == 3
    assert trial.fault.status is Status.WRONG_RESULT
    assert trial.check.tensors[0].mismatches > 0


LOSS = ("torch.randn(256, 64)", "torch.nn.functional.mse_loss(x[:, :32], x[:, 32:])")


@pytest.mark.parametrize(
    ("given", "output", "answer", "calls", "rule"),
    [
        (*LONG, None, 3, ToleranceRule.MEASURED),
        (*LONG, "x.flip(-1) @ x.flip(-1).t()", 3, ToleranceRule.MEASURED),
        (*LONG, "(x.double() @ x.double().t()).float()", 3, ToleranceRule.MEASURED),
        (*LONG, IN_TF32, 3, ToleranceRule.KERNELBENCH),  # It allows what is within it.
        (*LOSS, None, 32, ToleranceRule.MEASURED),
        # Added up one after the other, a number is off by about as much as half precision is.
        (*LOSS, "sum((x[:, :32] - x[:, 32:]).square().flatten().unbind()) / 8192", 32, ToleranceRule.MEASURED),
    ],
)
def test_an_honest_answer_bears_to_be_looked_at_closely(trials_of, given, output, answer, calls, rule):
    trials = trials_of(given, output, answer, rule=rule)
    assert trials.look_closely() is None
    assert codes(trials.several(calls)) == [None] * calls
    assert trials.look_closely() is None


def drawn(watch, seed, **sizes):
    watch.begin(1)
    for path, size in sizes.items():
        values = torch.rand(size)
        watch.add(0, path, Sides(values, values.double(), values), in_float64=True)
    watch.draw_lots(seed, None)
    return watch.drawn


def test_each_right_call_may_be_the_one_that_is_looked_at():
    seeds = set()
    for _ in range(100):
        watch = PrecisionWatch(Precision.FP32)
        ((one,),) = [drawn(watch, seed, output=64) for seed in range(3)][-1]
        seeds.add(one.seed)
    assert seeds == {0, 1, 2}


def test_of_small_outputs_many_right_calls_are_drawn_if_there_are_as_many():
    watch = PrecisionWatch(Precision.FP32)
    numbers = [[len(each) for each in drawn(watch, seed, small=63, large=64)] for seed in range(100)]
    assert numbers == [[1]] * 19 + [[1, count] for count in range(20, 32)] + [[1, 32]] * 69
    (one,), many = watch.drawn
    assert set(one.sample.outputs) == {"large"}
    assert {path for each in many for path in each.sample.outputs} == {"small"}
    assert len({each.seed for each in many}) == 32
    assert max(each.seed for each in many) > 32  # Not the first ones.


IN_HALF = "torch.nn.functional.mse_loss(x[:, :32].half().float(), x[:, 32:].half().float())"


def test_a_right_number_in_half_precision_is_seen_over_many_calls(trials_of):
    trials = trials_of(*LOSS, IN_HALF)
    assert codes(trials.several(19)) == [None] * 19
    assert trials.look_closely() is None
    assert codes(trials.several(10)) == [None] * 10
    looked = trials.look_closely()
    assert (looked.fault.status, looked.fault.finding.code) == (Status.WRONG_RESULT, Code.LOWER_PRECISION.value)
    assert "over 29 calls" in looked.fault.finding.message


def test_more_calls_are_wanted_until_there_are_enough_to_look_at_one_number(trials_of):
    trials = trials_of(*LOSS)
    assert not trials.lacks_calls  # The form of an output is not known yet.
    wanted = []
    for index in range(33):
        # The first answer is the reference's own to the bit, and looked at no further.
        assert trials.run(index, index, timeout_s=1, quick=index == 0).fault is None
        wanted.append(trials.lacks_calls)
    assert wanted == [True] * 32 + [False]


@pytest.mark.parametrize(
    ("given", "output", "rule"),
    [
        ("torch.rand(64, 64)", "x @ x", ToleranceRule.MEASURED),
        ("torch.rand(8).half()", "x * 2", ToleranceRule.MEASURED),
        (*LOSS, ToleranceRule.KERNELBENCH),
    ],
)
def test_where_one_call_says_enough_or_none_does_no_more_are_wanted(trials_of, given, output, rule):
    trials = trials_of(given, output, rule=rule)
    trials.several(1)
    assert not trials.lacks_calls


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


def test_rounding_of_the_call_itself_widens_the_tolerance_of_an_answer_that_deviates(trials_of):
    trials = trials_of(NEARLY_EQUAL, "x - x.mean(1, keepdim=True)", f"x - {ONE_ACCUMULATOR}")
    tolerances = []
    for trial in trials.several():
        assert trial.fault is None
        (check,) = trial.check.tensors
        assert check.error_ratio < 1
        tolerances.append(check.tolerance)
    assert max(tolerances) > 1e-4
    plain = trials_of(NEARLY_EQUAL, "x - x.mean(1, keepdim=True)")
    assert all(trial.check.tensors[0].tolerance < 1e-4 for trial in plain.several(2))


def test_a_textbook_formula_counts_in_a_call_whose_values_it_bears_badly(trials_of):
    """Where x is about -9, 1 + exp(x) keeps only the first three digits of exp(x)."""
    given = "torch.randn(16, 2048) - 9"
    (trial,) = trials_of(given, "torch.nn.functional.softplus(x)", "torch.log(1 + torch.exp(x))").several(1)
    assert trial.fault is None
    assert trial.check.tensors[0].max_abs_error > 1e-8


@pytest.mark.parametrize(
    ("output", "answer", "rule", "code", "measured"),
    [
        ("x * 1.0", "x * 1.0 + 1e-3", ToleranceRule.MEASURED, Code.WRONG_VALUES.value, 1),
        ("x * 1.0", "x * 2", ToleranceRule.MEASURED, Code.WRONG_VALUES.value, 0),
        ("x * 1.0", "x * 1.0 + 3e-4", ToleranceRule.KERNELBENCH, Code.WRONG_VALUES.value, 0),
        ("x.sum(1)", "x.flip(1).sum(1)", ToleranceRule.MEASURED, None, 0),
    ],
    ids=["near", "far", "KernelBench's rule", "right"],
)
def test_the_rounding_of_a_call_is_measured_for_near_errors_alone(
    trials_of, monkeypatch, output, answer, rule, code, measured
):
    found = []
    monkeypatch.setattr(
        "evaluator.judge.answer.call_limits.rounding_of_call",
        lambda plan, compare: found.append(plan) or rounding_of_call(plan, compare),
    )
    assert codes(trials_of("torch.rand(16, 2048)", output, answer, rule=rule).several(1)) == [code]
    assert len(found) == measured
