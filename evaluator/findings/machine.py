"""X: findings about the grading machine."""

from evaluator.findings.codes import Code, Entry, infra_error, remark

ENTRIES: dict[Code, Entry] = {
    Code.JUDGE_MEMORY: infra_error(
        "the judge ran out of memory",
        "The judge's computation, above all the expected outputs in float64, did not fit into memory. The submission "
        "and other programs held memory of this machine or its GPU at the same time.",
        "Grade at a smaller size (--size small), or let other programs free memory.",
    ),
    Code.JUDGE_FAILED: infra_error(
        "the judge failed",
        "The judge's own side failed: a runner did not start, shared memory was missing, or the reference failed its "
        "own check. The submission's correctness remains unknown.",
        "Run `warpgrade doctor`, then grade again.",
    ),
    Code.GPU_SHARED: remark(
        "other processes use the GPU",
        "Another process had a context on this GPU before or after the grade. Its work takes time slices, which the "
        "clock cannot tell from the submission's.",
        "End these processes, or grade on another GPU (--gpu).",
    ),
    Code.GPU_THROTTLED: remark(
        "the GPU throttled its clocks",
        "The driver reports reduced clocks in a quarter or more of the readings between timed calls: for one side and "
        "not for the other, or by heat or a hardware limit for both. A power cap on both sides is usual for large "
        "products. Before a side that starts hotter or throttled, the judge waits up to two seconds.",
        "Check power limit and cooling (nvidia-smi -q -d PERFORMANCE), then grade again.",
    ),
    Code.GPU_CLOCK_MOVED: remark(
        "the GPU's clock frequency changed",
        "The median clock of the multiprocessors differs between the sides by more than 5 %, or the memory clock does.",
        "Grade again. If the finding remains, ask an administrator to lock the clocks (nvidia-smi -lgc).",
    ),
    Code.GPU_ECC: remark(
        "the GPU's memory had uncorrectable errors",
        "The driver counted uncorrectable memory errors during the grade. Values of either side may be wrong.",
        "Grade on another GPU, and have this GPU inspected.",
    ),
    Code.GPU_MIG: remark(
        "the GPU is partitioned (MIG)",
        "With MIG a grade runs on a partition of the GPU, and its times hold for that partition.",
        "Compare only with grades on a partition of the same size.",
    ),
    Code.OWN_FAULT: infra_error(
        "a fault in Warpgrade",
        "The judge met an unexpected error and stopped. The submission's correctness remains unknown, and the "
        "submission may be the cause; the status is never a pass. The traceback is on stderr.",
        "Report the fault with its traceback and the scorecard, which contains the submission.",
    ),
}
