"""Idle runners for the next grade, at the end of a finished one."""

from types import SimpleNamespace

import pytest

from evaluator.errors import JudgeFailed
from evaluator.judge.context.grade_context import GradeContext


@pytest.mark.parametrize("error", [JudgeFailed("no process could be started"), OSError(24, "too many open files")])
def test_an_idle_runner_that_does_not_start_costs_no_finished_verdict(error):
    asked = []

    def warm():
        asked.append(True)
        raise error

    runners = SimpleNamespace(pool=SimpleNamespace(warm=warm))
    GradeContext.warm_idle_runners(SimpleNamespace(gpu_session="a GPU", runners=runners))
    GradeContext.warm_idle_runners(SimpleNamespace(gpu_session=None, runners=runners))
    assert asked == [True]
