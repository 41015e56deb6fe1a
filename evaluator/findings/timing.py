"""T: findings about timing."""

from evaluator.findings.codes import Code, Entry

ENTRIES: dict[Code, Entry] = {
    Code.REFERENCE_DRIFTED: Entry(
        "the reference's time moved",
        "The reference was timed before and after the submission, and the two differ by more than 5 % and by more than "
        "the clock's resolution. The speedup's interval is as much wider for it.",
        "Close other programs and grade again; the machine was not steady.",
    ),
    Code.IMPOSSIBLE: Entry(
        "faster than memory allows",
        "The submission took less time than this GPU needs to read the inputs that matter and to write the outputs. "
        "How much matters was found by changing samples of the inputs and running the reference again, so a program "
        "that is right for all inputs cannot leave it out: this one left some out, or kept some from an earlier call.",
        "Read every input that the output depends on. If the count is wrong for this problem, its author can say so: "
        "[roofline] in problem.toml.",
    ),
    Code.BELOW_RESOLUTION: Entry(
        "no speedup can be told",
        "The 95 % interval of the speedup is wider than 5 %, so none is quoted; the interval is in the scorecard. The "
        "resolution of the clock is part of it: the message says how much longer calls would have to take, or that "
        "it is the samples that scatter.",
        "Grade at a larger size (--size full; sizes.full in problem.toml where that is too small); where the samples "
        "scatter, close other programs and grade again.",
    ),
    Code.OUTPUT_COPIED: Entry(
        "outputs were copied inside the clock",
        "An output lay in memory that the judge does not share, so it was copied before the clock stopped, on this "
        "side's account: what a CUDA graph or malloc allocates, an input or a weight that is handed back, or an output "
        "for which temporaries left no room. Where it was the reference's alone, the speedup may read larger for it.",
        "Allocate outputs with torch, in forward, before large temporaries. Where it was the reference's: a smaller "
        "size leaves more room.",
    ),
    Code.NOT_QUIET: Entry(
        "the machine was not quiet",
        "A call that does nothing took very different times, so other work was running.",
        "Close other programs and grade again.",
    ),
    Code.WORK_AFTER_DONE: Entry(
        "work went on after a call was over",
        "The GPU took longer to come to rest after a call's last word than it does in a runner that never saw a "
        "submission: something was still running, on a stream that the call does not wait for, for instance.",
        "Join every stream of your own before forward returns (torch.cuda.current_stream().wait_stream(...)).",
    ),
    Code.OUTLIERS: Entry(
        "many outliers among the samples",
        "More than one call in twenty took a time more than ten standard deviations from the median: something "
        "interfered, or the work differs from call to call. Medians hardly move for it.",
        "Grade again on a quiet machine, without other programs at work; `warpgrade show` draws the samples.",
    ),
    Code.FIRST_CALL_SLOW: Entry(
        "the first call was much slower",
        "The submission's first call took over ten times as long as its others, and over twice as long as the "
        "reference's first: it compiles, tunes or fills a cache then. The first call is not part of the quoted time.",
        "Nothing to do, if such a warm-up is meant; otherwise move it into ModelNew.__init__.",
    ),
    Code.HOST_BOUND: Entry(
        "the host is slower than the GPU",
        "Queueing a call's work takes the host longer than the GPU takes to do it. The quoted time is the GPU's alone; "
        "a program that makes one call after the other waits for the host.",
        "Launch fewer, larger kernels, do less in Python inside forward, or capture the work in a CUDA graph.",
    ),
    Code.BEATS_TARGET: Entry(
        "faster than the target",
        "The submission is faster than the reference's operations at the peak of the problem's precision, or than "
        "reading its weights. Both may be beaten: by another algorithm, by another precision that is still within the "
        "tolerance, or by weights that were worked into something smaller beforehand.",
        "Nothing to do. The problem's author can give a better count: [roofline] in problem.toml.",
    ),
    Code.FLOOR_DOUBTED: Entry(
        "the floor cannot be right",
        "The reference itself was faster than the floor that was worked out for it, so the floor is wrong, and no "
        "verdict is drawn from it.",
        "Tell the problem's author: [roofline] in problem.toml sets the count right.",
    ),
    Code.NO_ROOFLINE: Entry(
        "no floor is known",
        "What a call of this problem must move could not be worked out: its reference needs values that PyTorch's meta "
        "device lacks, gives different answers to the same inputs, or did not fit into memory beside itself.",
        "Nothing to do as a submitter; the problem's author can give the bytes and operations: [roofline] in "
        "problem.toml.",
    ),
    Code.BASELINE_FAILED: Entry(
        "a baseline could not be timed",
        "What the submission was to be held against beside the reference could not be built, loaded or run here, or "
        "gave wrong outputs. The verdict on the submission and its speedup over the reference stand.",
        "The message says why; leave --baseline or --speedup-of out, or grade the other file on its own.",
    ),
    Code.NOT_PROFILED: Entry(
        "the call could not be profiled",
        "The extra call under PyTorch's profiler failed, or what came of it was no profile. Verdict and times do not "
        "depend on it.",
        "The message says why; grade without --profile.",
    ),
    Code.NO_NCU: Entry(
        "there is no Nsight Compute",
        "--profile ncu has Nsight Compute read the GPU's counters, and its program ncu is neither on the PATH, nor in "
        "the CUDA toolkit, nor in /opt/nvidia/nsight-compute. Verdict, times and the rest of the profile do not depend "
        "on it.",
        "Install Nsight Compute (it is a part of the CUDA toolkit; NVIDIA's package is cuda-nsight-compute-13-0, or "
        "that of another version), or grade with --profile torch.",
    ),
    Code.COUNTERS_REFUSED: Entry(
        "the driver keeps its counters for administrators",
        "NVIDIA's driver lets every user read the GPU's counters, or administrators alone, and a runner is no "
        "administrator. Verdict, times and the rest of the profile do not depend on it.",
        "Load the driver's module with NVreg_RestrictProfilingToAdminUsers=0 (in /etc/modprobe.d, as "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM says; the machine's owner does that), or grade with --profile "
        "torch.",
    ),
    Code.NOT_COUNTED: Entry(
        "the counters could not be read",
        "The call under Nsight Compute failed, took too long or launched no kernel, or what came of it was no page of "
        "numbers. The submission runs there in a program of its own, with inputs of its own. Verdict, times and the "
        "rest of the profile do not depend on it.",
        "The message says why; grade with --profile torch.",
    ),
}
