"""B: findings about building a submission."""

from evaluator.findings.codes import Code, Entry

ENTRIES: dict[Code, Entry] = {
    Code.NO_MODEL_NEW: Entry(
        "no ModelNew",
        "The submission was read to its end and does not define ModelNew, or what it defines is no class.",
        "Define `class ModelNew(nn.Module)` at the top level of the file; if the text was cut off before it, raise the "
        "token limit of the model that wrote it.",
    ),
    Code.IMPORT_FAILED: Entry(
        "the submission cannot be read in",
        "Python raised an error while it read the submission: a syntax error, a missing module, an error of its own.",
        "Run the file with Python; the message names its line.",
    ),
    Code.COMPILE_FAILED: Entry(
        "the extension does not compile",
        "The compiler refused the submission's C++ or CUDA. The first message is usually the one that matters.",
        "Mend the line under the caret; the whole log is in the scorecard, under build.units.",
    ),
    Code.FLAG_REFUSED: Entry(
        "a compiler flag is not allowed",
        "Compiler flags come from an allow-list (optimisation, language, machine, warnings, -D, -I, -L, -l). "
        "Flags that load code into the compiler, replace it, or read other files are refused.",
        "Leave the flag out.",
    ),
    Code.FAILED_BUILD_IGNORED: Entry(
        "a build failed and the submission went on",
        "An extension did not compile, the submission caught the error and ran without it: its fallback was graded.",
        "Read build.units in the scorecard for the compiler's message.",
    ),
    Code.NOT_ON_THIS_DEVICE: Entry(
        "this device cannot run it",
        "The submission asks for something that the chosen device lacks: inline CUDA on `cpu`, or C++ for the CPU that "
        "fails on the tensors of a GPU. That says nothing about whether it is right.",
        "Grade C++ for the CPU with --device cpu, inline CUDA with --device emulated, or with --device cuda on a "
        "machine with a GPU.",
    ),
    Code.COMPILER_TIMED_OUT: Entry(
        "the compiler ran too long",
        "The compiler was stopped at its time limit.",
        "Make the templates or constant expressions smaller, or raise --build-timeout.",
    ),
    Code.BUILD_REQUEST_REFUSED: Entry(
        "the build was not understood",
        "load_inline or load was called with something that is not supported: another language, a folder of its own, "
        "no sources, or sources over 4 MiB.",
        "Hand cpp_sources and cuda_sources to load_inline as strings.",
    ),
    Code.NOT_EMULATED: Entry(
        "the emulator lacks it",
        "The submission uses a construct that runs on a GPU only (inline PTX, tensor cores, bulk copies, CUTLASS "
        "and the like), or its text is more than the emulator's front end can read in a few seconds. That says nothing "
        "about whether it is right.",
        "Grade it with --device cuda on a machine with a GPU.",
    ),
    Code.HARD_CODED_SIZE: Entry(
        "the full size is written into the code",
        "The submission failed at a small size, and its code holds a number of the full size. It may be right there.",
        "Take sizes from the tensors (x.numel(), x.size(0)), or grade it with --device cuda at full size.",
    ),
    Code.TOO_MANY_BUILDS: Entry(
        "too many builds",
        "One process of the submission asked for more extensions than a submission may have.",
        "Put the kernels into one load_inline, or a few.",
    ),
    Code.BUILD_TOO_LARGE: Entry(
        "a build takes too much disk",
        "The compiler of one extension wrote more than 1 GiB of files, or more than 512 MiB into one of them. "
        "A library of PyTorch's kind has 0.2 to 20 MiB.",
        "Leave out large tables (.fill, initialised arrays) and debug information.",
    ),
    Code.BINDING: Entry(
        "what is bound, declared and defined does not fit together",
        "load_inline makes a C++ file of cpp_sources and binds there what functions=[...] names. So each of these must "
        "be declared in cpp_sources and defined in one of the sources, once and with the same parameters. The next "
        "step on the card has the line to add.",
        "Declare in cpp_sources what functions=[...] names (torch::Tensor f(torch::Tensor x);).",
    ),
    Code.PACKAGE_MISSING: Entry(
        "a package is not installed",
        "The submission imports a package that is not there. It may import Python's standard library, `model` (the "
        "reference's Model) and every package that is installed beside Warpgrade: PyTorch and NumPy always.",
        "Do without the package; or, to allow it to every submission, install it with the Python that runs Warpgrade: "
        "python -m pip install PACKAGE.",
    ),
}
