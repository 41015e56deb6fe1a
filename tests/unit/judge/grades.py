"""A grade without runners: the double of a context, for the tests of its stages."""

import contextlib
import itertools
from types import SimpleNamespace

from evaluator.catalog import find_problem
from evaluator.grade_options import GradeOptions
from evaluator.judge import stages, timing_stage
from evaluator.judge.clock.gpu_monitor import NO_WATCH
from evaluator.judge.context.reference_timing import After, Reading
from evaluator.judge.reference.changing_weights import NO_SITES
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.trial.trial import Trial
from evaluator.protocol.frames import Constructed
from evaluator.records import Build, DeviceKind
from evaluator.sandbox.time_limit import CpuTime
from tests import cards

FREEZE = "atomic-freeze"
BUILT = Build(ok=True, import_s=0.0, units=[])
RIGHT = Trial(cards.check(), None, 0.0, copied=False)
BEFORE = Reading(cards.samples("reference_before", 1.0), None, None)
AFTER = After(cards.samples("reference_after", 1.0), 3.0, 1.01)


def terms(device=DeviceKind.CPU, **options):
    gpu = "a GPU" if device is DeviceKind.CUDA else None
    return GradeTerms(find_problem("relu"), GradeOptions(device, **options), gpu, 2)


class Grade:
    """A grade whose runners make a single, correct call. It counts those `started` and `alive`; `did` is the order."""

    call_timeout_s, source, right_at, gpu_session = 1.0, "", (), None
    begin_side = staticmethod(lambda: NO_WATCH)

    def __init__(self):
        self.started, self.alive, self.did, self.terms = 0, 0, [], terms()
        self.trial_runner = SimpleNamespace(
            run=lambda *_, **__: RIGHT,
            look_closely=lambda: None,
            unproven=lambda: None,
            pace_s=0.0,
            earlier_weights=[],
            lacks_proof=False,
        )
        child = SimpleNamespace(cpu_time=lambda: CpuTime(0.0, {}))
        self.place = SimpleNamespace(
            session=SimpleNamespace(child=child, leave=lambda: self.did.append("leave")),
            load=lambda meanwhile=None: None if meanwhile is None else meanwhile(),
            construct=lambda: Constructed(difference=None),
            sites=lambda _: NO_SITES,
            trial_runner=lambda _: self.trial_runner,
        )
        pool = SimpleNamespace(begin_refill=lambda: self.did.append("refill"))
        self.runners = SimpleNamespace(start=self._start, pool=pool)
        served = SimpleNamespace(units=[], failures=[], built_from="", device_code=[], imports=[])
        self.build_services = SimpleNamespace(for_submission=lambda: served)
        self.seeds = SimpleNamespace(
            timed=lambda side: iter(()),
            checks=lambda _: [1],
            more_checks=lambda *_: [],
            proofs=lambda: iter(()),
            schedules=lambda _: itertools.repeat(None),
            distribution_mix=SimpleNamespace(untried=[]),
        )
        self.backend, self.sandbox = SimpleNamespace(room_for=lambda _: True), SimpleNamespace(layers=[FREEZE])
        self.reference = SimpleNamespace(
            weights=SimpleNamespace(exist=False), has_fixed_inputs=False, draws_numbers=False, author_check=None
        )

    @contextlib.contextmanager
    def _start(self, source, build_service):
        self.started, self.alive = self.started + 1, self.alive + 1
        yield self.place
        self.alive -= 1
        self.did.append("ended")

    def checked(self, ends=None):
        return stages.check(self, BUILT, ends or contextlib.ExitStack())

    def timed(self, after=lambda: AFTER, kept=None, *, lives=True):
        """Time the submission beside a reference with these halves; `kept` is that after an earlier submission.

        The runner of the checked calls `lives`, or there is a new one.
        """
        right = None
        if lives:
            ends = contextlib.ExitStack()
            place = ends.enter_context(self._start(self.source, None))
            right = stages.RightRunner(self.trial_runner, place.session, NO_SITES, ends)
        timer = SimpleNamespace(after=after, kept_after=kept)
        return timing_stage.measure_both(self, timer, timing_stage.ReferenceSide(BEFORE, []), right)

    def looked_at_closely(self, look):
        """Have a bench that may be looked at closely only when its runner has ended, and what `look` gives then."""

        def closely():
            assert not self.alive, "GPU memory of a living runner would decide"
            return look()

        self.trial_runner.look_closely = closely
