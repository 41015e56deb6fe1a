"""Grades of submissions of several files: builds, messages, replays."""

import shutil

import pytest

from evaluator.files.card_files import read_card
from evaluator.findings import Code
from evaluator.protocol.submission_files import place_of
from evaluator.records import Status
from tests.grading.folders import BY_LOAD, FAR_AWAY, FAULT_LINE, FILES, HALVES, write
from tests.grading.harness import COMMAND

pytestmark = pytest.mark.slow

EMULATED = ("--device", "emulated", "--size", "awkward")


@pytest.fixture
def graded(grader, tmp_path):
    """Grade FILES with changes on the CPU."""

    def grade(changed, *options):
        shutil.rmtree(tmp_path / "mine", ignore_errors=True)
        return grader(tmp_path, None, write(tmp_path / "mine", FILES | changed).name, *options)

    return grade


@pytest.fixture
def command(grader, tmp_path):
    """Run a command in the folder of the test."""

    def run(*arguments):
        return COMMAND.run(list(map(str, arguments)), cwd=tmp_path, env=grader.environment, stdin=None, timeout_s=1500)

    return run


def test_a_folder_is_built_with_its_headers(graded):
    card = graded({}).assert_verdict(Status.CORRECT)
    assert [unit.ok for unit in card.build.units] == [True]


@pytest.mark.long
def test_sources_by_load_are_built(graded):
    graded(BY_LOAD).assert_verdict(Status.CORRECT)


@pytest.mark.long
def test_a_header_is_part_of_the_key_and_its_error_names_file_and_line(graded):
    broken = FILES["include/relu.h"].replace("? x", "? missing_name")
    run = graded({"include/relu.h": broken})
    run.assert_verdict(Status.BUILD_ERROR, Code.COMPILE_FAILED)
    assert "include/relu.h, line 2" in run.out
    lines = run.out.splitlines()
    shown = next(number for number, line in enumerate(lines) if ">    2" in line)
    assert lines[shown + 1].index("^") == lines[shown].index("missing_name")


def test_an_exception_names_the_file(graded):
    run = graded({"helper.py": "def launch(kernels, x):\n    return undefined_name\n"})
    card = run.assert_verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED)
    assert "helper.py, line 2" in run.out
    assert card.submission.source.split("\n")[card.reason.line - 1] == "    return undefined_name"


def test_kernels_of_a_folder_run_on_the_emulated_device_in_a_batch(command, tmp_path):
    """Each file is compiled with the headers of its own folder, and a fault is placed in its own file."""
    submissions = tmp_path / "submissions"
    write(submissions / "relu" / "right", HALVES)
    write(submissions / "relu" / "wrong", HALVES | FAR_AWAY)
    done = command("batch", submissions, "--run", "run", "--jobs", "1", *EMULATED)
    cards = {path.stem: read_card(path) for path in (tmp_path / "run").rglob("relu/*.json")}
    assert set(cards) == {"right", "wrong"}, done.stderr.decode()
    right, wrong = cards["right"], cards["wrong"]
    assert right.status is Status.CORRECT, right.reason
    assert right.checks[0].launches == 2
    assert [unit.key for unit in right.build.units] == [unit.key for unit in wrong.build.units]
    assert (wrong.status, wrong.reason.code) == (Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS.value)
    assert place_of(wrong.submission.source, wrong.reason.line).label == f"csrc/second/kernel.cu, line {FAULT_LINE}"
    assert f"(csrc/second/kernel.cu, line {FAULT_LINE})" in wrong.reason.message
    file = "submissions/relu/wrong/csrc/second/kernel.cu"
    assert (
        f"{file}:{FAULT_LINE}: runtime_error R309".encode()
        in command("report", "run", "--output-format", "concise").stdout
    )
