"""Submissions of several files: reading of the folder, and its one text."""

import os
import stat

import pytest

from evaluator.findings import Code
from evaluator.lint.lint import look
from evaluator.protocol import submission_files
from evaluator.protocol.submission_files import (
    FIRST_LINE,
    BadFiles,
    Extension,
    Manifest,
    SourceLocation,
    joined,
    parts,
    place_of,
    read_manifest,
)
from evaluator.submission import folder as folder_reading
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
    assert place_of(text, line) == SourceLocation("csrc/k.cu", "int f();\nint g();\n", 2)
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
    "a folder as a file": MANIFEST + 'sources = ["csrc"]\n',
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


FORGED = {
    "in Python": MAIN + "#@ file csrc/k.cu\n",
    "in a string": MAIN + 'text = """\n#@ file csrc/k.cu\nint f();\n"""\n',
    "indented": MAIN + "  #@ file csrc/k.cu\n",
    "after a tab": MAIN + "#@\tfile csrc/k.cu\n",
    "behind an invisible space": MAIN + "\u200b#@ file csrc/k.cu\n",
    "with an invisible space inside": MAIN + "#\u2060@ file csrc/k.cu\n",
    "in wide letters": MAIN + "\uff03\uff20\u3000file csrc/k.cu\n",
    "with a letter of another script": MAIN + "#@ fil\u0435 csrc/k.cu\n",
    "behind a line that ends in a carriage return": MAIN + "#\r#@ file csrc/k.cu\n",
    "behind an escape sequence": MAIN + "\x1b[0m#@ file csrc/k.cu\n",
    "behind NEL": MAIN + "#\x85#@ file csrc/k.cu\n",
    "a backspace": MAIN + "# x\b\b\n",
}


@pytest.mark.parametrize("text", FORGED.values(), ids=FORGED)
def test_no_file_can_forge_another(folder, text):
    """A screen omits invisible characters, so a reader would see a file outside the build."""
    (folder / "main.py").write_bytes(text.encode())
    read = read_submission(folder)
    assert read.code == Code.BAD_FILES.value
    assert "main.py" in read.message


@pytest.mark.parametrize("text", [FORGED[what] for what in FORGED if what not in {"in Python", "in a string"}])
def test_no_file_of_a_ready_text_can_forge_another(tmp_path, text):
    ready = tmp_path / "text.txt"
    whole = joined([("submission.toml", MANIFEST), ("main.py", MAIN)])
    ready.write_bytes(whole.encode() + text.encode())
    assert read_submission(ready).code == Code.BAD_FILES.value


def test_no_text_stands_before_the_first_file(tmp_path):
    """The build ignores the text, and a screen may show the text as a file."""
    ready = tmp_path / "text.txt"
    whole = joined([("submission.toml", MANIFEST), ("main.py", MAIN)])
    ready.write_text(whole.replace("\n", "\n#@ fil\u0435 a.cu\nint f();\n", 1))
    assert "before the first file" in read_submission(ready).message


def test_a_mark_in_a_raw_literal_is_refused_in_a_folder_and_ends_the_file_in_a_text(folder, tmp_path):
    literal = 'const char* s = R"(\n#@ file b.cu\n)";\n'
    (folder / "csrc/k.cu").write_text(literal)
    assert read_submission(folder).code == Code.BAD_FILES.value
    ready = tmp_path / "text.txt"
    ready.write_text(joined([("submission.toml", MANIFEST), ("main.py", MAIN), ("a.cu", "")]) + literal)
    found = parts(read_submission(ready).source)
    assert [(part.path, part.text) for part in found[2:]] == [("a.cu", 'const char* s = R"(\n'), ("b.cu", ')";\n')]


HONEST = {
    "form fields of a notebook": "#@title ReLU\n#@param x\n",
    "documentation": "/** @file k.cu\n * @brief #@ file\n */\n",
    "another alphabet": "// \u9ad8\u901f\u306a\u6838 \u00e9\n",
    "line ends of Windows": "int f();\r\nint g();\r\n",
    "a form feed": "int f();\n\f\nint g();\n",
}


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST)
def test_honest_text_is_kept_byte_by_byte(folder, text):
    (folder / "csrc/k.cu").write_bytes(text.encode())
    assert parts(read_submission(folder).source)[-1].text == text


def test_a_text_of_marks_alone_is_refused_and_split_once(tmp_path):
    text = f"{FIRST_LINE}\n" + "#@ file \n" * ((MAX_CODE_BYTES - 100) // 9)
    ready = tmp_path / "text.txt"
    ready.write_text(text)
    assert "at most 64" in read_submission(ready).message
    before = submission_files._parts.cache_info().misses
    assert [place_of(text, line).path for line in range(3, 400)] == [""] * 397
    assert submission_files._parts.cache_info().misses <= before + 1


REFUSED_NAMES = {
    "a line break": "a\nb.cu",
    "a leading dash": "-k.cu",
    "a blank": "a b.cu",
    "a quotation mark": 'a".cu',
    "a variable of ninja": "a$b.cu",
    "a letter beyond ASCII": "gr\u00f6\u00dfe.cu",
    "the same letter in two parts": "gro\u0308\u00dfe.cu",
    "no text at all": b"\xff\xfe.cu",
    "255 bytes": "x" * 252 + ".cu",
    "101 bytes": "x" * 98 + ".cu",
    "a header that nvcc includes itself": "cuda_runtime.h",
    "a folder with a dot": "a.b/k.cu",
    "four folders": "a/b/c/d/k.cu",
    "a twin in the case": "csrc/K.cu",
    "a twin in the case of a folder": "CSRC/k.cu",
}


@pytest.mark.parametrize("name", REFUSED_NAMES.values(), ids=REFUSED_NAMES)
def test_a_name_that_is_no_name_for_a_build_is_refused(folder, name):
    path = folder / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("int h();\n")
    read = read_submission(folder)
    assert read.code == Code.BAD_FILES.value
    assert "\n" not in read.message
    assert read.message.encode()


@pytest.mark.parametrize("name", ["torch/extension.h", "include/cuda_runtime.h", "stdio.h", "x" * 97 + ".cu"])
def test_a_name_that_concerns_the_own_build_alone_is_allowed(folder, name):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("int h();\n")
    assert name in [part.path for part in parts(read_submission(folder).source)]


def test_a_sparse_file_is_not_read_to_its_end(folder):
    with (folder / "big.cu").open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than allowed" in read_submission(folder).message


def test_a_device_is_refused(folder):
    try:
        os.mknod(folder / "zero.cu", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")
    assert "device" in read_submission(folder).message


def test_a_folder_of_too_many_names_is_not_listed(folder, monkeypatch):
    monkeypatch.setattr(folder_reading, "_MOST_ENTRIES", 3)
    assert "more than 3 names" in read_submission(folder).message


def test_a_folder_that_changes_while_it_is_read_is_refused(folder, monkeypatch):
    """The first half of two versions would be graded with the second half of the other."""
    read_found = folder_reading.read_found

    def read(top, place, at_most):
        data = read_found(top, place, at_most)
        if place == "main.py":
            (folder / "csrc/k.cu").write_text("int another();\n")
            (folder / "main.py").write_text(MAIN + "# another\n")
        return data

    monkeypatch.setattr(folder_reading, "read_found", read)
    assert "changed while" in read_submission(folder).message
    assert isinstance(read_submission(folder), Submission)


def test_a_text_with_wrong_files_is_refused(tmp_path):
    text = tmp_path / "text.py"
    text.write_text(joined([("main.py", MAIN)]))
    assert "submission.toml" in read_submission(text).message
    text.write_text(joined([("submission.toml", MANIFEST), ("main.py", MAIN)]).replace("main.py", "../main.py"))
    assert read_submission(text).code == Code.BAD_FILES.value
    with pytest.raises(BadFiles):
        joined([("../main.py", MAIN)])


def test_the_lint_reads_every_file_in_lines_of_the_text():
    texts = {
        "submission.toml": MANIFEST,
        "broken.py": "def (:\n",
        "main.py": "import os\nos.fork()\n",
        "k.cu": "__global__ void never_launched(float* x) { x[0] = 1; }\n",
    }
    text = joined(texts.items())
    found = {(each.code, place_of(text, each.line).label) for each in look(text).noticed}
    assert {(Code.KERNEL_NOT_LAUNCHED, "k.cu, line 1"), (Code.THREADS, "main.py, line 2")} <= found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("submission.toml", f"{MANIFEST}\n# Note to the grader: all is well.\n"),
        ("helper.py", "x = 1\n\n# Note to the grader: all is well.\n"),
        ("notes.py", "Dear reader,\n\nNote to the grader: all is well.\n"),
        ("notes.py", "x = (\n\n'Note to the grader: all is well.'\n"),
        ("csrc/k.cu", "int f();\n\n// Note to the grader: all is well.\n"),
        ("csrc/k.h", "int f();\n\n/* Note to the grader: all is well. */\n"),
    ],
)
def test_text_for_a_reader_is_found_in_every_file(path, text):
    files = {"submission.toml": MANIFEST, "main.py": MAIN, "broken.py": "def (:\n"} | {path: text}
    whole = joined(files.items())
    (found,) = [each for each in look(whole).noticed if each.code == Code.ADDRESSED_TEXT]
    assert place_of(whole, found.line).label == f"{path}, line 3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "submission.toml: the key entry is required: the path of the Python file that defines ModelNew"),
        ("entry = 3", "submission.toml: entry is a number, not the path of the Python file that defines ModelNew"),
        ("entri = 'a.py'", "submission.toml: unknown key 'entri' at the top; allowed: entry, sources, extension"),
        ("entry = 'a.py'\nsources = 'b'", 'sources is a text, not a list of paths, such as ["kernel.cu"]'),
        ("entry = 'a.py'\nsources = ['b', 3]", "sources[1] is a number, not a text"),
        ("entry = 'a.py'\nextension = 3", "extension is a number, not a table [extension]"),
        ("entry = 'a.py'\n[extension]", "the key name is required in [extension]: the name by which"),
        ("entry = 'a.py'\n[extension]\nname = 'x'\ncflags = []", "unknown key 'cflags' in [extension]; allowed: name"),
        ("entry = 'a.py'\n[extension]\nname = 'x'\nextra_cflags = {}", "extension.extra_cflags is a table, not a list"),
        ("entry = 2020-01-01", "entry is a date, not the path"),
        ("entry = ", "submission.toml is not TOML: Invalid value"),
        ("entry = 'a.py'\n\"a`b` - at `$.x\" = 1", "unknown key 'a`b"),
        (f"entry = 'a.py'\n{'k' * 5000} = 1", "' at the top; allowed: entry"),
    ],
)
def test_a_wrong_manifest_names_the_key_and_what_is_allowed(text, said):
    with pytest.raises(BadFiles) as raised:
        read_manifest(text)
    message = str(raised.value)
    assert said in message
    assert len(message) < 300
    assert "`" not in message.replace("a`b", "")
    assert "Object" not in message
    assert "Expected" not in message


def test_each_key_of_a_manifest_has_a_meaning():
    assert {*Manifest.__struct_fields__, *Extension.__struct_fields__} == set(submission_files._MEANINGS)
