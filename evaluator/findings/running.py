"""R: findings about running a submission."""

from evaluator.findings.codes import Code, Entry, Trait, inconclusive, rejected, remark, runtime_error, timeout
from evaluator.findings.submission import ONE_BLOCK
from evaluator.records import Status

NAME_PLACE = (
    "Check the index against the number of elements before the access, and the address of a vector access. "
    "For CUDA C++, `--device emulated --size small` names kernel, thread and line."
)
HOST_READS_GPU = (
    "Look for host code that reads GPU memory, such as data_ptr<float>()[0]: pass the pointer to a kernel, or call "
    ".item(). Or for an index out of bounds on the host."
)
HOST_CODE = (
    "Look in the host code: a C++ function without its return statement, an index out of bounds, endless recursion. An "
    "access of a kernel beyond a tensor is told with its line; an access beyond a __device__ array is not."
)
ADD_RETURN = "Return the value at the end of the C++ function, on every path."
FREE_TEMPORARIES = "Allocate outputs with torch, before temporaries, and free temporaries that forward no longer needs."
LAUNCH_KERNEL = "Launch the kernel in forward."

ENTRIES: dict[Code, Entry] = {
    Code.CONSTRUCTOR_FAILED: runtime_error(
        "the constructor of ModelNew raised an exception",
        "ModelNew(...) raised an exception. Its arguments are exactly the values of the problem's get_init_inputs().",
        "Give __init__ the same parameters as the reference Model.",
        (ONE_BLOCK,),
        traits=Trait.FROM_CPU_CODE,
    ),
    Code.FORWARD_FAILED: runtime_error(
        "forward raised an exception",
        "ModelNew.forward raised an exception, or its backward did in a problem that grades gradients.",
        "Read the message. The line is the submission's innermost line on the stack.",
        (ONE_BLOCK,),
        traits=Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE | Trait.FROM_CPU_CODE,
    ),
    Code.RUNNER_DIED: runtime_error(
        "the submission's process ended",
        "The process ended before its answer: by a signal (segmentation fault, abort), or by a call of exit. An exit "
        "code proves nothing, so this is never a pass.",
        "Look for an out-of-bounds access; `--device emulated` names its line.",
        (HOST_READS_GPU, HOST_CODE, ADD_RETURN),
        traits=Trait.FROM_WEIGHTS | Trait.FROM_CPU_CODE | Trait.NO_ANSWER,
    ),
    Code.TIMED_OUT: timeout(
        "the submission timed out",
        "The submission did not answer within the time limit of this stage. On emulated and cpu, the limit counts CPU "
        "time, so other jobs on the machine decide nothing: the time of the busiest thread, or that of all threads "
        "divided by the number of cores. Code that waits is stopped after six times the limit.",
        "Look for an endless loop, or raise --timeout for slow code or a slow compilation.",
        traits=Trait.NO_ANSWER,
    ),
    Code.OUT_OF_MEMORY: runtime_error(
        "the submission ran out of memory",
        "The submission asked for more memory than its runner or the machine has, or for a million mappings.",
        "Allocate less; the scorecard has the limits under sandbox: memory_bytes for each process, held_bytes for all.",
        (FREE_TEMPORARIES,),
        traits=Trait.NO_ANSWER,
    ),
    Code.OUTPUT_FLOOD: remark(
        "the submission printed too much",
        "The printed text exceeds the limit. The scorecard keeps its beginning and its end.",
        "No action needed. Printing is slow, and printing in forward is part of the timed call.",
    ),
    Code.WEIGHTS_NOT_COPIED: remark(
        "the reference's weights were not copied",
        "A parameter of the reference has no counterpart in ModelNew, so Warpgrade copied no weights. Both "
        "constructors ran with the same seed instead. A counterpart has the same name, or the same values under the "
        "same seed, or is the only tensor of its dtype and shape with a name of the same meaning (bn.weight, gamma). "
        "Or the constructor changed a parameter's values, and the answers are right for these values alone.",
        "Create the reference's parameters in the same order, or use the same names. Compute what depends on a "
        "parameter in forward, not in the constructor.",
    ),
    Code.MALFORMED_FRAME: rejected(
        "the runner broke the protocol",
        "The submission's process sent a message that no honest runner sends: too long, of the wrong type, or with a "
        "memory range that does not exist.",
        "Remove the code that tampers with the runner: nothing else sends such a message.",
    ),
    Code.ILLEGAL_ACCESS: runtime_error(
        "a kernel accessed memory out of bounds",
        "A kernel read or wrote past the end of a tensor, before its start, after its release, or past a shared array. "
        "Or a vector access (float4) has a misaligned address. On `emulated`, the message names kernel, block, thread, "
        "distance and line.",
        "Check the index against the number of elements before the access. A vector access also needs an aligned "
        "address.",
        (NAME_PLACE,),
        traits=Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE | Trait.FROM_CPU_CODE,
    ),
    Code.BARRIER: runtime_error(
        "some threads never reach a barrier",
        "Some threads of a block wait at a barrier that the other threads never reach. A GPU hangs there, or the "
        "result is undefined.",
        "Move __syncthreads() out of the branch, so that every thread of the block reaches the barrier.",
    ),
    Code.LANE_OUTSIDE_MASK: runtime_error(
        "a warp operation has the wrong mask",
        "A thread called a warp operation whose mask excludes the thread itself, or includes lanes that never arrive.",
        "Pass the mask of the participating lanes (0xffffffff for a whole warp).",
    ),
    Code.DEVICE_ASSERT: runtime_error(
        "a kernel's assertion failed",
        "An assert in a kernel failed, or the kernel executed a trap.",
        "Read the assertion in the message, and check its condition.",
        traits=Trait.FROM_WEIGHTS,
    ),
    Code.NO_LAUNCH: remark(
        "no kernel was launched",
        "The submission answered every call without launching a kernel of its own.",
        "No action needed if intended; to grade a kernel, launch the kernel in forward.",
        (LAUNCH_KERNEL,),
    ),
    Code.TOO_LITTLE_OWN: rejected(
        "own kernels do too little of the work",
        "--require-own-kernel asks the submission's own kernels for a share of the work. The measured share is lower: "
        "no kernel was built, or library operations do the rest. The answers may be correct.",
        "Write the operation as a kernel, and launch the kernel in forward.",
    ),
    Code.OWN_SHARE_UNKNOWN: inconclusive(
        "the share of own kernels is unknown",
        "--require-own-kernel asks the submission's own kernels for a share of the work, and no measurement shows the "
        "share. On cuda the share comes from a profile, on cpu from functions that call no PyTorch operation.",
        "Grade on a device that measures the share (emulated counts launches), or omit --require-own-kernel.",
    ),
    Code.NOT_STOPPED: runtime_error(
        "a process does not stop",
        "The judge stops every process of the submission between two calls, so that none works outside the clock. One "
        "process or thread stayed inside a system call for seconds (for example vfork without exec), or many processes "
        "were not gone 20 s after their kill.",
        "Start no process or thread in forward that outlives the call.",
        traits=Trait.NO_ANSWER,
    ),
    Code.DEADLINE: Entry(
        frozenset({Status.TIMEOUT, Status.INFRA_ERROR}),
        "the grade exceeded its deadline",
        "The grade reached --deadline, and Warpgrade ended compilers, runner and judge. The status is `timeout` if "
        "the submission's builds and code used at least half of the time. Otherwise the status is `infra_error` (a "
        "slow reference, a busy machine, a busy GPU), and the submission's correctness remains unknown.",
        "Read in the message what took the time. Build less, look for slow calls, or raise --deadline.",
    ),
    Code.WEIGHTS_ASSUMED: remark(
        "weights were matched by assumption",
        "Tensors of ModelNew received the reference's weights, although their seeded values do not prove that they "
        "correspond: the values are constant, or differ. Names, shapes and dtypes correspond without ambiguity. If "
        "the answers are wrong with these weights and right with ModelNew's own, the pairs are given up.",
        "Compare the pairs in the message. If one is wrong, use the reference's names, or a name of another meaning.",
    ),
    Code.SET_TO_TRAINING: remark(
        "ModelNew is graded in training mode",
        "The constructor of ModelNew puts a module into evaluation mode, and Model is in training mode. As "
        "constructed, ModelNew returns wrong values (see the message). After train() all answers are right, so all "
        "calls of the grade follow a train().",
        "Remove eval() from the constructor: the caller decides about the mode.",
    ),
    Code.FEWER_CALLS: remark(
        "fewer calls were checked, since the calls are slow",
        "On emulated, 16 to 36 calls are checked. After 40 s of CPU time, only calls that are needed as evidence "
        "follow: at least 8, each distribution of inputs, and two calls that prove each output.",
        "No action needed. A smaller size has faster calls.",
    ),
    Code.SIZE_REFUSED: remark(
        "ModelNew refuses an awkward size",
        "The answers are right at the small size. At the awkward size, which Warpgrade derived from a KernelBench "
        "file, ModelNew raises an exception in its first call. The file itself has one size, so the verdict is that of "
        "the small size.",
        "No action needed if the code is meant for its file's sizes alone; otherwise handle all extents.",
    ),
    Code.SHARED_RACE: runtime_error(
        "threads write the same shared memory without a barrier",
        "Two threads of a block write different values to the same shared memory, and the kernel has no barrier. On a "
        "GPU, each may read the other's value.",
        "Give each thread an element of its own, for instance a local variable, or let one thread write before "
        "__syncthreads().",
    ),
}
