"""What must have ended before a timing."""

from types import SimpleNamespace

import pytest

from evaluator.judge.context.grade_context import GradeContext


@pytest.mark.parametrize(("gpu_session", "ended"), [("a GPU", ["builds"]), (None, ["builds", "idle runners started"])])
def test_idle_runners_may_make_contexts_beside_a_timing_and_compilers_may_not_run(gpu_session, ended):
    did = []
    context = SimpleNamespace(
        build_services=SimpleNamespace(end_speculative=lambda: did.append("builds")),
        runners=SimpleNamespace(pool=SimpleNamespace(settle=lambda: did.append("idle runners started"))),
        gpu_session=gpu_session,
    )
    GradeContext.settle(context)
    assert did == ended
