"""R: findings about running a submission."""

from evaluator.findings.codes import Code, Entry

ENTRIES: dict[Code, Entry] = {
    Code.CONSTRUCTOR_FAILED: Entry(
        "ModelNew cannot be made",
        "ModelNew(...) raised an error. It is called with exactly what the problem's get_init_inputs() returns.",
        "Give __init__ the same parameters as the reference Model's.",
    ),
    Code.FORWARD_FAILED: Entry(
        "forward raised an error",
        "ModelNew.forward (or its backward, where the problem grades gradients) raised an error.",
        "The message and the submission's own lines are in the scorecard.",
    ),
    Code.RUNNER_DIED: Entry(
        "the process ended",
        "The submission's process ended before it answered: a signal (segmentation fault, abort), or a call of exit. "
        "Its exit code proves nothing, so this is never a pass.",
        "Look for an access out of bounds; `--device emulated` names the place.",
    ),
    Code.TIMED_OUT: Entry(
        "time ran out",
        "The submission did not answer in the time that this stage is given.",
        "Look for an endless loop, or raise --timeout if it is just slow.",
    ),
    Code.OUT_OF_MEMORY: Entry(
        "memory ran out",
        "The submission asked for more memory than a runner is given.",
        "The limit is in the scorecard, under sandbox.memory_bytes.",
    ),
    Code.OUTPUT_FLOOD: Entry(
        "a great deal was printed",
        "The submission printed more than is kept; the scorecard holds its beginning and its end.",
        "Nothing to do. Printing is slow, and inside forward it is timed.",
    ),
    Code.WEIGHTS_NOT_COPIED: Entry(
        "the weights could not be copied",
        "ModelNew's parameters have other names or shapes than the reference's, so they were not copied; both "
        "constructors ran under the same seed instead.",
        "Create the same parameters in the same order as the reference, or use its names.",
    ),
    Code.MALFORMED_FRAME: Entry(
        "the runner broke the protocol",
        "The submission's process sent a message that no honest runner sends: too long, of the wrong type, or naming "
        "memory that is not there.",
        "Nothing but tampering with the runner does this.",
    ),
    Code.ILLEGAL_ACCESS: Entry(
        "an access out of bounds",
        "A kernel read or wrote memory that is not its own: past the end of a tensor, before its start, after it was "
        "freed, or past a shared array. Or it read or wrote a vector (float4) at an address that is no multiple of its "
        "size. The message names kernel, block, thread, distance and line.",
        "Check the index against the number of elements before the access; of a vector, that its address is aligned.",
    ),
    Code.BARRIER: Entry(
        "a barrier that not all threads reach",
        "Some threads of a block wait at a barrier that the others never reach. On a GPU that hangs, or is undefined.",
        "Move __syncthreads() out of the branch, so that every thread of the block passes it.",
    ),
    Code.LANE_OUTSIDE_MASK: Entry(
        "a lane outside of its mask",
        "A thread called a warp operation with a mask that does not name it, or names lanes that never come.",
        "Give the mask of the lanes that really take part (0xffffffff for a whole warp).",
    ),
    Code.DEVICE_ASSERT: Entry(
        "an assertion in a kernel",
        "A kernel's own assert failed, or it trapped.",
        "The message holds the assertion.",
    ),
    Code.NO_LAUNCH: Entry(
        "no kernel was launched",
        "The submission gave its answers without running a kernel of its own.",
        "Nothing, if that is what was meant; a kernel grade usually wants a kernel.",
    ),
    Code.TOO_LITTLE_OWN: Entry(
        "own kernels do too little",
        "The grade asks for a share of the work to be done by kernels of the submission's own "
        "(--require-own-kernel), and they do less: no kernel was built, or library operations do the rest. Its answers "
        "may well be right.",
        "Write the operation as a kernel, and launch it in forward.",
    ),
    Code.OWN_SHARE_UNKNOWN: Entry(
        "the share of own kernels is not known",
        "The grade asks for a share of the work to be done by kernels of the submission's own, and nothing here says "
        "how large it is: on cuda that takes a profile, on cpu functions that call no operation of PyTorch's.",
        "Grade it on a device that can tell (emulated counts launches), or leave --require-own-kernel out.",
    ),
    Code.NOT_STOPPED: Entry(
        "a process does not stop",
        "Between two calls every process of a submission is stopped, so that none of them works behind the clock. One "
        "of these, or a thread, stayed inside of a system call for seconds (vfork without an exec, say).",
        "Start no processes or threads in forward that outlast the call.",
    ),
    Code.DEADLINE: Entry(
        "the grade took too long",
        "The grade as a whole has a deadline (--deadline), and all of it was ended then: compilers, runner, the "
        "judge's own work. The status is `timeout` where the submission's builds and code used at least half of the "
        "time, and `infra_error` where the judge's own work did (a slow reference, a busy machine, a GPU that others "
        "had): then nothing is known about the submission.",
        "The message says who used the time. Build less, look for slow calls, or raise --deadline.",
    ),
}
