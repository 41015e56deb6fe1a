"""Submissions with KernelBot's function: the entry that calls it, in files and in answers."""

import pytest

from evaluator.protocol.submission_files import checked, parts
from evaluator.records import Finding
from evaluator.submission.read import read_submission

KERNEL = "from task import input_t\n\n\ndef custom_kernel(data: input_t):\n    return data\n"
ANSWER = f"The kernel:\n\n```python\n{KERNEL}```\n"
CLASS = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


def read(tmp_path, text, name="mine.py", **options):
    file = tmp_path / name
    file.write_text(text)
    return read_submission(file, **options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.py", KERNEL),
        ("mine.md", ANSWER),
        ("mine.txt", f"{ANSWER}\n```python\nimport torch\n```\n"),
        ("text.md", KERNEL),
    ],
)
def test_the_function_becomes_a_submission_of_two_files(tmp_path, name, text):
    submission = read(tmp_path, text, name)
    assert not isinstance(submission, Finding)
    files = {file.path: file.text for file in parts(submission.source)}
    assert files["submission.py"] == KERNEL
    assert "from submission import custom_kernel" in files["warpgrade_entry.py"]
    assert checked(parts(submission.source)).entry == "warpgrade_entry.py"
    assert submission.line_offset == 0


def test_a_compiled_function_counts(tmp_path):
    text = "import torch\n\n\ndef f(data):\n    return data\n\n\ncustom_kernel = torch.compile(f)\n"
    assert len(parts(read(tmp_path, text).source)) == 3


@pytest.mark.parametrize("text", [f"{KERNEL}\n\n{CLASS}", CLASS, "def custom_kernels(data):\n    return data\n"])
def test_a_class_comes_first_and_other_texts_stay(tmp_path, text):
    assert read(tmp_path, text).source == text


def test_a_grade_with_a_named_entry_looks_for_no_function(tmp_path):
    assert read(tmp_path, KERNEL, entry="Net").source == KERNEL
