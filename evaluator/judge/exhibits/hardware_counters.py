"""Hardware counters of one more call of a correct submission, collected by Nsight Compute in a separate program.

ncu must start the profiled program, so a runner cannot serve. The program is `evaluator.runner.standalone`, in a
runner's sandbox, with copies of the libraries that the judge has built. Counters are evidence, like all of a profile.
"""

import math
import sys
from itertools import groupby
from pathlib import Path

from evaluator.catalog import sized_source
from evaluator.compile.builder import work_folder
from evaluator.cuda_source.symbols import Kernels, is_own, joined
from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.exhibits.ncu import MOST_LAUNCHES, REFUSED, Launch, command, find_ncu, installation, read_page
from evaluator.judge.runners.build_service import ResourceUsageService
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.trial.model_runner import model_mode, own_tf32
from evaluator.protocol.standalone_call import FAILED, LoneCall, lay_out
from evaluator.records import Counters, Finding, KernelCounters, Tf32
from evaluator.sandbox import ToolResult
from evaluator.sandbox.visible_files import library_folders, source_root

_TIMEOUT_S = 120.0
_KEPT_OUTPUT_BYTES = 1 << 20
"""Enough for a page of 64 launches with names of several kilobytes."""
_SHOWN = 32
_MOST_SAID = 600
_BOOT = (
    "import sys; sys.path[:0] = [sys.argv[1], *sys.argv[3:]]; "
    "from evaluator.runner import standalone; standalone.main()"
)
_OWN_PARTS = ("__init__.py", "protocol", "runner")
"""The only parts of the package that the program imports; the sandbox hides all other parts."""


def counters(context: GradeContext, build_service: ResourceUsageService) -> Counters:
    """Count the submission's kernels, with the libraries of `build_service`. A failure becomes a finding."""
    ncu = find_ncu()
    if ncu is None:
        return _nothing(finding(Code.NO_NCU, "this machine has no ncu (Nsight Compute)"))
    try:
        with work_folder() as work:
            libraries = lay_out(work, _call(context))
            for served in build_service.served:
                libraries.put(*served)
            result = context.runners.run_on_gpu(
                command(ncu, program(_BOOT, work)),
                work=work,
                timeout_s=_TIMEOUT_S,
                kept_output_bytes=_KEPT_OUTPUT_BYTES,
                readable=[*installation(ncu), *own_parts()],
            )
    except JudgeFailed as error:
        return _nothing(finding(Code.NOT_COUNTED, f"ncu did not start: {error.message}"))
    return counted(result, joined(build_service.device_code))


def program(boot: str, work: Path) -> list[str]:
    """Return a command line for Python with the code `boot`, followed by the paths of package and work folder."""
    python = [sys.executable, "-I", "-B", "-X", "utf8", "-W", "ignore"]
    return [*python, "-c", boot, str(source_root()), str(work), *library_folders()]


def own_parts() -> list[Path]:
    """Return the paths of the package that must be visible to the program."""
    return [source_root() / "evaluator" / name for name in _OWN_PARTS]


def counted(result: ToolResult, built: Kernels) -> Counters:
    """Return the counters in ncu's output, or the reason for none. `built` are the submission's own kernels."""
    launches = read_page(result.output)
    failure = _failure(result) if result.timed_out or not launches or FAILED in result.output else None
    if failure is not None:
        return _nothing(failure)
    by_name = sorted(launches, key=lambda launch: launch.name)
    kernels = [_sum(name, list(group), built) for name, group in groupby(by_name, key=lambda launch: launch.name)]
    kernels.sort(key=lambda kernel: -kernel.time_us)
    return Counters(
        kernels=kernels[:_SHOWN],
        other_kernels=max(len(kernels) - _SHOWN, 0),
        launches=len(launches),
        cut=len(launches) == MOST_LAUNCHES,
    )


def _call(context: GradeContext) -> LoneCall:
    terms = context.terms
    return LoneCall(
        submission=context.source,
        entries=list(terms.options.entries),
        model=sized_source(terms.problem, terms.size),
        weight_seed=context.seeds.weight,
        seed=fresh_seed(),
        mode=model_mode(terms.problem, in_training=context.in_training),
        backward=terms.problem.backward,
        tf32=own_tf32(terms.problem) is Tf32.ON,
        threads=terms.threads,
    )


def _sum(name: str, launches: list[Launch], built: Kernels) -> KernelCounters:
    time_us = math.fsum(launch.time_us for launch in launches)
    sizes = [launch.dram_bytes for launch in launches if launch.dram_bytes is not None]
    dram_bytes = math.fsum(sizes) if len(sizes) == len(launches) else None
    return KernelCounters(
        name=name,
        launches=len(launches),
        time_us=time_us,
        dram_bytes=dram_bytes,
        dram_bytes_per_s=None if dram_bytes is None else dram_bytes / (time_us * 1e-6),
        bandwidth_percent=_mean([(launch.bandwidth_percent, launch.time_us) for launch in launches]),
        occupancy_percent=_mean([(launch.occupancy_percent, launch.time_us) for launch in launches]),
        own=is_own(name, built),
    )


def _mean(weighted: list[tuple[float | None, float]]) -> float | None:
    """Return the weighted mean; None if any value is missing."""
    terms = [(value * weight, weight) for value, weight in weighted if value is not None]
    if len(terms) < len(weighted):
        return None
    return math.fsum(part for part, _ in terms) / math.fsum(weight for _, weight in terms)


def _failure(result: ToolResult) -> Finding:
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    if REFUSED in result.output:
        return finding(Code.COUNTERS_REFUSED, f"the driver restricts this GPU's counters to administrators ({REFUSED})")
    if result.timed_out:
        reason = f"ncu did not finish within {_TIMEOUT_S:.0f} s"
    elif (failed_line := next((line for line in reversed(lines) if line.startswith(FAILED)), None)) is not None:
        reason = failed_line.removeprefix("warpgrade: ")
    elif result.ok:
        reason = "ncu recorded no kernel"
    else:
        ended = f"exit status {result.exit_code}" if result.signal is None else result.signal
        reason = f"ncu failed ({ended}): {' / '.join(lines[-3:])}"
    return finding(Code.NOT_COUNTED, reason[:_MOST_SAID])


def _nothing(failure: Finding) -> Counters:
    return Counters(kernels=[], other_kernels=0, launches=0, cut=False, finding=failure)
