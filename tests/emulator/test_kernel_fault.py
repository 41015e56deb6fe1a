"""What the judge makes of the emulator's errors: the finding, and places told as lines of the submission."""

import pytest

from evaluator.findings import Code
from evaluator.judge.runners.language_faults import kernel_fault
from evaluator.protocol.submission_files import joined, parts, place_of

SUBMISSION = """import torch
cuda = '''
__global__ void k(float* x) {
    x[threadIdx.x] = 1.0f;
    __syncthreads();
}
void run() { k<<<1, 2048>>>(nullptr); }
'''
cpp = "void run();"
"""
CUDA = "#include <torch/types.h>\n" + SUBMISSION.split("'''")[1]
TEXTS = {"main.cpp": "#include <torch/extension.h>\nvoid run();\nreturn 1;", "cuda.cu": CUDA}


SEVERAL = joined(
    [
        ("submission.toml", 'entry = "main.py"\n'),
        ("forward/kernel.cu", f"int forward;\n{CUDA}"),
        ("backward/kernel.cu", f"int backward;\n{CUDA}"),
    ]
)


def told(message, texts=None):
    fault = kernel_fault(f"emulator[illegal-access]: {message}", TEXTS if texts is None else texts, SUBMISSION)
    assert fault.code == Code.ILLEGAL_ACCESS.value
    return fault.message, fault.line


def test_the_line_of_an_access_becomes_the_submissions_own():
    assert told("kernel k: WRITE (cuda.cu:4)") == ("kernel k: WRITE (line 4)", 4)
    assert CUDA.splitlines()[3] == SUBMISSION.splitlines()[3]


def test_the_last_place_is_the_errors_own():
    message = "two barriers, another at __syncthreads (cuda.cu:5) (cuda.cu:4)"
    assert told(message) == ("two barriers, another at __syncthreads (line 5) (line 4)", 4)


def test_a_launch_is_told_by_the_line_of_the_one_file_that_can_launch():
    assert told("kernel k (launched in line 7)") == ("kernel k (launched in line 7)", 7)
    assert told("kernel k (launched in line 7)", TEXTS | {"other.cu": CUDA.replace("\n", "\n\n")})[1] == 7
    assert told("kernel k (launched in line 7)", TEXTS | {"other.cu": CUDA.replace("void run", "void walk")})[1] == 7


@pytest.mark.parametrize("folder", ["forward", "backward"])
def test_equal_lines_of_two_files_are_told_apart_by_the_path(folder):
    """Both files have the line, and the same name: without the folder, the line of the other file was told."""
    texts = {part.path: part.text for part in parts(SEVERAL)}
    message = f"emulator[illegal-access]: kernel k: WRITE (/tmp/x/work/csrc/../{folder}/kernel.cu:5)"
    fault = kernel_fault(message, texts, SEVERAL)
    assert fault.message == f"kernel k: WRITE ({folder}/kernel.cu, line 5)"
    assert place_of(SEVERAL, fault.line).label == f"{folder}/kernel.cu, line 5"


def test_a_launch_that_two_files_may_contain_has_no_line():
    texts = {part.path: part.text for part in parts(SEVERAL)}
    assert kernel_fault("emulator[trap]: kernel k (launched in line 8)", texts, SEVERAL).line is None


def test_a_launch_is_told_by_the_name_of_the_kernel():
    submission = SEVERAL.replace("k<<<", "back<<<", 2).replace("back<<<", "k<<<", 1)
    texts = {part.path: part.text for part in parts(submission)}
    fault = kernel_fault("emulator[trap]: kernel back: WRITE (launched in line 8)", texts, submission)
    assert fault.message == "kernel back: WRITE (launched in backward/kernel.cu, line 8)"


def test_the_compilers_folder_is_not_told():
    assert told("kernel k: READ (/tmp/warpgrade-build-1/work/vector.h:4)") == ("kernel k: READ (vector.h:4)", None)


@pytest.mark.parametrize("place", ["(vector.h:4)", "(cuda.cu:1)", "(cuda.cu:99)", "(main.cpp:3)", ""])
def test_a_place_outside_of_the_submission_is_left_as_it_is(place):
    assert told(f"kernel k: READ {place}") == (f"kernel k: READ {place}".strip(), None)


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("shared-out-of-bounds", Code.ILLEGAL_ACCESS),
        ("divergent-barrier", Code.BARRIER),
        ("deadlock", Code.BARRIER),
        ("lane-outside-mask", Code.LANE_OUTSIDE_MASK),
        ("assert", Code.DEVICE_ASSERT),
        ("stack-overflow", Code.NOT_EMULATED),
    ],
)
def test_every_word_has_a_code(word, code):
    assert kernel_fault(f"RuntimeError: emulator[{word}]: kernel k\nmore", {}, "").code == code.value


@pytest.mark.parametrize("text", ["", " ", "\n", "\u2028"])
def test_a_message_without_words_is_told_by_its_kind(text):
    """A submission can raise what it likes; the judge reads it."""
    fault = kernel_fault(f"RuntimeError: emulator[trap]: {text}", {}, "")
    assert (fault.code, fault.message) == (Code.DEVICE_ASSERT.value, "trap")


@pytest.mark.parametrize("message", ["", "CUDA error", "emulator[nothing]: x", "No module named 'tritonclient'"])
def test_other_messages_are_not_the_emulators(message):
    assert kernel_fault(message, TEXTS, SUBMISSION) is None
