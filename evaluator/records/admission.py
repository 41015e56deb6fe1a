"""Which bad submissions a problem lets through."""

from evaluator.records.base import Record
from evaluator.records.names import Profile, SizeName


class ControlResult(Record, frozen=True):
    """What became of one bad submission, as `problems validate` makes them up.

    It `gets_away` where no call of a grade shows it. `passes_on` are the profiles on which its values are taken for
    right, `caught_on` is the first on which they are not. `caught_by_rounding`: they are right everywhere, but on the
    problem's own values their errors have the rounding of fewer bits in them, as calls that are timed would show.
    `passes_kernelbench`: on the problem's own values it passes KernelBench's rule as well.
    """

    control: str
    gets_away: bool
    passes_on: list[Profile]
    caught_on: Profile | None
    caught_by_rounding: bool
    advice: str
    passes_kernelbench: bool


class Admission(Record, frozen=True):
    """Whether a problem at one size tells bad submissions from good ones.

    `left_out` has the profiles that are not used, each with the reason; `honest_failures` are honest variants of the
    reference that the problem's own tolerance refuses.
    """

    problem: str
    size: SizeName
    profiles: list[Profile]
    left_out: dict[Profile, str]
    controls: list[ControlResult]
    honest_failures: list[str]

    @property
    def admitted(self) -> bool:
        """Say whether every bad one is caught and every honest one passes."""
        return not self.honest_failures and not any(each.gets_away for each in self.controls)
