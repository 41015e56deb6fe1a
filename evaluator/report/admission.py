"""Results of `problems validate`: the bad submissions that a problem passes."""

from evaluator.records import Admission, ControlResult
from evaluator.text import counted

_NAME_WIDTH = 22
_MOST_WEIGHTS = 3


def admission_text(admission: Admission) -> str:
    """Return one line for an admitted problem, and the reasons for a weak one."""
    profile_count = counted(len(admission.profiles), "profile")
    line = f"{admission.problem:<{_NAME_WIDTH}}  "
    if admission.admitted:
        return f"{line}ok    all {len(admission.controls)} bad submissions caught, with {profile_count}\n"
    accepted = [control for control in admission.controls if control.gets_away]
    faults = [f"{len(accepted)} of {len(admission.controls)} bad submissions pass"] if accepted else []
    faults += ["honest variants fail"] if admission.honest_failures else []
    listed, omitted = _without_most_weights(accepted)
    lines = [
        f"{line}weak  {', '.join(faults)}, with {profile_count}",
        *(part for control in listed for part in _lines(control)),
    ]
    lines += [f"  and {omitted} more; --json lists all"] if omitted else []
    lines += [f"  fails: {failure}" for failure in admission.honest_failures]
    if admission.honest_failures:
        lines += ["      widen [tolerance] in problem.toml, or exclude the profile under [profiles], with a reason"]
    return "\n".join(lines) + "\n"


def details_text(admission: Admission) -> str:
    """Return the bad submissions that only other profiles catch, and the unused profiles with reasons."""
    lines = [
        f"  {control.control}: {profiles}" for control in admission.controls if (profiles := _catching_profile(control))
    ]
    lines += [f"  not {profile.value}: {reason}" for profile, reason in admission.left_out.items()]
    others = [name for name in admission.cases if name != admission.size]
    lines += [f"  tested at {admission.size}; the other cases: {', '.join(others)}"] if others else []
    return "".join(f"{line}\n" for line in lines)


def _catching_profile(result: ControlResult) -> str:
    if result.caught_by_rounding:
        return "within the tolerance, but its rounding errors reveal it"
    return f"passes on as_given, fails on {result.caught_on.value}" if result.caught_on and result.passes_on else ""


def _without_most_weights(accepted: list[ControlResult]) -> tuple[list[ControlResult], int]:
    """Keep the first few of the weights: a network has hundreds, all with the same advice."""
    weights = [control for control in accepted if control.control.startswith("ignores weight ")]
    others = [control for control in accepted if control not in weights]
    return [*others, *weights[:_MOST_WEIGHTS]], max(len(weights) - _MOST_WEIGHTS, 0)


def _lines(result: ControlResult) -> list[str]:
    return [f"  {result.control}: passes every call", f"      {result.advice}"]
