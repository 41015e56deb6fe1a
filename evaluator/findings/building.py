"""B: findings about building a submission."""

from evaluator.findings.codes import Code, Entry, Trait, build_error, inconclusive, remark, timeout
from evaluator.findings.submission import ONE_BLOCK, RENAME
from evaluator.records import Status

ENTRIES: dict[Code, Entry] = {
    Code.NO_MODEL_NEW: build_error(
        "the submission defines no class ModelNew",
        "The submission ran to its end without a class ModelNew, or of the name that --entry gives: the name is "
        "missing, or is not a class. Without --entry, a class Model counts too, unless it is the reference's own.",
        "Define `class ModelNew(nn.Module)` at the top level of the file. If a language model's answer ends before the "
        "class, raise the model's token limit.",
        (RENAME,),
    ),
    Code.IMPORT_FAILED: build_error(
        "the submission cannot be imported",
        "Python raised an exception while importing the submission: a syntax error, a missing module, or an exception "
        "of the submission's own.",
        "Run the file with Python; the message names the line.",
        (ONE_BLOCK,),
    ),
    Code.COMPILE_FAILED: build_error(
        "the extension does not compile",
        "The compiler rejected the submission's C++ or CUDA. Later errors often follow from the first one.",
        "Fix the line under the caret; the scorecard has the whole log under build.units.",
    ),
    Code.FLAG_REFUSED: build_error(
        "a compiler flag is not allowed",
        "Compiler flags come from an allow-list (optimisation, language, machine, warnings, -D, -I, -L, -l). "
        "Warpgrade refuses flags that load code into the compiler, replace the compiler, or read other files.",
        "Remove the flag.",
    ),
    Code.FAILED_BUILD_IGNORED: remark(
        "a build failed and the submission continued",
        "An extension did not compile. The submission caught the exception, so the grade is that of its fallback.",
        "Read the compiler's message in the scorecard, under build.units.",
    ),
    Code.NOT_ON_THIS_DEVICE: inconclusive(
        "the chosen device cannot run the submission",
        "The submission needs another device: inline CUDA and Triton cannot run on `cpu`, C++ for the CPU fails on a "
        "GPU's tensors, and CuTe DSL, TileLang, CuPy and cuda-python need a GPU. Correctness remains unknown.",
        "Grade C++ for the CPU with --device cpu, inline CUDA and Triton with --device emulated, and every language "
        "with --device cuda on a machine with a GPU.",
    ),
    Code.COMPILER_TIMED_OUT: timeout(
        "the compiler timed out",
        "The compiler reached its time limit, and Warpgrade stopped it.",
        "Reduce templates and constant expressions, or raise --build-timeout.",
    ),
    Code.BUILD_REQUEST_REFUSED: build_error(
        "the build request is not supported",
        "A call of load_inline or load asks for an unsupported build: another language, a build folder, no sources, or "
        "sources over 4 MiB.",
        "Pass cpp_sources and cuda_sources to load_inline as strings.",
    ),
    Code.NOT_EMULATED: inconclusive(
        "the emulator does not support this construct",
        "The submission uses a construct that only a GPU runs (inline PTX, tensor cores, bulk copies, CUTLASS), or one "
        "of PyTorch with CUDA alone (torch.compile, graphs). Or the text is too long for the emulator's front end. "
        "Correctness remains unknown.",
        "Grade the submission with --device cuda on a machine with a GPU.",
    ),
    Code.HARD_CODED_SIZE: inconclusive(
        "the code contains the full size as a constant",
        "The submission failed at a small size, and the code contains a number of the full size. The submission may be "
        "correct at full size.",
        "Take sizes from the tensors (x.numel(), x.size(0)), or grade at full size with --device cuda.",
    ),
    Code.TOO_MANY_BUILDS: Entry(
        frozenset({Status.REJECTED, Status.BUILD_ERROR}),
        "the submission asked for too many builds",
        "One process of the submission exceeded the number of extension builds that a submission may request.",
        "Put the kernels into one load_inline, or a few.",
    ),
    Code.BUILD_TOO_LARGE: build_error(
        "a build exceeds the disk limit",
        "The compiler of one extension wrote more than 1 GiB of files, or more than 512 MiB into one file. A PyTorch "
        "extension usually has 0.2 to 20 MiB.",
        "Remove large tables (.fill, initialised arrays) and debug information.",
    ),
    Code.BINDING: build_error(
        "bindings, declarations and definitions do not match",
        "load_inline makes a C++ file of cpp_sources and binds the functions of functions=[...] there. Each function "
        "needs a declaration in cpp_sources and one definition with the same parameters. The scorecard's next step "
        "has the missing line.",
        "Declare each function of functions=[...] in cpp_sources (torch::Tensor f(torch::Tensor x);).",
    ),
    Code.PACKAGE_MISSING: Entry(
        frozenset({Status.BUILD_ERROR, Status.RUNTIME_ERROR}),
        "a package is not installed",
        "The submission imports a package that is not installed. Available are Python's standard library, `model` (the "
        "reference's Model) and all packages installed beside Warpgrade: always PyTorch and NumPy.",
        "Remove the import; or install the package for every submission, with the Python that runs Warpgrade: "
        "python -m pip install PACKAGE.",
    ),
    Code.KERNEL_REFUSED: build_error(
        "the kernel does not compile",
        "The compiler of the kernel's language refused the kernel: Triton or its interpreter, NVRTC, CuTe DSL, "
        "TileLang or CuPy reported an error. Or a Triton kernel needs more shared memory or threads than the GPU has. "
        "The submission's own process reports the reason.",
        "Fix the line under the caret. Without a caret, the message names the instruction or the limit of the GPU.",
        traits=Trait.FROM_WEIGHTS | Trait.FROM_FIXED_SIZE,
    ),
    Code.LANGUAGE_MISSING: inconclusive(
        "the language of the kernels is not installed",
        "The submission imports a kernel language, or includes its headers, and the language is not installed beside "
        "Warpgrade. Correctness remains unknown.",
        "Install the language with the Python that runs Warpgrade; the message has the command.",
    ),
}
