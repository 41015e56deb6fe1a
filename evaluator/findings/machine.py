"""X: findings about this machine."""

from evaluator.findings.codes import Code, Entry

ENTRIES: dict[Code, Entry] = {
    Code.JUDGE_MEMORY: Entry(
        "the judge ran out of memory",
        "What the judge computes, the expected outputs in float64 above all, did not fit into the memory of this "
        "machine or its GPU, beside what a submission or another program held of it.",
        "Grade at a smaller size (--size small), or have the others hold less memory.",
    ),
    Code.JUDGE_FAILED: Entry(
        "the judge failed",
        "Something on the judge's own side broke: a runner could not be started, there was no shared memory, or the "
        "reference did not pass its own check. Nothing is said about the submission.",
        "Run `warpgrade doctor`, then grade again.",
    ),
    Code.GPU_SHARED: Entry(
        "other processes use the GPU",
        "Somebody else had a context on this GPU before or after the grade. Their work takes time slices, and the "
        "clock cannot tell whose they were.",
        "End them, or grade on another GPU (--gpu).",
    ),
    Code.GPU_THROTTLED: Entry(
        "the GPU's clocks were held back",
        "The driver says that power or temperature kept the clocks down while calls were timed. Both sides were timed "
        "on the same GPU, though not at the same moment.",
        "Look at power limit and cooling (nvidia-smi -q -d PERFORMANCE), then grade again.",
    ),
    Code.GPU_CLOCK_MOVED: Entry(
        "the GPU's clocks moved",
        "The clocks were not the same after the two sides, by more than a twentieth.",
        "Grade again; where it stays so, have an administrator fix the clocks (nvidia-smi --lock-gpu-clocks).",
    ),
    Code.GPU_ECC: Entry(
        "the GPU's memory had errors",
        "Errors that could not be corrected were counted during the grade: values may be wrong on either side.",
        "Grade on another GPU, and have this one looked at.",
    ),
    Code.GPU_MIG: Entry(
        "the GPU is divided",
        "With MIG a grade runs on a part of a GPU: its times are those of the part.",
        "Compare only with grades on a part of the same size.",
    ),
    Code.OWN_FAULT: Entry(
        "a fault in Warpgrade",
        "The judge ran into an error that nobody had thought of, and gave up. Nothing is said about the submission, "
        "though it may be what brought the error about; it is never a pass. The traceback went to stderr.",
        "Report it, with the traceback and the scorecard, which holds the submission.",
    ),
}
