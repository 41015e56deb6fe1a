"""Stages of a grade, known in advance."""

from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import DeviceKind


def stages_of(terms: GradeTerms) -> tuple[str, ...]:
    """Return the names of all stages of a correct submission's grade.

    >>> from types import SimpleNamespace as Some
    >>> options = Some(profile=None, require_own_kernel=None)
    >>> stages_of(Some(gpu=None, is_timed=True, device=DeviceKind.CPU, options=options))
    ('read', 'prepare', 'lint', 'build', 'check', 'time')
    """
    on_gpu, options = terms.gpu is not None, terms.options
    profiled = options.profile is not None or (on_gpu and options.require_own_kernel is not None)
    stages = ["read", "prepare", "lint", "build", *(["device"] if on_gpu else [])]
    stages += ["reference"] if terms.is_timed and on_gpu else []
    stages += ["check", *(["time"] if terms.is_timed else [])]
    stages += ["roofline"] if terms.is_timed and on_gpu else []
    stages += ["profile"] if profiled and terms.device is not DeviceKind.EMULATED else []
    return tuple(stages)
