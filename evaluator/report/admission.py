"""Say which bad submissions a problem lets through, as text and as a row of a table."""

from evaluator.records import Admission, ControlResult
from evaluator.report.text import counted

_NAME_WIDTH = 22


def admission_text(admission: Admission) -> str:
    """Give a line for a problem that is worth grading against, and the reasons where one is not."""
    beside = counted(len(admission.profiles), "profile")
    line = f"{admission.problem:<{_NAME_WIDTH}}  "
    if admission.admitted:
        return f"{line}ok    all {len(admission.controls)} controls caught, with {beside}\n"
    away = [each for each in admission.controls if each.gets_away]
    faults = [f"{len(away)} of {len(admission.controls)} controls get away"] if away else []
    faults += ["honest variants fail"] if admission.honest_failures else []
    lines = [f"{line}weak  {', '.join(faults)}, with {beside}", *(part for each in away for part in _lines(each))]
    lines += [f"  fails: {failure}" for failure in admission.honest_failures]
    if admission.honest_failures:
        lines += ["      widen [tolerance] in problem.toml, or leave the profile out under [profiles], with the reason"]
    return "\n".join(lines) + "\n"


def left_out_text(admission: Admission) -> str:
    """Say which profiles are not used, and why."""
    return "".join(f"  not {profile.value}: {why}\n" for profile, why in admission.left_out.items())


def _lines(result: ControlResult) -> list[str]:
    return [f"  {result.control}", f"      {result.advice}"]
