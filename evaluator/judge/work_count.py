"""One call more, neither a check nor timed, in which the runner counts what computes."""

from evaluator.judge.place import Place
from evaluator.judge.seeds import fresh_seed
from evaluator.judge.session import Stage
from evaluator.judge.weights import Sites
from evaluator.protocol.frames import Count, Counted


def count_work(place: Place, sites: Sites, timeout_s: float) -> Counted | None:
    """Have a call on fresh inputs counted; None where it, or the counting, fails, or its answer is not right.

    The runner's own word: a submission can forge it (see `ownership.py`).
    """
    if _asked(place, timeout_s) is None:
        return None
    trial = place.bench(sites).run(0, fresh_seed(), timeout_s=timeout_s)
    return None if trial.fault is not None else _asked(place, timeout_s)


def _asked(place: Place, timeout_s: float) -> Counted | None:
    place.session.let_go()  # Between calls a runner stands still.
    answer = place.session.ask(Count(), Stage.CALL, timeout_s)
    return answer if isinstance(answer, Counted) else None
