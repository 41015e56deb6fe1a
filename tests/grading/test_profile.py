"""`--profile`, by the command line: an extra call whose word is never part of a verdict."""

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import module


def test_a_profile_says_which_operations_ran(grader, tmp_path):
    card = grader(tmp_path, module(), "--profile").assert_verdict(Status.CORRECT)
    names = {use.name: use for use in card.profiling.kernels}
    assert names["aten::relu"].launches == 1
    assert card.profiling.finding is None
    assert card.output.total_bytes == 0


def test_who_breaks_the_profiler_loses_the_profile_alone(grader, tmp_path):
    source = module(
        "import evaluator.runner.main as main",
        "def broken(*args, **kwargs): raise RuntimeError('no profile of me')",
        "main.profiled = broken",
    )
    card = grader(tmp_path, source, "--profile").assert_verdict(Status.CORRECT)
    assert card.profiling.kernels == []
    assert card.profiling.finding.code == Code.NOT_PROFILED
    assert "no profile of me" in card.profiling.finding.message


def test_who_lies_to_the_profiler_is_as_right_and_as_fast_as_before(grader, tmp_path):
    """The lie is in the card as what it is, and the screen and the schema bear it."""
    source = module(
        "import evaluator.runner.main as main",
        "from evaluator.protocol.frames import Profiled, SeenKernel",
        r"lie = Profiled(kernels=[SeenKernel('\x1b[2J' + 'k' * 4000, 2**31, 1e12)] * 256, others=2**62)",
        "main.profiled = lambda *args, **kwargs: lie",
    )
    run = grader(tmp_path, source, "--profile")
    card = run.assert_verdict(Status.CORRECT)
    assert len(card.profiling.kernels) == 32
    assert "\x1b" not in run.out
