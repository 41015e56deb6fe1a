"""Compiler messages to records, and back to the submission's own lines."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.cuda_source.source_files import source_files
from evaluator.protocol.frames import BuildRequest
from evaluator.protocol.submission_files import joined, place_of
from evaluator.toolchain.diagnostics import LineMap, parse
from tests.cards import SOURCE

MAIN = "#include <torch/extension.h>\nint f() {\n    return x;\n}\n"


def only(log, files=None, submission=""):
    (found,) = parse(log, {"main.cpp": MAIN} if files is None else files, submission)
    return found


@pytest.mark.parametrize(
    ("log", "severity", "message", "place"),
    [
        ("main.cpp:3:12: error: 'x' was not declared", "error", "'x' was not declared", ("main.cpp", 3, 12)),
        ("main.cpp:3:12: warning: unused 'x' [-Wunused]", "warning", "unused 'x' [-Wunused]", ("main.cpp", 3, 12)),
        ("main.cpp:1:10: fatal error: a.h: No such file", "error", "a.h: No such file", ("main.cpp", 1, 10)),
        ("main.cpp:3: error: no column", "error", "no column", ("main.cpp", 3, 0)),
        ("/usr/include/c++/12/vector:99:5: error: deep", "error", "deep", ("vector", 99, 5)),
        ('<command-line>:0:1: warning: "N" redefined', "warning", '"N" redefined', ("<command-line>", 0, 1)),
        ("main.cpp:0:0: error: before all lines", "error", "before all lines", ("main.cpp", 0, 0)),
        ("main.cpp:900:1: error: after all lines", "error", "after all lines", ("main.cpp", 900, 1)),
        ("a file.cpp:2:1: error: a name with a space", "error", "a name with a space", ("a file.cpp", 2, 1)),
        ("/usr/bin/ld: cannot find -lfoo: No such file", "error", "cannot find -lfoo: No such file", ("", 0, 0)),
        ('cuda.cu(4): error: identifier "y" is undefined', "error", 'identifier "y" is undefined', ("cuda.cu", 4, 0)),
        ('cuda.cu(5): error: expected a ";"', "error", 'expected a ";"', ("cuda.cu", 5, 0)),
        (
            'cuda.cu(3): warning #177-D: variable "i" was declared but never referenced',
            "warning",
            'variable "i" was declared but never referenced',
            ("cuda.cu", 3, 0),
        ),
        (
            '/usr/include/c++/12/bits/stl_vector.h(99): error: namespace "std" has no member "x"',
            "error",
            'namespace "std" has no member "x"',
            ("stl_vector.h", 99, 0),
        ),
        (
            "ptxas /tmp/tmpxft_000013df_00000000-7_b.compute_90.ptx, line 38; error   : Unknown modifier '.bar'",
            "error",
            "ptxas: Unknown modifier '.bar'",
            ("", 0, 0),
        ),
        (
            "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x13880 bytes, 0xc000 max)",
            "error",
            "ptxas: Entry function '_Z1kPf' uses too much shared data (0x13880 bytes, 0xc000 max)",
            ("", 0, 0),
        ),
        ("nvcc fatal   : Unknown option '--foo'", "error", "nvcc: Unknown option '--foo'", ("", 0, 0)),
        ("nvcc warning : incompatible redefinition", "warning", "nvcc: incompatible redefinition", ("", 0, 0)),
        ("main.cpp:(.text+0x9): undefined reference to `f()'", "error", "undefined reference to `f()'", ("", 0, 0)),
        ("a.cc:(.text+0x9): undefined reference to `f()'", "error", "undefined reference to `f()'", ("", 0, 0)),
        (
            "/usr/bin/ld: 1_b.cpp.o: in function `f()':b.cpp:(.text+0x0): multiple definition of `f()'; 0_a.o: here",
            "error",
            "multiple definition of `f()'; 0_a.o: here",
            ("", 0, 0),
        ),
    ],
)
def test_a_message_becomes_a_record(log, severity, message, place):
    found = only(log)
    assert (found.severity, found.message) == (severity, message)
    assert (found.file, found.line, found.column) == place


@pytest.mark.parametrize(
    "line",
    [
        "main.cpp: In function 'int f()':",
        "main.cpp:3:12: note: suggested alternative: 'y'",
        "    3 |     return x;",
        "      |            ^",
        "In file included from main.cpp:1:",
        "compilation terminated.",
        "collect2: error: ld returned 1 exit status",
        "ninja: build stopped: subcommand failed.",
        "[1/2] compile main.cpp",
        '3 errors detected in the compilation of "cuda.cu".',
        "  x[0] = y; // cuda.cu(4): error: in a comment",
        "/usr/include/c++/12/vector(12): note #3326-D: function does not match",
        "ptxas info    : Used 8 registers",
        "FAILED: 0_main.cpp.o",
        "   12 | // main.cpp:3:12: error: in a comment",
        "",
    ],
)
def test_what_is_no_error_or_warning_is_left_out(line):
    assert parse(line, {"main.cpp": MAIN}, "") == []


def test_the_source_line_stands_beside_the_message():
    assert only("main.cpp:3:12: error: x").source_line == "    return x;"
    assert only("main.cpp:0:1: error: x", {"main.cpp": "one line"}).source_line == ""
    assert only("main.cpp:99:1: error: x").source_line == ""
    assert only("other.h:1:1: error: x").source_line == ""


def test_errors_come_first_each_is_told_once_and_few_are_kept():
    log = "main.cpp:1:1: warning: w\n" + "main.cpp:2:1: error: e\n" * 3 + "main.cpp:1:1: fatal error: f\n"
    assert [entry.message for entry in parse(log, {}, "")] == ["e", "f", "w"]
    many = "\n".join(f"main.cpp:{n}:1: warning: w" for n in range(200)) + "\nmain.cpp:2:1: error: last"
    found = parse(many, {}, "")
    assert len(found) == 50
    assert found[0].message == "last"


def line_of(text, submission=SOURCE):
    (place,) = [n for n, line in enumerate(submission.split("\n"), 1) if line.strip() == text]
    return place


def test_a_message_is_brought_to_the_submissions_line():
    cpp = SOURCE.split('"""')[1]
    (main,) = source_files(BuildRequest(name="relu", cpp_sources=[cpp], functions={"relu": "relu"}))
    wrong = main.text.split("\n").index("    auto y = torch::empty_like(x)") + 1
    found = only(f"main.cpp:{wrong}:34: error: expected ';'", {"main.cpp": main.text}, SOURCE)
    assert found.submission_line == line_of("auto y = torch::empty_like(x)")
    assert found.source_line == "    auto y = torch::empty_like(x)"


TWICE = '''\
first = """
int f(int x) {
    int y = 1;
    return y + x;
}
"""
second = """
int g(int x) {
    int z = 2;
    return y + x;
}
"""
'''


@pytest.mark.parametrize(("source", "line"), [("first", 4), ("second", 10)])
def test_the_same_text_in_several_places_is_told_apart_by_its_neighbours(source, line):
    space = {}
    exec(TWICE, space)
    text = "#include <torch/extension.h>\n" + space[source]
    wrong = text.split("\n").index("    return y + x;") + 1
    assert only(f"main.cpp:{wrong}:1: error: x", {"main.cpp": text}, TWICE).submission_line == line


def test_both_of_two_equal_lines_of_one_file_are_found():
    text = "#include <torch/extension.h>\n" + "\n".join(part for part in TWICE.split('"""')[1::2])
    wrong = [n for n, line in enumerate(text.split("\n"), 1) if line == "    return y + x;"]
    lines = LineMap(text, TWICE)
    assert [lines.submission_line(n) for n in wrong] == [4, 10]


def test_a_brace_that_stands_everywhere_is_found_by_its_neighbours():
    blocks = [f"int f{n}() {{\nreturn {n};\n}}" for n in range(30)]
    submission = 'source = """\n' + "\n".join(blocks) + '\n"""\n'
    text = "#include <x>\n" + "\n".join(blocks)
    assert [LineMap(text, submission).submission_line(n) for n in (4, 7, 91)] == [4, 7, 91]


def test_equal_files_of_a_folder_are_told_apart_by_their_paths():
    """By its text alone, each line of b.cu is also a line of a.cu."""
    text = "int f() {\n    return y;\n}\n"
    submission = joined([("submission.toml", 'entry = "main.py"\n'), ("a/k.cu", text), ("b/k.cu", text)])
    for path in ("a/k.cu", "b/k.cu"):
        found = only(f"./{path}:2:12: error: x", {"a/k.cu": text, "b/k.cu": text}, submission)
        assert place_of(submission, found.submission_line).label == f"{path}, line 2"
        assert LineMap(text, submission, path).submission_line(99) is None


def test_a_file_that_the_submission_changed_before_its_build_is_found_by_its_text():
    submission = joined([("submission.toml", 'entry = "main.py"\n'), ("k.cu", "int a;\nint b;\n")])
    found = only("k.cu:1:1: error: x", {"k.cu": "int b;\n"}, submission)
    assert place_of(submission, found.submission_line).label == "k.cu, line 2"


def test_text_that_is_not_in_the_submission_has_no_line_there():
    lines = LineMap("#include <torch/extension.h>\nint made_up;\n\n", "int other;\n\n")
    assert [lines.submission_line(n) for n in (-1, 0, 1, 2, 3, 4, 5)] == [None] * 7
    assert only("header.h:1:1: error: x", {"main.cpp": MAIN}, MAIN).submission_line is None


def test_only_a_newline_ends_a_line():
    text = "#include <x>\nint a; \f int b; \u2028 int c; \x85 int d;\nwrong\n"
    assert only("main.cpp:3:1: error: x", {"main.cpp": text}, text).source_line == "wrong"
    assert only("main.cpp:3:1: error: x", {"main.cpp": text}, text).submission_line == 3


def test_carriage_returns_and_spaces_at_the_end_do_not_matter():
    assert LineMap("a;  \nb;", "a;\r\nb;\r\n").submission_line(1) == 1


@given(
    lines=st.lists(st.sampled_from(["}", "", "int a;", "return 0;", "f();", "    x = 1;"]), min_size=1, max_size=30),
    before=st.lists(st.sampled_from(["}", "import torch", "int a;"]), max_size=5),
)
def test_a_found_line_has_the_same_text(lines, before):
    submission = "\n".join([*before, *lines])
    found = LineMap("\n".join(["#include <x>", *lines]), submission)
    for number in range(1, len(lines) + 3):
        place = found.submission_line(number)
        text = found.source_line(number)
        assert (place is None) == (not text.strip() or text == "#include <x>")
        assert place is None or submission.split("\n")[place - 1] == text


@given(lines=st.permutations([f"statement_{n};" for n in range(12)]), count=st.integers(0, 6))
def test_different_lines_are_all_found(lines, count):
    submission = "\n".join(["x"] * count + list(lines))
    found = LineMap("\n".join(["#include <x>", *lines]), submission)
    assert [found.submission_line(n + 2) for n in range(12)] == [count + n + 1 for n in range(12)]


@given(
    log=st.text(
        alphabet=st.sampled_from("main.cpp:019 \nerror: warning: ld: undefined reference to ~\u2028\x0b"), max_size=200
    )
)
def test_any_text_is_parsed(log):
    for entry in parse(log, {"main.cpp": MAIN}, MAIN):
        assert entry.severity in ("error", "warning")
        assert entry.line >= 0


@pytest.mark.parametrize(
    "log",
    [
        "main.cpp:" + "9" * 5000 + ":1: error: x",
        "main.cpp:1:" + "9" * 5000 + ": error: x",
        "main.cpp:" + "9" * 25 + ":1: error: x",
        "ld" * 30_000,
        "x: " * 20_000,
        "ld: " * 15_000 + "undefined reference",
        ("a" * 3000 + ":1:") * 20,
        "main.cpp:1:1: error: " + "x" * 60_000,
    ],
)
def test_hostile_messages_cost_little_and_break_nothing(log):
    start = time.thread_time()
    for entry in parse(log, {"main.cpp": MAIN}, MAIN):
        assert len(entry.message) <= 2000
        assert entry.line < 10**9
    assert time.thread_time() - start < 2


def test_a_hostile_submission_full_of_equal_lines_costs_little():
    submission = "a;\n" * 30_000
    text = submission * 3
    log = "\n".join(f"main.cpp:{n}:1: error: e{n}" for n in range(1, 1500))
    start = time.thread_time()
    assert len(parse(log, {"main.cpp": text}, submission)) == 50
    assert time.thread_time() - start < 5


def test_a_line_that_an_escape_has_cut_is_found_behind_the_line_before():
    submission = 'CUDA = """\nlong n = 3;\nputs("a\\n");\nlong m = 4;\n"""\n'
    text = submission.split('"""')[1].replace("\\n", "\n")
    assert [LineMap(text, submission).submission_line(number) for number in (2, 3, 4, 5)] == [2, 3, None, 4]
