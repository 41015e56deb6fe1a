"""T: findings about timing."""

from evaluator.findings.codes import Code, Entry, Trait, rejected, remark

CLOSE_PROGRAMS = "Close other programs and grade again."
LARGER_SIZE = "Grade at a larger size (--size full, or a larger sizes.full in problem.toml)."
CLOCK_TOO_COARSE = "Close other programs and grade again. If the clock's error stays, grade at a larger size."
GRADE_AGAIN = "Grade again."

ENTRIES: dict[Code, Entry] = {
    Code.REFERENCE_DRIFTED: remark(
        "the reference's time drifted",
        "The reference ran before and after the submission. The two times differ by more than 5 % and by more than the "
        "clock's resolution. The speedup's interval includes this drift.",
        CLOSE_PROGRAMS,
    ),
    Code.IMPOSSIBLE: rejected(
        "the submission is faster than the memory bandwidth allows",
        "The submission took less time than this GPU needs to read the relevant inputs and to write the outputs. The "
        "judge measured relevance: it changed samples of the inputs and ran the reference again. A submission that is "
        "correct for all inputs reads them all, so this one skipped some, or kept some from an earlier call.",
        "Read every input that affects the output. If the byte count is wrong, the problem's author can set [roofline] "
        "in problem.toml.",
    ),
    Code.BELOW_RESOLUTION: remark(
        "the speedup cannot be resolved",
        "The 95 % interval of the speedup is wider than 15 % of it, or than 20 % where both sides are timed in windows "
        "on a GPU. The scorecard has the interval and no speedup. The interval includes the clock's resolution and the "
        "spread between processes of one program. The message names the cause: the clock, for which kind of calls, or "
        "that spread, and how much longer calls must take; scattered samples; or two processes of the reference that "
        "take different times.",
        "Grade at a larger size (--size full, or a larger sizes.full in problem.toml). If the samples scatter, close "
        "other programs. If the reference's processes differ, grade again.",
        (LARGER_SIZE, CLOCK_TOO_COARSE, CLOSE_PROGRAMS, GRADE_AGAIN),
    ),
    Code.OUTPUT_COPIED: remark(
        "outputs were copied inside the clock",
        "An output was outside the memory shared with the judge, so its copy counts as time of that side. Causes: "
        "memory of a CUDA graph or of malloc, a returned input or weight, temporaries that left no room. A copy on the "
        "reference's side alone may inflate the speedup.",
        "Allocate outputs with torch, in forward, before large temporaries. For a copy of the reference's: a smaller "
        "size.",
    ),
    Code.NOT_QUIET: rejected(
        "the machine was busy",
        "The time of an empty call varied widely, so other work was running.",
        CLOSE_PROGRAMS,
        traits=Trait.DISTURBED_CLOCK,
    ),
    Code.WORK_AFTER_DONE: rejected(
        "work continued after a call ended",
        "After a call's last message the GPU stayed busy longer than with a runner that never saw a submission. Work "
        "was still running, for example on a stream without a join.",
        "Join every stream before forward returns (torch.cuda.current_stream().wait_stream(...)).",
        traits=Trait.DISTURBED_CLOCK,
    ),
    Code.OUTLIERS: remark(
        "the samples have many outliers",
        "The times of more than one call in twenty are more than ten standard deviations from the median. Other work "
        "interfered, or the work differs from call to call. Medians hardly change.",
        "Close other programs and grade again; `warpgrade show` draws the samples.",
    ),
    Code.FIRST_CALL_SLOW: remark(
        "the first call was much slower",
        "The submission's first call took over ten times as long as its other calls, and over twice as long as the "
        "reference's first. Usual causes: compilation, tuning, a cold cache. The quoted time excludes the first call.",
        "No action needed for an intended warm-up; otherwise move the work into ModelNew.__init__.",
    ),
    Code.HOST_BOUND: remark(
        "the submission is host-bound, more than the reference",
        "The host needs longer to launch a call than the GPU needs to execute it, and longer than for the reference. "
        "Or forward waits for the GPU, and the reference does not. The quoted time is the GPU's, with launches queued "
        "ahead. A program that calls one forward behind the other waits for the host. Most kernels of microseconds "
        "are host-bound, and the card says so; this finding means that the submission is worse than the reference.",
        "Launch fewer, larger kernels, do less in Python inside forward, or capture the work in a CUDA graph. Omit "
        ".item(), .cpu() and synchronize.",
    ),
    Code.BEATS_TARGET: remark(
        "the submission is faster than the target",
        "The target is the reference's operations at the peak of the problem's precision, or the time to read its "
        "weights. A correct submission can beat both: with another algorithm, another precision within the tolerance, "
        "or weights packed beforehand.",
        "No action needed. The problem's author can set a better count: [roofline] in problem.toml.",
    ),
    Code.FLOOR_DOUBTED: remark(
        "the computed floor is wrong",
        "The reference itself was faster than its computed floor, so the floor is wrong. The verdict ignores the "
        "floor.",
        "Tell the problem's author: [roofline] in problem.toml corrects the count.",
    ),
    Code.NO_ROOFLINE: remark(
        "the floor is unknown",
        "Warpgrade could not count the bytes that a call must move. The reference needs values that PyTorch's meta "
        "device lacks, answers the same inputs differently, or does not fit into memory twice.",
        "No action needed for a submission. The problem's author can set bytes and operations: [roofline] in "
        "problem.toml.",
    ),
    Code.BASELINE_FAILED: remark(
        "a baseline could not be timed",
        "An additional baseline did not build, load or run here, or gave wrong outputs. The verdict on the submission "
        "and its speedup over the reference are unaffected.",
        "Read the cause in the message; omit --baseline or --speedup-of, or grade the other file on its own.",
    ),
    Code.NOT_PROFILED: remark(
        "the call could not be profiled",
        "The additional call under PyTorch's profiler failed, or its result was not a profile. Verdict and times are "
        "unaffected.",
        "Read the cause in the message, or grade without --profile.",
    ),
    Code.NO_NCU: remark(
        "Nsight Compute is not installed",
        "--profile ncu reads the GPU's counters with Nsight Compute. Its program ncu is neither on the PATH, nor in "
        "the CUDA toolkit, nor in /opt/nvidia/nsight-compute. Verdict, times and the rest of the profile are "
        "unaffected.",
        "Install Nsight Compute (part of the CUDA toolkit; NVIDIA's package is cuda-nsight-compute-13-0, or that of "
        "another version), or use --profile torch.",
    ),
    Code.COUNTERS_REFUSED: remark(
        "the driver restricts GPU counters to administrators",
        "NVIDIA's driver lets either every user or only administrators read the GPU's counters. A runner has no "
        "administrator rights. Verdict, times and the rest of the profile are unaffected.",
        "Use --profile torch, or ask an administrator for NVreg_RestrictProfilingToAdminUsers=0: "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM (in /etc/modprobe.d).",
    ),
    Code.NOT_COUNTED: remark(
        "the GPU's counters could not be read",
        "The call under Nsight Compute failed, took too long, launched no kernel, or left no table of numbers. The "
        "submission runs there in a separate program, with separate inputs. Verdict, times and the rest of the profile "
        "are unaffected.",
        "Read the cause in the message, or use --profile torch.",
    ),
    Code.SHARED_WORK: remark(
        "the windows disagree with other measurements",
        "Calls of microseconds are timed in windows: several calls whose inputs are revealed together, so calls could "
        "share work. In a spot check the judge reveals the inputs and weights of a call when the outputs of the call "
        "before are final. Windows, single calls and spot checks are compared with those of the reference: a call of "
        "the windows took clearly less than a spot check or a single call, or a spot check took too little to be "
        "true. Single calls are quoted, with their larger error: 15 us on a GPU. If only the speedup by spot checks is "
        "smaller, with inputs warm in L2 on both sides, the smaller speedup is quoted. On cpu, windows are compared "
        "with single calls.",
        "Do all the work of a call in that call: no work for several calls at once, nothing kept from call to call, no "
        "reading of later calls' inputs, no delays in single calls.",
    ),
    Code.NOT_TIMED: remark(
        "the grade measured no time",
        "A grade of mode check decides correctness alone. The scorecard has no times, no speedup and no roofline. The "
        "timed calls of a full grade are checked too, so a full grade may find a failure that mode check cannot see.",
        "Grade without --mode check, on cpu or cuda, for a speedup.",
    ),
    Code.TIME_UNEARNED: remark(
        "a time below that of the fp32 units is not quoted",
        "The submission needed less time than the reference's operations take the fp32 units of this GPU. Several "
        "products of fewer bits can be as exact and as fast. But where an output mixes all inputs, no call can tell "
        "such products from one product of fewer bits, so no speedup is quoted.",
        "No action needed for a submission. The problem's author can return an output whose rows are independent, or "
        'set precision = "tf32".',
    ),
    Code.CASES_LEFT_OUT: remark(
        "the budget ended before the cases did",
        "--budget-s limits the time on the device. The heaviest cases came first, and when the time was spent, no "
        "further case began. Status and score are those of the graded cases; the cases left out were neither checked "
        "nor timed.",
        "Raise --budget-s, or name fewer cases with --case.",
    ),
}
