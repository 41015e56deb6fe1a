"""Count of a submission's operations, in an additional call of the runner for the ablation of own kernels.

The call is not timed, and the verdict on the answers depends on calls of other runners: in this one, own functions are
wrapped.
"""

from collections.abc import Callable

from evaluator.judge.faults.runner_faults import Stage
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.protocol.frames import Count, Counted
from evaluator.records import Fault


def count_ops(model_runner: ModelRunner, call: Callable[[], Fault | None], timeout_s: float) -> Counted | None:
    """Count the operations of `call`. None if the call or the count fails, or the answer is wrong.

    The runner reports the count, and a submission can forge the report (see `own_kernels.py`).
    """
    if _count(model_runner, timeout_s) is None:
        return None
    return None if call() is not None else _count(model_runner, timeout_s)


def _count(model_runner: ModelRunner, timeout_s: float) -> Counted | None:
    model_runner.session.let_go()  # A runner is stopped between calls.
    answer = model_runner.session.ask(Count(), Stage.CALL, timeout_s)
    return answer if isinstance(answer, Counted) else None
