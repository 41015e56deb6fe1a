"""Findings of a card about sandbox, output and cache, and next steps that depend on other findings."""

from msgspec.structs import replace

from evaluator.cache.fallback_folder import trouble
from evaluator.findings import ENTRIES, Code, entry_of, finding
from evaluator.findings.comparing import COMPUTE_IN_FP32, DRIFT, EXTRA_CLAMP, NEARLY_ALL, WEIGHTS_FIRST
from evaluator.findings.running import LAUNCH_KERNEL
from evaluator.findings.submission import ONE_BLOCK, REPLACE_CALL
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.paths import cache_folder
from evaluator.records import Finding, Outcome, SandboxMode, Status
from evaluator.sizes import found_sizes
from evaluator.sizes.chosen_cases import sought_sizes

_FLOOD_BYTES = 1 << 20
_OWN_STEPS = {Code.NO_LAUNCH.value: LAUNCH_KERNEL, Code.LIBRARY_IN_FORWARD.value: REPLACE_CALL}


def remarks_on(outcome: Outcome) -> list[Finding]:
    """Return the findings about sandbox, output and cache."""
    remarks = []
    if outcome.sandbox is not None and outcome.sandbox.mode == SandboxMode.NONE.value:
        remarks.append(finding(Code.NO_SANDBOX, "the submission ran without a sandbox"))
    elif outcome.sandbox is not None and outcome.sandbox.missing:
        remarks.append(finding(Code.WALL_MISSING, f"the sandbox lacks {'; '.join(outcome.sandbox.missing)}"))
    if outcome.output.total_bytes > _FLOOD_BYTES:
        remarks.append(finding(Code.OUTPUT_FLOOD, f"the submission printed {outcome.output.total_bytes} bytes"))
    return [*remarks, *_about_the_cache()]


def about_sizes(terms: GradeTerms) -> list[Finding]:
    """Return a finding about sizes with constants that Warpgrade chose, and about an awkward size that is missing."""
    sentences = found_sizes.about_sizes(terms.problem, sought_sizes(terms.options.sizes, terms.options.case))
    return [finding(Code.SIZE_FOUND, "; ".join(sentences))] if sentences else []


def with_steps_to_own_kernels(outcome: Outcome, required: float | None) -> list[Finding]:
    """Return the findings, with steps that fit a required share of own kernels unless the submission is correct."""
    if required is None or outcome.status is Status.CORRECT:
        return outcome.findings
    return [replace(remark, next_step=_OWN_STEPS.get(remark.code, remark.next_step)) for remark in outcome.findings]


def reason_of(outcome: Outcome) -> Finding | None:
    """Return the reason of the verdict, with a next step that other findings suggest.

    Wrong values begin with the weights, if the weights were not copied. A missing name may be in a block that was left
    out.
    """
    reason = outcome.reason
    if reason is not None and reason.message.startswith("NameError") and ONE_BLOCK in entry_of(reason).other_steps:
        left_out = next((remark for remark in outcome.findings if remark.code == Code.LEFT_OUT.value), None)
        if left_out is None:
            return reason
        return replace(reason, message=f"{reason.message}; {left_out.message}", next_step=ONE_BLOCK)
    usual = (ENTRIES[Code.WRONG_VALUES].next_step, NEARLY_ALL, COMPUTE_IN_FP32, DRIFT, EXTRA_CLAMP)
    if reason is None or reason.code != Code.WRONG_VALUES.value or reason.next_step not in usual:
        return reason
    is_seeded = any(remark.code == Code.WEIGHTS_NOT_COPIED.value for remark in outcome.findings)
    return replace(reason, next_step=WEIGHTS_FIRST) if is_seeded else reason


def _about_the_cache() -> list[Finding]:
    """Return a finding if the cache cannot store builds: the next grade would build again."""
    if (failure := trouble(cache_folder())) is None:
        return []
    return [finding(Code.CACHE_UNUSABLE, f"the cache {failure.folder} cannot store builds: {failure.why}")]
