"""Count of a submission's operations, in an additional call that is neither checked nor timed."""

from evaluator.judge.faults.runner_faults import Stage
from evaluator.judge.inputs.changing_weights import Sites
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.protocol.frames import Count, Counted


def count_ops(model_runner: ModelRunner, sites: Sites, timeout_s: float) -> Counted | None:
    """Count a call on fresh inputs. None if the call or the count fails, or the answer is wrong.

    The runner reports the count, and a submission can forge the report (see `own_kernels.py`).
    """
    if _asked(model_runner, timeout_s) is None:
        return None
    trial = model_runner.trial_runner(sites).run(0, fresh_seed(), timeout_s=timeout_s)
    return None if trial.fault is not None else _asked(model_runner, timeout_s)


def _asked(model_runner: ModelRunner, timeout_s: float) -> Counted | None:
    model_runner.session.let_go()  # A runner is stopped between calls.
    answer = model_runner.session.ask(Count(), Stage.CALL, timeout_s)
    return answer if isinstance(answer, Counted) else None
