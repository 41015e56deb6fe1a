"""What a run was asked for. Records alone, so that their schema can be printed in no time."""

from evaluator.records import BaselineKind, DeviceKind, Record, SizeName, ToleranceRule, WeightsRule

RUN_VERSION = 1


class Terms(Record, frozen=True):
    """How the submissions of a batch are graded; the same for all of them.

    `size` is None for the device's own, `weights` for what each problem says.
    """

    device: DeviceKind
    size: SizeName | None = None
    tolerance: ToleranceRule = ToleranceRule.MEASURED
    sandbox: str = "full"
    timeout_s: float | None = None
    build_timeout_s: float = 600.0
    require_own_kernel: float | None = None
    strict: bool = False
    baselines: list[BaselineKind] = []
    deadline_s: float | None = None
    weights: WeightsRule | None = None

    @property
    def actual_size(self) -> SizeName:
        """The size that is graded."""
        return self.size or (SizeName.FULL if self.device is DeviceKind.CUDA else SizeName.SMALL)


class RunManifest(Record, frozen=True, kw_only=True):
    """What a run was asked for. Every session on the same folder has the same terms, problems and submissions."""

    run_version: int = RUN_VERSION
    terms: Terms
    problems: str | None
    submissions: str
    started_at: str
    warpgrade: str
    python: str
    torch: str
    host: str
