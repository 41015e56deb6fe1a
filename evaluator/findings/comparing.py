"""C: findings about a submission's outputs, compared with the reference's."""

from evaluator.findings.codes import Code, Entry, Trait, inconclusive, remark, wrong_result

REFERENCE_PART = "Compute this part as the reference does."
BATCH_STATISTICS = "Compute mean and variance from the batch: Model is in training mode."
CONTIGUOUS = "Call .contiguous() on the transposed weight, or exchange the weight's indices in the kernel."
CONSTANT = "Look for a constant that is added or multiplied."
NOT_WRITTEN = "Look for elements that no thread writes, and for a kernel that never runs."
OVERFLOW = (
    "Look for an overflow, such as exp of a large number: subtract the largest value first, or treat large numbers "
    "apart. To grade by get_inputs alone: --values own."
)
CANCELLATION = (
    "Look for a difference of nearly equal numbers: a variance as E[x*x] - E[x]*E[x] (subtract the mean before the "
    "square), exp(x) - 1, or a tanh of two exponentials. To grade by get_inputs alone: --values own."
)
WEIGHTS_FIRST = (
    "Copy the weights first (R307): ModelNew may compute with other weights than the reference. Create the reference's "
    "parameters in the same order, or use the same names."
)
TRANSPOSED = "Exchange the last two indices of the output."
EXTRA_CLAMP = "Look for a relu or clamp that the reference does not have."
DRIFT = (
    "Look for a small constant that differs, such as an epsilon, and for a long sum in one accumulator or at one "
    "address: add up parts first, such as one part per block."
)
NO_FAST_MATH = (
    "Compile without --use_fast_math: the flag replaces tanhf by tanh.approx (11 bits), expf, logf and divisions by "
    "approximations. Call intrinsics such as __expf only where their bits suffice."
)
ACCURATE_FUNCTIONS = "Call the accurate function (expf, logf, tanhf, a division) in place of the approximation."
HARDLY_BEYOND = (
    "Errors this small are mostly rounding. Look for an approximate function, arithmetic in fewer bits, and a long sum "
    "in one accumulator: add up parts first, such as one part per block."
)
OF_ROUNDING = (NO_FAST_MATH, ACCURATE_FUNCTIONS, HARDLY_BEYOND)
"""Next steps of errors just beyond the tolerance."""
COMPUTE_IN_FP32 = (
    "Compute in fp32: no TF32 (torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, wmma), half or bfloat16. "
    'Triton\'s tl.dot of fp32 operands uses TF32 by default: pass input_precision="ieee". For a problem in TF32: '
    "no bfloat16."
)
IN_FP32_OR_A_STEP = (
    'Compute in fp32: no TF32, half or bfloat16, and tl.dot with input_precision="ieee". If the text has no such '
    "arithmetic, look for a step that other values hide, such as a factor before a norm."
)
DECLARE_FLIPS = (
    "Look for elements left out, such as the last of a row. If none is, only the problem's author can let a few values "
    "flip: [formats.outputs] output = { flips = 1e-5 } in problem.toml, or a declared format."
)
NEARLY_ALL = (
    "Nearly all values are wrong. Look for a step that is left out or changed, a wrong index, a missing "
    "__syncthreads(), or arithmetic in fewer bits."
)
WEIGHTS_IN_EACH_CALL = (
    "Read the weights in each call: what the constructor copies, folds or packs does not follow their changes. For "
    "fixed weights, as in inference: --weights frozen."
)
WEIGHT_LEFT_OUT = (
    "Look for a weight that is left out or applied in another place: norms are constructed with weights of 1 and "
    "biases of 0."
)
CHECK_LAUNCHES = "Keep the launch within the limit, and check every launch: C10_CUDA_KERNEL_LAUNCH_CHECK();"
OF_FORMS = (REFERENCE_PART, BATCH_STATISTICS, CONTIGUOUS)
"""Next steps of answers that are a known form of the reference."""
_OF_WEIGHTS = (WEIGHTS_IN_EACH_CALL, WEIGHT_LEFT_OUT)

ENTRIES: dict[Code, Entry] = {
    Code.WRONG_STRUCTURE: wrong_result(
        "the output has the wrong structure",
        "The number or the nesting of the outputs, or the keys of a dict, differ from the reference's.",
        "Return the same tuple, list or dict as the reference. The keys of a dict may have any order.",
    ),
    Code.WRONG_SHAPE: wrong_result(
        "an output has the wrong shape",
        "Output and reference must have exactly the same shape; the comparison does not broadcast.",
        "Return the shape of the reference's output.",
        traits=Trait.FROM_FIXED_SIZE,
    ),
    Code.WRONG_DTYPE: wrong_result(
        "an output has the wrong dtype",
        "Output and reference must have the same dtype.",
        "Compute in the reference's dtype. A cast of the output alone is enough only where the arithmetic has no fewer "
        "bits than the problem's (C414).",
    ),
    Code.NOT_A_TENSOR: wrong_result(
        "an output is not a tensor",
        "The reference returns a tensor, and the submission returned another type.",
        "Return a torch.Tensor.",
    ),
    Code.WRONG_VALUES: wrong_result(
        "output values are wrong",
        "The largest error exceeds the tolerance. The tolerance is a multiple of the reference's own error against "
        "float64, relative to the row.",
        "Look at the element of the first mismatch: a missing tail, a wrong index, a missing __syncthreads().",
        (
            *(NEARLY_ALL, WEIGHTS_FIRST, *OF_FORMS, CONSTANT, NOT_WRITTEN, TRANSPOSED, EXTRA_CLAMP, DRIFT),
            *(COMPUTE_IN_FP32, CHECK_LAUNCHES, *_OF_WEIGHTS, *OF_ROUNDING),
        ),
        traits=Trait.WRONG_VALUES | Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE | Trait.FROM_RANDOM_REFERENCE,
    ),
    Code.NOT_FINITE: wrong_result(
        "an output is NaN or infinite",
        "An output is NaN or infinite at an element where the reference is finite, or the other way round.",
        "Look for an unwritten element, a missing __syncthreads(), a division by zero, or an overflow.",
        (CHECK_LAUNCHES,),
        traits=Trait.WRONG_VALUES | Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE,
    ),
    Code.NO_GRADIENT: wrong_result(
        "a gradient is missing",
        "The problem grades gradients. The submission has no gradient for an input or parameter that has one in the "
        "reference.",
        "Wrap the kernel in a torch.autograd.Function with a backward.",
    ),
    Code.INPUT_CHANGED: wrong_result(
        "the submission changed an input",
        "The submission wrote into one of its inputs; the reference does not.",
        "Write into a tensor of the submission's own.",
    ),
    Code.OUTPUT_REUSED: wrong_result(
        "an output reuses memory in use",
        "Two calls returned outputs in the same memory while the first output was still held, so the second call "
        "overwrote the first. Or an output shares a weight's memory where the reference returns a copy, so that a "
        "caller's write changes the weight.",
        "Allocate the output in every call (torch.empty_like), not once.",
    ),
    Code.NOT_FLOAT64: remark(
        "the expected values have the problem's own precision",
        "The reference does not run in float64, differs there, or float64 leaves too little memory for the submission. "
        "The expected values are therefore the reference's own, and the tolerance is the floor of the dtype. "
        "Answers within the tolerance are not checked for reduced precision.",
        "The problem's author can remove casts from the reference. For lack of memory: --size small.",
    ),
    Code.WRONG_DEVICE: wrong_result(
        "an output is on the wrong device",
        "Output and reference must be on the same device.",
        "Return the tensor on the device of the input.",
        traits=Trait.FROM_CPU_CODE,
    ),
    Code.LATE_OUTPUT: wrong_result(
        "an output changed after the call ended",
        "Values sampled at the end of the call differ from the values compared later. Work continued after the call, "
        "for example in a thread or on a stream without a join.",
        "Before forward returns, join every thread, and every stream (torch.cuda.current_stream().wait_stream(...)).",
    ),
    Code.DIFFERS: wrong_result(
        "identical calls give different answers",
        "The judge repeated a call with the same inputs. One answer agreed with the reference, another did not: "
        "threads race, or the code reads uninitialised memory.",
        "Look for a missing __syncthreads, two threads that write one address, and uninitialised memory.",
        traits=Trait.FROM_RANDOM_REFERENCE,
    ),
    Code.LOWER_PRECISION: wrong_result(
        "the arithmetic has reduced precision",
        "The problem asks for fp32, or for TF32. The output's errors correlate with those of the reference after "
        "rounding its operands, inputs or output to a format with fewer bits: TF32, fp16 or bf16 instead of fp32, bf16 "
        "instead of TF32. In long sums such errors may be well within the tolerance.",
        COMPUTE_IN_FP32,
        (IN_FP32_OR_A_STEP,),
        traits=Trait.FROM_RANDOM_REFERENCE,
    ),
    Code.STOOD_BEFORE: wrong_result(
        "an output existed before the inputs",
        "In several calls, parts of an output had their final values in memory before the judge wrote the inputs. The "
        "values were computed before the clock started, or kept from an earlier call. Or elements are unwritten and "
        "wrong: the judge overwrites the last call's outputs before the next call, as any caller may.",
        "Write every element of the output in the call: torch.zeros there, or all elements of a buffer that is kept.",
    ),
    Code.WIDE_TOLERANCE: remark(
        "the tolerance is wide",
        "On the problem's own inputs the fp32 reference, or a reordered sum of it, is far from float64. The tolerance "
        "therefore exceeds 16 times the floor (in half precision 4 times). If few elements are far off (a "
        "function with steps), the submission may have hardly more of them. If most are, the verdict proves less.",
        "No action needed for a submission. The problem's author can draw inputs on which the reference is exact, or "
        "set [tolerance] in problem.toml.",
    ),
    Code.VALUES_UNTRIED: remark(
        "the problem is too slow to check other input values, or memory was short",
        "Some calls use other values than the problem's own, if the reference supports them. Trials on the reference "
        "tell, at the small size or at the only size. They would take too long, or did not fit into memory, so a "
        "submission that fails on other values may have passed.",
        "Give the problem a small size.",
    ),
    Code.ROUNDING_UNTRIED: remark(
        "too little memory for the reduced-precision check",
        "The check compares errors within the tolerance with those of TF32, fp16 and bf16. The check computes a "
        "rounded reference, which needs more memory than this machine or its GPU has.",
        "Grade at a smaller size (--size small), or on a GPU with more memory.",
    ),
    Code.STALE_WEIGHTS: wrong_result(
        "the answer uses weights of an earlier call",
        "Weights change from call to call, in place, as an optimiser changes them. The answer is wrong for this "
        "call's weights, and correct for earlier ones. The error is a part of the change of the weights. The "
        "submission packed, quantised or folded weights once, and kept the result.",
        "Recompute derived weights in each call, or when _version changes. For fixed weights, as in inference: "
        "--weights frozen.",
        traits=Trait.FROM_WEIGHTS,
    ),
    Code.SHARED_ELEMENTS: wrong_result(
        "output elements share memory",
        "Two output elements have the same address, and the reference's do not: an overlapping view (expand, sliding "
        "windows), or two outputs in one buffer. The submission skips writes, and a caller's write to one element "
        "changes the other.",
        "Write every element to an address of its own: repeat instead of expand, .contiguous() or .clone().",
    ),
    Code.WEIGHTS_NOT_CHANGED: remark(
        "the judge could not change the weights",
        "Weights change from call to call if ModelNew has the reference's parameters: the same names and shapes, the "
        "same values in another shape or transposed, or a unique tensor of the same shape with a name of the same "
        "meaning. This ModelNew differs: all calls used the initial weights. "
        "The outputs are correct for these weights; whether the submission keeps derived weights is unknown. Therefore "
        "no speedup is quoted.",
        "Keep the reference's parameter names and shapes. For fixed weights: --weights frozen.",
    ),
    Code.WRONG_ON_OTHER_VALUES: wrong_result(
        "output values are wrong for other input values",
        "The answers agree for inputs of the problem's own get_inputs, and differ for inputs with other values: both "
        "signs, large, small, outliers and so on, or a few rows with random signs, whose sums are small. "
        "The message names the values. The default verdict includes such inputs, because a kernel that computes the "
        "reference's function agrees for all of them.",
        "Look for an overflow, a missing sign, a case that get_inputs never draws, or arithmetic below fp32, whose "
        "errors average out in sums of positive terms. To grade by get_inputs alone: --values own.",
        (OVERFLOW, CANCELLATION, CHECK_LAUNCHES, *OF_FORMS, *_OF_WEIGHTS, *OF_ROUNDING),
        traits=Trait.WRONG_VALUES | Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE | Trait.FROM_RANDOM_REFERENCE,
    ),
    Code.FIXED_INPUTS: remark(
        "the problem's inputs are the same in every call",
        "get_inputs returned equal tensors for two seeds. In calls with the problem's own values, a submission may "
        "return an answer that was computed before. Only calls with other values and weights prove the computation.",
        "No action needed for a submission. The problem's author can draw the inputs at random in get_inputs.",
    ),
    Code.REDUCED_INSTRUCTIONS: remark(
        "the machine code has fewer bits than the problem asks for",
        "The disassembled libraries of the submission have tensor-core or half-precision instructions, or conversions "
        "to such formats: TF32, bf16, fp16, fp8 or small integers in a problem in fp32. The message names instructions "
        "and kernels. This finding does not change the verdict: the errors of the answers decide (C414). An answer of "
        "three bf16 products is as exact as honest fp32, passes, and has this finding.",
        'If tensor cores are intended, set precision = "tf32" in problem.toml. Otherwise compute in fp32. For integer '
        "arithmetic that the problem itself asks for: no action needed.",
    ),
    Code.ROUNDING_DECIDES: inconclusive(
        "no call could tell a right answer from a wrong one",
        "A right answer is evidence only if the tolerance would have refused surely wrong ones by far: the output of "
        "other inputs, or its means. In no call would it, or other orders of summation move the output altogether. An "
        "example is the mean of a group norm with weights of 1 and biases of 0: it is 0, apart from rounding. Or at "
        "most 1/16 of an output's integers, booleans or steps differ, and nothing else: rounding may decide so few.",
        "Keep the reference's parameter names and shapes, and grade without --weights frozen: the weights then change. "
        "If the reference has no weights, only the problem's author can change the output.",
        (DECLARE_FLIPS,),
    ),
    Code.RANDOM_REFERENCE: inconclusive(
        "the reference's answer is random",
        "The forward of the reference draws random numbers, and other numbers give other values. The answer was "
        "compared with one of many right ones, so the difference says nothing about the submission. Only a submission "
        "that draws the same numbers from PyTorch's seeded generator agrees.",
        "The problem's author can draw the random numbers in get_inputs, and pass them to forward, or give the problem "
        "a check of its own.",
    ),
    Code.CHECK_REFUSES: wrong_result(
        "the problem's own check refuses the answer",
        "The function check(inputs, outputs) of the problem returned a message, or raised an exception.",
        "Read the message, and the function check in the problem's reference.py.",
        traits=Trait.WRONG_VALUES | Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE,
    ),
    Code.NOT_UNIQUE: inconclusive(
        "the reference's answer is not the only right one",
        "The reference calls qr, eig, eigh or svd. Factors and eigenvectors have free signs, or are any basis of a "
        "subspace. The answer was compared with one of many right ones, so the difference says nothing.",
        'The problem\'s author can write a function check(inputs, outputs) in reference.py, with check = "instead" in '
        "problem.toml.",
    ),
}
