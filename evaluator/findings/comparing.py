"""C: findings about a submission's outputs, held against the reference's."""

from evaluator.findings.codes import Code, Entry

ENTRIES: dict[Code, Entry] = {
    Code.WRONG_STRUCTURE: Entry(
        "the output has another structure",
        "The number or the nesting of the outputs differs from the reference's.",
        "Return the same tuple, list or dict as the reference.",
    ),
    Code.WRONG_SHAPE: Entry(
        "an output has another shape",
        "Shapes must be equal exactly; nothing is broadcast.",
        "Return the shape that the reference returns.",
    ),
    Code.WRONG_DTYPE: Entry(
        "an output has another dtype",
        "The dtype of an output must be that of the reference's.",
        "Cast the output, or compute in the reference's dtype.",
    ),
    Code.NOT_A_TENSOR: Entry(
        "an output is not a tensor",
        "Where the reference returns a tensor, the submission returned something else.",
        "Return a torch.Tensor.",
    ),
    Code.WRONG_VALUES: Entry(
        "the values differ",
        "The largest error is beyond what the honest reference's own error against float64 allows, scaled to the row.",
        "Look at the element of the first mismatch: a tail that is left out, an index, a missing __syncthreads().",
    ),
    Code.NOT_FINITE: Entry(
        "NaN or infinity where a number belongs",
        "An output is NaN or infinite where the reference is not (or the other way round).",
        "Look for an element that is never written, a missing __syncthreads(), a division by zero, or an overflow.",
    ),
    Code.NO_GRADIENT: Entry(
        "no gradient",
        "The problem grades gradients, and the submission gives none for an input or parameter that the reference "
        "gives one for.",
        "Wrap the kernel in a torch.autograd.Function with a backward.",
    ),
    Code.INPUT_CHANGED: Entry(
        "an input was changed",
        "The submission wrote into one of its inputs; the reference does not.",
        "Write into a tensor of your own.",
    ),
    Code.OUTPUT_REUSED: Entry(
        "an output lies in an earlier one's memory",
        "Two calls gave outputs in the same memory while the first was still held, so the second overwrote the first. "
        "Or an output lies in a weight's memory, and the reference's is a copy: a caller who writes changes that.",
        "Allocate the output in every call (torch.empty_like), not once.",
    ),
    Code.NOT_FLOAT64: Entry(
        "compared in the problem's own precision",
        "The reference cannot be run in float64, or gives something else there, or float64 leaves too little memory "
        "for a submission: so the expected values are its own, the tolerance is the floor for its dtype, and right "
        "answers are not asked whether they have fewer bits.",
        "The problem's author can avoid casts in the reference. Where memory is too little: --size small.",
    ),
    Code.WRONG_DEVICE: Entry(
        "an output is on another device",
        "Outputs must be on the device of the reference's outputs.",
        "Return the tensor on the device of the input.",
    ),
    Code.LATE_OUTPUT: Entry(
        "an output was written after the call was over",
        "Values that were sampled when the call said that it was over are not those that stand there now: work went on "
        "behind it, in a thread or on a stream that it does not wait for, for instance.",
        "Join every thread of your own before forward returns, and every stream "
        "(torch.cuda.current_stream().wait_stream(...)).",
    ),
    Code.DIFFERS: Entry(
        "answers to the same call differ",
        "The same inputs were given more than once. One answer agreed with the reference, another did not: threads "
        "race, or something is read that was never written.",
        "Look for a missing __syncthreads, for two threads that write one place, and for what starts uninitialised.",
    ),
    Code.LOWER_PRECISION: Entry(
        "the arithmetic is less precise than the problem asks for",
        "The problem asks for fp32, and the output's errors are those of fewer bits: they go with the errors of the "
        "reference itself once its operands, inputs or output are rounded to TF32, bf16 or fp16. In long sums those "
        "may be well within the tolerance.",
        "Compute in fp32: no TF32 (torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, wmma), half or bfloat16.",
    ),
    Code.STOOD_BEFORE: Entry(
        "an output stood there before the inputs did",
        "Parts of an output had their final values in memory before the call's inputs were written, in several calls: "
        "they were made before the clock started, or kept from an earlier call. Or they are wrong, for they were not "
        "written: outputs of the last call are overwritten before the next one, as any caller may do.",
        "Write all of an output in the call: torch.zeros there, or every element of a buffer that is kept.",
    ),
    Code.WIDE_TOLERANCE: Entry(
        "the tolerance is wide",
        "On the problem's own inputs the reference itself, or its sums in another order, is far from float64, so more "
        "than 16 times the floor is allowed. Where a few elements alone are (a function with steps flips some), no "
        "more of a submission's may be, or hardly more; where most are, the verdict says less than it could.",
        "Nothing to do as a submitter. The problem's author can draw inputs on which the reference is exact, or set "
        "[tolerance] in problem.toml.",
    ),
    Code.VALUES_UNTRIED: Entry(
        "the problem is too large to try other values",
        "Some calls have other values than the problem's own, where its reference bears them. Which it bears must be "
        "tried once, at this size or at the problem's small one. By the count of its operations this problem takes too "
        "long for that within a grade: a submission that fails on other values was not shown to them.",
        "Give the problem a small size, or have it tried once: warpgrade problems validate PROBLEM.",
    ),
    Code.ROUNDING_UNTRIED: Entry(
        "there was too little memory to ask about fewer bits",
        "Answers within the tolerance are asked whether their errors are those of TF32, fp16 or bf16. For that the "
        "reference is computed once more, rounded, which takes more memory than this machine or its GPU has.",
        "Grade at a smaller size (--size small), or on a GPU with more memory.",
    ),
    Code.STALE_WEIGHTS: Entry(
        "an answer from earlier weights",
        "Weights change from call to call, in place and in the same storage, as an optimiser changes them. This call's "
        "answer is wrong for its weights, and right once the model has earlier ones again: something was computed from "
        "the weights once (packed, quantised, folded into another) and kept.",
        "Compute in each call what follows from the weights, or when their _version has changed. Where a deployment's "
        "fixed weights are what is meant: --weights frozen.",
    ),
    Code.SHARED_ELEMENTS: Entry(
        "elements share memory",
        "Two elements of the outputs lie in the same memory, and the reference's own do not: a view that repeats "
        "itself (expand, overlapping windows), or two outputs that overlap in one buffer. That leaves writing out, and "
        "a caller who writes into one of them changes the other.",
        "Write every element to a place of its own: repeat instead of expand, .contiguous() or .clone().",
    ),
    Code.WEIGHTS_NOT_CHANGED: Entry(
        "the weights could not be changed",
        "Weights change from call to call where ModelNew has them as the reference has them: under the same names and "
        "shapes, or with the same values in another shape or transposed. This one has not, so its calls all had the "
        "weights that were constructed. What it computes is right for those; what it keeps of them cannot be told.",
        "Keep the reference's parameters, by name and shape. Or ask for --weights frozen, if they are meant to stay.",
    ),
}
