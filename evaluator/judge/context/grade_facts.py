"""Facts of a grade: terms, submission, seeds, deadline, and the problem on the grade's device."""

from evaluator.deadline import Deadline
from evaluator.judge.clock.device_backend import DeviceBackend
from evaluator.judge.reference.reference import Reference
from evaluator.judge.runners.call_timeouts import call_timeouts
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.problem_setup import ProblemSetup
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.records import Constant, RunnerOutput


class GradeFacts:
    """Facts of one grade at a time. `output` is what the submission's last runner printed.

    `kernel_cache` holds the kernels that the checked runner compiled (Triton), for later runners of the submission. The
    judge never decodes the bytes. `seeded_because` is the reason why the submission keeps the seeded weights, although
    parameters may correspond to the reference's; usually None. `in_training`: ModelNew is graded after `train()`, since
    its constructor calls `eval()` and only then the answers are right. `right_at` are the axes of
    the cases with right answers.
    """

    def __init__(self, terms: GradeTerms, source: str, seeds: SeedBook, deadline: Deadline | None) -> None:
        """Start with the submission `source`, before the problem is set up."""
        self.terms = terms
        self._setup: ProblemSetup | None = None
        self._use(source, seeds, deadline)

    def _use(self, source: str, seeds: SeedBook, deadline: Deadline | None) -> None:
        """Replace the submission, before its first runner starts."""
        self.source = source
        self.seeds = seeds
        self.seeds.settle(AS_GIVEN_ALONE if self._setup is None else self._setup.distribution_mix)
        self.deadline = Deadline() if deadline is None else deadline
        self.output = RunnerOutput(total_bytes=0, text="")
        self.kernel_cache = b""
        self.seeded_because: str | None = None
        self.in_training = False
        self.right_at: tuple[dict[str, Constant], ...] = ()

    @property
    def setup(self) -> ProblemSetup:
        """Problem on the grade's device. Raises RuntimeError before the device is taken."""
        if self._setup is None:
            raise RuntimeError("the device is not at hand: see take_device")
        return self._setup

    @setup.setter
    def setup(self, setup: ProblemSetup) -> None:
        self._setup = setup
        self.seeds.settle(setup.distribution_mix)

    @property
    def reference(self) -> Reference:
        """Reference of the problem, on the grade's device."""
        return self.setup.reference

    @property
    def backend(self) -> DeviceBackend:
        """Backend of the device: memory, clock, comparison and runner limits."""
        return self.setup.backend

    @property
    def call_timeout_s(self) -> float:
        """Time limit in seconds of any call except a runner's first."""
        terms = self.terms
        return call_timeouts(self.source, terms.device, self.setup.reference_s, terms.options.timeout_s).call_s
