"""Submissions of several files: reading of the folder, and its one text."""

import os

import pytest

from evaluator.findings import Code
from evaluator.lint.lint import look
from evaluator.protocol.submission_files import BadFiles, Place, joined, parts, place_of
from evaluator.submission.read import MAX_CODE_BYTES, Submission, read_submission

MANIFEST = 'entry = "main.py"\n'
MAIN = "import helper\n\n\nclass ModelNew:\n    pass\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "mine"
    (made / "csrc").mkdir(parents=True)
    (made / "submission.toml").write_text(MANIFEST)
    (made / "main.py").write_text(MAIN)
    (made / "csrc" / "k.cu").write_text("int f();\nint g();")
    (made / "notes.md").write_text("not part of the submission")
    return made


def test_a_folder_is_one_text_with_its_files(folder):
    read = read_submission(folder)
    assert isinstance(read, Submission)
    assert read.name == "mine"
    assert [(part.path, part.text) for part in parts(read.source)] == [
        ("submission.toml", MANIFEST),
        ("main.py", MAIN),
        ("csrc/k.cu", "int f();\nint g();\n"),
    ]


def test_the_text_reads_like_its_folder(folder, tmp_path):
    read = read_submission(folder)
    again = tmp_path / "text.txt"
    again.write_text(read.source)
    assert read_submission(again).sha256 == read.sha256


def test_a_line_of_the_text_has_its_place_in_a_file(folder):
    text = read_submission(folder).source
    line = text.split("\n").index("int g();") + 1
    assert place_of(text, line) == Place("csrc/k.cu", "int f();\nint g();\n", 2)
    assert place_of("x = 1\n", 1).label == "line 1"


def test_a_manifest_may_list_the_files(folder):
    (folder / "submission.toml").write_text(MANIFEST + 'sources = ["csrc/k.cu"]\n')
    (folder / "other.py").write_text("x = 1")
    assert [part.path for part in parts(read_submission(folder).source)] == ["submission.toml", "main.py", "csrc/k.cu"]


REFUSED_MANIFESTS = {
    "no TOML": "entry = ",
    "an unknown key": MANIFEST + 'flags = ["-O3"]\n',
    "no entry": 'sources = ["main.py"]\n',
    "a missing file": 'entry = "missing.py"\n',
    "a file above": MANIFEST + 'sources = ["../secret.py"]\n',
    "an absolute path": MANIFEST + 'sources = ["/etc/passwd"]\n',
    "a folder above inside": MANIFEST + 'sources = ["csrc/../../secret.py"]\n',
    "a hidden file": MANIFEST + 'sources = [".secret.py"]\n',
    "another kind of file": MANIFEST + 'sources = ["notes.md"]\n',
    "an entry in C++": 'entry = "csrc/k.cu"\n',
    "too many": MANIFEST + f"sources = {[f'f{n}.py' for n in range(64)]}\n",
    "too long": MANIFEST + "#" * 20_000,
    "nested": "entry = " + "[" * 9000,
}


@pytest.mark.parametrize("text", REFUSED_MANIFESTS.values(), ids=REFUSED_MANIFESTS)
def test_a_wrong_manifest_is_refused(folder, text):
    (folder.parent / "secret.py").write_text("secret = 1")
    (folder / "submission.toml").write_text(text)
    assert read_submission(folder).code == Code.BAD_FILES.value


@pytest.mark.parametrize("what", ["main.py", "csrc", "csrc/k.cu", "submission.toml"])
def test_a_link_is_refused_and_a_linked_folder_is_not_read(folder, what):
    outside = folder.parent / "outside"
    (folder / what).rename(outside)
    (folder / what).symlink_to(outside)
    read = read_submission(folder)
    if what == "csrc":
        assert "int f" not in read.source
    else:
        assert "symbolic link" in read.message


def test_a_pipe_is_refused_without_waiting(folder):
    os.mkfifo(folder / "pipe.py")
    assert "named pipe" in read_submission(folder).message


def test_the_files_together_have_a_limit(folder):
    for name in ("a.py", "b.py"):
        (folder / name).write_text("#" * (MAX_CODE_BYTES // 2 + 1))
    assert "larger than allowed" in read_submission(folder).message


def test_no_file_can_forge_another(folder):
    (folder / "main.py").write_text(MAIN + "#@ file csrc/k.cu\n")
    assert read_submission(folder).code == Code.BAD_FILES.value


def test_a_text_with_wrong_files_is_refused(tmp_path):
    text = tmp_path / "text.py"
    text.write_text(joined([("main.py", MAIN)]))
    assert "submission.toml" in read_submission(text).message
    text.write_text(joined([("submission.toml", MANIFEST), ("main.py", MAIN)]).replace("main.py", "../main.py"))
    assert read_submission(text).code == Code.BAD_FILES.value
    with pytest.raises(BadFiles):
        joined([("../main.py", MAIN)])


def test_the_lint_reads_every_file_in_lines_of_the_text():
    text = joined(
        [
            ("submission.toml", MANIFEST),
            ("main.py", "import helper\nclass ModelNew:\n    def forward(self, x):\n        return helper.answer(x)\n"),
            ("helper.py", "import torch\ndef answer(x):\n    return torch.relu(x)\n"),
            ("k.cu", "__global__ void never_launched(float* x) { x[0] = 1; }\n"),
        ]
    )
    found = {(each.code, place_of(text, each.line).path) for each in look(text).noticed}
    assert (Code.KERNEL_NOT_LAUNCHED, "k.cu") in found
