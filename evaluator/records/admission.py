"""Result of testing a problem with bad submissions."""

from evaluator.records.base import Record
from evaluator.records.names import Profile
from evaluator.records.problem import CaseName


class ControlResult(Record, frozen=True):
    """Result of a bad submission (a control) of `problems validate`.

    `gets_away`: the control passes every call of a grade. `passes_on` lists the profiles on which its values pass,
    `caught_on` is the first profile on which its values fail. `caught_by_rounding`: its values pass on every profile,
    but on the problem's own values the errors reveal the rounding of reduced precision, as timed calls would detect.
    `passes_kernelbench`: on the problem's own values the control also passes KernelBench's rule.
    """

    control: str
    gets_away: bool
    passes_on: list[Profile]
    caught_on: Profile | None
    caught_by_rounding: bool
    advice: str
    passes_kernelbench: bool


class Admission(Record, frozen=True):
    """Result of separating bad from good submissions of a problem at a given size.

    `left_out` maps the unused profiles to reasons. `honest_failures` lists honest variants of the reference that exceed
    the problem's tolerance. `cases` are the names of all cases of the problem.
    """

    problem: str
    size: CaseName
    profiles: list[Profile]
    left_out: dict[Profile, str]
    controls: list[ControlResult]
    honest_failures: list[str]
    cases: list[CaseName] = []

    @property
    def admitted(self) -> bool:
        """Whether every bad submission fails and every honest variant passes."""
        return not self.honest_failures and not any(each.gets_away for each in self.controls)
