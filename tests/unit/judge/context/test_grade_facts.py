"""Facts of a grade that the next grade of a lasting context must not inherit."""

from types import SimpleNamespace

from evaluator.judge.context.grade_facts import GradeFacts


def test_the_next_submission_starts_as_constructed_with_the_references_weights():
    seeds = SimpleNamespace(settle=lambda _: None)
    facts = GradeFacts(None, "one", seeds, None)
    facts.in_training, facts.seeded_because, facts.kernel_cache = True, "pairs without a proof", b"kernels"
    facts._use("two", seeds, None)
    assert (facts.source, facts.in_training, facts.seeded_because, facts.kernel_cache) == ("two", False, None, b"")
