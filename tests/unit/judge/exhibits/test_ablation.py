"""Needs of an answer and counts of a call, from calls in fresh runners; names in a profile. Without runners."""

import contextlib
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.exhibits import ablation
from evaluator.judge.exhibits.ablation import AblationResult, counted_without_kernels, needed_alone, right_without
from evaluator.protocol.frames import Count, Counted, LeaveOut, LeftOut, Loaded, Raised
from evaluator.records import DeviceKind, Fault, KernelUse, Profiling, Status


def fault(code):
    return Fault(Status.WRONG_RESULT, finding(code, "it failed"))


class Context:
    """A context whose one runner gives these outcomes, in turn, and writes down what it is asked."""

    def __init__(self, *faults, answer=None, loads=None, device=DeviceKind.CPU):
        self.faults, self.answer, self.loads, self.asked = list(faults), answer or LeftOut(), loads, []
        self.source, self.call_timeout_s = "", 1.0
        self.terms = SimpleNamespace(device=device)
        self.seeds = SimpleNamespace(
            schedules=lambda: iter(["first", "second"]), distribution_mix=SimpleNamespace(seed_for=lambda _: 1)
        )
        self.build_services = SimpleNamespace(for_source=lambda _: None)
        self.runners, self.served_by, self.indices = self, [], []

    @contextlib.contextmanager
    def start(self, source, build_service):
        self.served_by.append(build_service)
        session = SimpleNamespace(ask=self._ask, let_go=lambda: None)
        trial_runners = [SimpleNamespace(run=self._run)]
        yield SimpleNamespace(
            session=session,
            load=lambda: self.loads,
            construct=Loaded,
            sites=lambda _: None,
            trial_runner=lambda _: trial_runners.pop(),
        )

    def _ask(self, frame, stage, timeout_s):
        self.asked.append(frame)
        if isinstance(frame, Count):
            counts = self.asked.count(frame)
            return Counted(launches=0, library_calls=counts, own_calls=0, mixed_calls=0)
        return self.answer

    def _run(self, index, seed, *, schedule, timeout_s, explain):
        assert not explain
        self.asked.append(schedule)
        self.indices.append(index)
        return SimpleNamespace(fault=self.faults.pop(0))


@pytest.mark.parametrize(
    ("faults", "right"),
    [
        ((None, None), AblationResult.RIGHT),
        ((None, fault(Code.WRONG_VALUES)), AblationResult.WRONG),
        ((None, fault(Code.FORWARD_FAILED)), AblationResult.WRONG),
        ((None, fault(Code.TIMED_OUT)), AblationResult.UNTOLD),
        ((None, fault(Code.RUNNER_DIED)), AblationResult.UNTOLD),
        ((fault(Code.WRONG_VALUES),), AblationResult.UNTOLD),
    ],
)
def test_one_call_has_everything_and_the_next_one_side_less(faults, right):
    context = Context(*faults)
    assert right_without(context, "library") is right
    asked = [LeaveOut("library", begin=False), None, LeaveOut("library", begin=True), None]
    assert context.asked == asked[: 4 if len(faults) == 2 else 2]


@pytest.mark.parametrize(
    ("faults", "result", "library_calls"),
    [
        ((None, None, None), AblationResult.RIGHT, 2),
        ((None, None, fault(Code.WRONG_VALUES)), AblationResult.WRONG, 2),
        ((None, None, fault(Code.RUNNER_DIED)), AblationResult.UNTOLD, 2),
        ((None, fault(Code.WRONG_VALUES), None), AblationResult.RIGHT, None),
        ((None, fault(Code.RUNNER_DIED), fault(Code.RUNNER_DIED)), AblationResult.UNTOLD, None),
        ((fault(Code.WRONG_VALUES),), AblationResult.UNTOLD, None),
    ],
)
def test_a_call_between_the_two_is_counted(faults, result, library_calls):
    """After the one-time work of the first call, and before own kernels are left out."""
    context = Context(*faults)
    found, counted = counted_without_kernels(context)
    assert found is result
    assert (None if counted is None else counted.library_calls) == library_calls
    ended = [] if library_calls is None else [Count()]
    asked = [Count(), None, *ended, LeaveOut("kernels", begin=True), None] if len(faults) == 3 else []
    assert context.asked == [LeaveOut("kernels", begin=False), None, *asked]
    assert context.indices == [*range(len(faults))]


def test_what_cannot_be_asked_is_not_known():
    assert right_without(Context(answer=Raised("TypeError", "no", [])), "kernels") is AblationResult.UNTOLD
    assert right_without(Context(loads=fault(Code.IMPORT_FAILED)), "kernels") is AblationResult.UNTOLD


def test_the_emulator_is_told_an_order():
    context = Context(None, None, device=DeviceKind.EMULATED)
    right_without(context, "kernels")
    assert [each for each in context.asked if isinstance(each, str)] == ["first", "second"]


@pytest.mark.parametrize(
    ("faults", "left_out", "right"),
    [
        ((None, None), True, AblationResult.RIGHT),
        ((None, None), False, AblationResult.UNTRIED),
        ((fault(Code.WRONG_VALUES),), True, AblationResult.WRONG),
        ((fault(Code.RUNNER_DIED),), True, AblationResult.WRONG),
        ((fault(Code.RUNNER_DIED),), False, AblationResult.UNTRIED),
    ],
)
def test_a_build_service_leaves_kernels_out_from_the_beginning(faults, left_out, right):
    context, build_service = Context(*faults), SimpleNamespace(left_out=left_out, kernels=None)
    assert right_without(context, "kernels", build_service) is right
    assert (context.served_by, context.asked) == ([build_service], [None] * len(faults))


TRITON = "import triton\n@triton.jit\ndef k():\n    pass\n@triton.jit\ndef other():\n    pass\n"


@pytest.mark.parametrize(
    ("faults", "kernels", "right", "named"),
    [
        ((None, None), None, AblationResult.RIGHT, []),
        ((None, fault(Code.WRONG_VALUES)), None, AblationResult.WRONG, []),
        ((None, fault(Code.RUNNER_DIED)), None, AblationResult.UNTOLD, []),
        # A submission may provoke the failure of the first call; then nothing was left out.
        ((fault(Code.RUNNER_DIED),), None, AblationResult.UNTOLD, None),
        ((None, None), ["k", "no_kernel_of_triton"], AblationResult.RIGHT, ["k"]),
    ],
)
def test_launches_of_triton_are_left_out_by_the_runner(faults, kernels, right, named):
    context, build_service = Context(*faults), SimpleNamespace(left_out=False, kernels=kernels)
    context.source = TRITON
    assert right_without(context, "kernels", build_service) is right
    begun = [] if named is None else [LeaveOut("jit", begin=True, kernels=named), None]
    assert context.asked == [LeaveOut("jit", begin=False), None, *begun]


def profile(*uses):
    kernels = [KernelUse(name, 1, time_us, own) for name, time_us, own in uses]
    total = sum(use.time_us for use in kernels)
    return Profiling(kernels, 0, len(kernels), total, sum(u.time_us for u in kernels if u.own) / total, [])


@pytest.fixture
def tried(monkeypatch):
    """Answer what an answer needs out of `needs`: the library, or kernels by their names."""
    found = SimpleNamespace(needs=set(), asked=[])

    def without(context, what, build_service=None):
        name = what if build_service is None else build_service[0]
        found.asked.append(name)
        return AblationResult.WRONG if name in found.needs else AblationResult.RIGHT

    monkeypatch.setattr(ablation, "right_without", without)
    return found


CONTEXT = SimpleNamespace(build_services=SimpleNamespace(with_empty_kernels=lambda names: names))


def test_a_decoy_beside_a_kernel_that_is_needed_is_not_own(tried):
    tried.needs = {"real"}
    seen = needed_alone(
        CONTEXT, profile(("real(float*)", 10.0, True), ("decoy(float*)", 30.0, True), ("l(int)", 60.0, False))
    )
    assert tried.asked == ["real", "decoy"]
    assert seen.own_share == pytest.approx(0.1)
    assert [use.own for use in seen.kernels] == [True, False, False]


@pytest.mark.parametrize(("needs", "share"), [({"library"}, 0.0), (set(), 1.0)])
def test_a_librarys_name_is_own_only_where_no_library_is_needed(tried, needs, share):
    tried.needs = needs
    seen = needed_alone(CONTEXT, profile(("ampere_sgemm_128x64_nn", 10.0, True)))
    assert tried.asked == ["library"]
    assert seen.own_share == pytest.approx(share)


def test_an_honest_kernel_alone_costs_nothing_more(tried):
    before = profile(("relu_kernel(float const*, float*, long)", 10.0, True))
    assert needed_alone(CONTEXT, before) == before
    assert tried.asked == []
