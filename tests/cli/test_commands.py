import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.commands import main as cli
from evaluator.compile.warm_up import Artefact
from evaluator.doctor.diagnosis import Diagnosis, Line
from evaluator.errors import CardNotWritten, JudgeFailed
from evaluator.files.card_files import card_bytes, read_card, write_card
from evaluator.findings import Code, finding
from evaluator.grading import pipeline, resolved_request
from evaluator.grading.request import GradeRequest, Unread
from evaluator.grading.resolved_request import GradeArguments, request_for
from evaluator.records import (
    CaseResult,
    DeviceFacts,
    DeviceKind,
    L2Inputs,
    L2Rule,
    ProfilerKind,
    SandboxMode,
    Scorecard,
    SizeName,
    Status,
    ToleranceRule,
    Weights,
    WeightsGraded,
    WeightsRule,
)
from evaluator.roofline import least_time
from evaluator.roofline.least_time import CallWork, WorkBySize
from evaluator.schema import check_card
from evaluator.submission.read import Submission
from evaluator.version import __version__
from tests import cards

TOP = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WARPGRADE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))


class Run:
    """Runs commands as the console script does, and keeps what they printed."""

    def __init__(self, capture):
        self._capture = capture
        self.out = self.err = ""

    def __call__(self, *arguments):
        code = cli.run([str(argument) for argument in arguments])
        self.out, self.err = self._capture.readouterr()
        return code


@pytest.fixture
def run(capsys):
    return Run(capsys)


class FakeGrade:
    """Stands in for the pipeline: keeps what it was asked and gives the card it was told to."""

    def __init__(self):
        self.card: Scorecard | Exception | KeyboardInterrupt = cards.card()
        self.requests: list[GradeRequest] = []

    def __call__(self, request, progress, *, last_resort):
        self.requests.append(request)
        progress.stage("build", "relu")
        if isinstance(self.card, BaseException):
            raise self.card
        return self.card


@pytest.fixture
def graded(monkeypatch):
    fake = FakeGrade()
    monkeypatch.setattr(pipeline, "grade", fake)
    return fake


@pytest.fixture
def submission(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(cards.SOURCE)
    return path


def _commands(group, path=()):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from _commands(command, (*path, name))


@pytest.mark.parametrize("path", list(_commands(cli.warpgrade)), ids=" ".join)
def test_every_command_and_option_has_help(path, run):
    assert run(*path, "--help") == 0
    assert run.out.startswith(f"Usage: {' '.join(('warpgrade', *path))}")
    command: Any = cli.warpgrade
    for name in path:
        command = command.commands[name]
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))
    assert "\\b" not in run.out  # Click's mark for text that is not filled; in a raw string, two characters.


@pytest.mark.parametrize(
    ("words", "profile"),
    [
        (["relu", "mine.py"], None),
        (["relu", "--profile", "mine.py"], ProfilerKind.TORCH),
        (["--profile", "relu", "mine.py"], ProfilerKind.TORCH),
        (["relu", "mine.py", "--profile"], ProfilerKind.TORCH),
        (["--profile", "torch", "relu", "mine.py"], ProfilerKind.TORCH),
        (["--profile=torch", "relu", "mine.py"], ProfilerKind.TORCH),
        (["--profile", "--quiet", "relu", "mine.py"], ProfilerKind.TORCH),
        (["--profile", "--", "relu", "mine.py"], ProfilerKind.TORCH),
    ],
)
@pytest.mark.usefixtures("submission")
def test_a_bare_profile_takes_no_word_that_is_not_a_profiler(words, profile, run, graded):
    assert run("grade", "--device", "cpu", *words) == 0
    (request,) = graded.requests
    assert (request.terms.options.profile, request.terms.problem.name) == (profile, "relu")


def test_what_follows_two_dashes_is_no_option(run, graded):
    assert run("grade", "--device", "cpu", "--", "relu", "--profile") == 2
    assert "cannot read --profile" in run.err
    assert graded.requests == []


def test_the_version(run):
    for words in (["--version"], ["version"]):
        assert run(*words) == 0
        assert run.out == f"warpgrade {__version__}\n"


def test_help_is_a_word_too(run):
    for words, option in ((["help"], ["--help"]), (["help", "grade"], ["grade", "--help"])):
        assert run(*words) == 0
        said = run.out
        assert run(*option) == 0
        assert said == run.out


@pytest.mark.usefixtures("submission")
def test_a_line_about_a_submission_hides_no_fault_of_the_machine(run, graded):
    unusable = finding(Code.CACHE_UNUSABLE, "the cache cannot store builds")
    graded.card = cards.card(findings=[unusable])
    assert run("grade", "relu", "mine.py", "--device", "cpu", "--output-format", "concise") == 0
    assert run.out.count("\n") == 1
    assert "I503 the cache cannot store builds" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grad"], "No such command"),
        (["grade"], "error: PROBLEM and SUBMISSION are missing"),
        (["grade", "relu"], "error: SUBMISSION is missing"),
        (["grade", "relu"], "hint: warpgrade grade relu FILE; `warpgrade new solution relu` writes a file"),
        (["grade", "./", "mine.py"], "is no problem: it has no reference.py"),
        (["report", "mine.py"], "mine.py is a file; RUN is a folder made by `warpgrade batch --run`"),
        (["report", "a" * 300], "does not exist"),
        (["grade", "relu", "x.py", "--device", "tpu"], "Invalid value for '--device'"),
        (["grade", "relu", "x.py", "--profile=nsys"], "'nsys' is not one of 'torch', 'ncu'"),
        (["grade", "relu", "mine.py", "--device", "cpu", "--profile", "ncu"], "reads an NVIDIA GPU's counters"),
        (["grade", "relu", "mine.py", "--device", "emulated", "--profile"], "--profile has no effect on emulated"),
        (["grade", "relu", "x.py", "--timeout", "0"], "is not a positive number of seconds"),
        (["grade", "relu", "x.py", "--timeout", "nan"], "is not a positive number of seconds"),
        (["grade", "relu", "x.py", "--build-timeout", "inf"], "is not a positive number of seconds"),
        (["grade", "relu", "x.py", "--timeout", "soon"], "is not a valid float"),
        (["grade", "relu", "x.py", "--require-own-kernel", "1.01"], "--require-own-kernel"),
        (["batch", ".", "--run", "r", "--require-own-kernel", "nan"], "--require-own-kernel"),
        (["grade", "relu", "mine.py", "--device", "cpu", "--strict", "--sandbox", "none"], "--strict requires"),
        (["batch", ".", "--run", "r", "--device", "cpu", "--strict", "--sandbox", "none"], "--strict requires"),
        (["grade", "relu", "missing.py"], "cannot read missing.py"),
        (["grade", "rleu", "mine.py"], "hint: did you mean relu?"),
        (["grade", "mine.py", "relu"], "hint: warpgrade grade relu mine.py"),
        (["grade", "missing.py", "relu"], "error: the problem comes first, and 'relu' is one"),
        (["grade", "missing.py", "rleu"], "there is no problem named 'missing.py'"),
        (["grade", "relu", "mine.py", "--device", "CPU", "--gpu", "0"], "--gpu has no effect on cpu"),
        (["grade", "--replay", "missing.json"], "cannot read missing.json"),
        (["problems", "show"], "Missing argument 'NAME'"),
        (["problems", "show", "rleu"], "there is no problem named 'rleu'"),
        (["problems", "list", "--problems", "nowhere"], "does not exist"),
        (["schema", "card"], "'card' is not one of 'scorecard', 'problem'"),
        (["explain", "c406x"], "hint: did you mean C406"),
        (["explain", "\x1b[31mQ"], "`warpgrade explain` lists all codes"),
        (["check-card", "missing.json"], "cannot read"),
        (["show", "missing.json"], "cannot read missing.json"),
        (["show"], "Missing argument 'CARD'"),
        (["new", "problem", "2fast"], "is not a valid problem name"),
        (["new", "solution", "rleu"], "did you mean relu?"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_exits_2(arguments, message, run, submission):
    assert submission.name == "mine.py"
    assert run(*arguments) == 2
    assert message in run.err
    assert run.err.startswith("error: ")
    assert "\x1b" not in run.err
    assert "Traceback" not in run.err
    assert run.out == ""


def test_problems_are_listed(run):
    assert run("problems", "list") == 0
    assert "\n1      relu " in run.out
    assert run("problems", "list", "--json") == 0
    assert "relu" in [problem["name"] for problem in json.loads(run.out)["problems"]]


def test_a_broken_problem_is_named_and_hides_no_other(run, tmp_path):
    assert run("new", "problem", "good", "--problems", "own") == 0
    (tmp_path / "own" / "bad").mkdir()
    (tmp_path / "own" / "bad" / "problem.toml").write_text("titel = 1\n")
    assert run("problems", "list", "--problems", "own") == 2
    assert "good" in run.out
    assert "broken: own/bad is no problem: it has no reference.py\n" in run.err
    assert run("problems", "list", "--problems", "own", "--json") == 2
    assert len(json.loads(run.out)["broken"]) == 1


def test_a_problem_is_shown(run, monkeypatch):
    found = WorkBySize({SizeName.FULL: CallWork(6 << 30, 3 << 20, 0)}, {SizeName.SMALL: "it needs values"})
    monkeypatch.setattr(least_time, "work_of", lambda _: found)
    assert run("problems", "show", "relu") == 0
    assert "relu: ReLU\n" in run.out
    assert "class Model(nn.Module):" in run.out
    assert "full  6.44 GB  3.15 MB  none" in run.out
    assert run("problems", "show", "relu", "--json") == 0
    assert json.loads(run.out)["cases"]["small"]
    assert json.loads(run.out)["work"]["sizes"]["full"]["read_bytes"] == 6 << 30
    assert json.loads(run.out)["work"]["not_counted"] == {"small": "it needs values"}


def test_the_folder_of_problems_may_come_from_the_environment(run, monkeypatch):
    assert run("new", "problem", "mine", "--problems", "own") == 0
    monkeypatch.setenv("WARPGRADE_PROBLEMS", "own")
    assert run("problems", "list") == 0
    assert "mine" in run.out
    assert "relu " not in run.out


def test_a_schema_is_printed(run):
    assert run("schema", "scorecard") == 0
    assert json.loads(run.out)["title"] == "Warpgrade scorecard"


def test_codes_are_explained_in_any_case(run):
    assert run("explain", "c405") == 0
    assert run.out.startswith("C405: output values are wrong\n\n")
    assert run("explain") == 0
    assert len(run.out.splitlines()) == len(Code)


def test_cards_are_checked(run):
    write_card(cards.card(), Path("card.json"))
    assert run("check-card", "card.json") == 0
    assert run.out == "card.json is a valid scorecard\n  not signed\n"
    Path("card.json").write_text(Path("card.json").read_text().replace('"correct"', '"perfect"'))
    assert run("check-card", "card.json") == 2
    assert run.out.startswith("status: 'perfect' is none of ")
    assert "1 fault" in run.err


def test_a_card_is_shown_again_with_its_samples(run, graded, submission):
    assert run("grade", "relu", submission, "--output", "card.json") == 0
    first = run.out
    assert run("show", "card.json") == 0
    again = run.out
    assert "Samples        reference: 100 verified calls" in again
    assert [line for line in again.splitlines() if line in first.splitlines()] == first.splitlines()
    assert run.err == ""


def test_a_new_problem_and_solution_lead_on_to_a_grade(run, graded):
    assert run("new", "problem", "mine") == 0
    assert "the example is a linear layer, ReLU and a division: put your own Model into" in run.out
    assert "check: warpgrade problems validate mine --problems problems\n" in run.out
    assert "next: warpgrade new solution mine --problems problems\n" in run.out
    assert run("new", "solution", "mine", "--problems", "problems") == 0
    assert "next: warpgrade grade mine mine.py --problems problems\n" in run.out
    assert run("grade", "mine", "mine.py", "--problems", "problems") == 0
    assert graded.requests[0].terms.problem.name == "mine"
    assert run("new", "solution", "mine", "--problems", "problems") == 2
    assert "mine.py already exists" in run.err


def test_a_grade_shows_a_screen_and_stores_its_card(run, graded, submission):
    assert run("grade", "relu", submission) == 0
    assert run.out.startswith("✓ correct  all calls agree")
    assert "scorecards/relu/mine.json" in run.out
    assert run.err == "build (1 of 6): relu\n"
    assert check_card(Path("scorecards/relu/mine.json")) == []
    (request,) = graded.requests
    assert request.terms.device is DeviceKind.CPU  # the submission is C++ alone
    assert request.terms.size is SizeName.SMALL
    assert request.terms.options.tolerance is ToleranceRule.MEASURED
    assert request.terms.options.sandbox_mode is SandboxMode.FULL
    assert request.terms.options.timeout_s is None
    assert request.replay is None
    assert request.terms.options.weights is None  # As the problem says.


def test_the_options_reach_the_pipeline(run, graded, submission):
    options = "--device cpu --size awkward --tolerance kernelbench --sandbox none --timeout 7 --build-timeout 8.5"
    options += " --deadline 90"
    options += " --weights frozen"
    assert run("grade", "relu", submission, *options.split()) == 0
    (request,) = graded.requests
    assert request.terms.size is SizeName.AWKWARD
    assert request.terms.options.tolerance is ToleranceRule.KERNELBENCH
    assert request.terms.options.sandbox_mode is SandboxMode.NONE
    assert request.terms.options.timeout_s == 7.0
    assert request.terms.options.build_timeout_s == 8.5
    assert request.terms.options.deadline_s == request.terms.options.limit_s == 90
    assert request.terms.options.weights is WeightsRule.FROZEN


def test_an_option_may_come_from_the_environment(run, graded, submission, monkeypatch):
    monkeypatch.setenv("WARPGRADE_GRADE_SIZE", "full")
    assert run("grade", "relu", submission) == 0
    assert graded.requests[0].terms.size is SizeName.FULL


def test_json_is_the_scorecard_and_nothing_else(run, graded, submission):
    assert run("grade", "relu", submission, "--json", "--quiet", "--output", "here.json") == 0
    assert run.out.encode() == card_bytes(graded.card) == Path("here.json").read_bytes()
    assert run.err == ""


@pytest.mark.parametrize("status", Status)
def test_the_exit_code_says_the_verdict(status, run, graded, submission):
    graded.card = cards.card(status=status)
    expected = {Status.CORRECT: 0, Status.INFRA_ERROR: 3}.get(status, 1)
    assert run("grade", "relu", submission) == expected
    assert run("grade", "relu", submission, "--json") == expected


def test_a_bad_target_fails_before_the_grade(run, graded, submission):
    assert run("grade", "relu", submission, "--output", submission / "card.json") == 2
    assert "cannot write a scorecard to" in run.err
    assert graded.requests == []


def test_a_card_that_cannot_be_stored_is_shown_all_the_same(run, graded, submission, monkeypatch):
    def full(*_, **__):
        raise CardNotWritten("cannot write the scorecard: No space left on device")

    monkeypatch.setattr("evaluator.files.card_files.write_card", full)
    assert run("grade", "relu", submission) == 3
    assert run.out.startswith("✓ correct")
    assert "Scorecard" not in run.out
    assert "error: cannot write the scorecard: No space left on device" in run.err
    assert run("grade", "relu", submission, "--json") == 3
    assert json.loads(run.out)["status"] == "correct"
    assert len(graded.requests) == 2


def test_who_replaces_a_grade_of_another_kind_is_told(run, graded, submission):
    first = graded.card
    run("grade", "relu", submission)
    run("grade", "relu", submission)
    assert "replaced" not in run.err
    device = msgspec.structs.replace(first.device, kind=DeviceKind.CUDA)
    graded.card = msgspec.structs.replace(first, device=device)
    run("grade", "relu", submission)
    was = f"correct on {first.device.kind.value}, size {first.problem.size}"
    told = f"replaced: scorecards/relu/mine.json was another grade ({was}); --output FILE keeps both\n"
    assert run.err.endswith(told)
    graded.card = first
    run("grade", "relu", submission, "--output", "scorecards/relu/mine.json")
    assert "replaced" not in run.err  # Whoever names the place means it.
    Path("scorecards/relu/mine.json").write_text("no card")
    assert run("grade", "relu", submission) == 0
    assert "replaced" not in run.err


def test_what_cannot_be_read_as_code_still_gets_a_card(run, graded):
    Path("answer.md").write_text("I am sorry, I cannot do that.")
    graded.card = cards.unread_card()
    assert run("grade", "relu", "answer.md") == 1
    unread = graded.requests[0].submission
    assert isinstance(unread, Unread)
    assert (unread.name, unread.finding.code) == ("answer", Code.NO_CODE.value)
    assert Path("scorecards/relu/answer.json").is_file()


def test_two_texts_from_stdin_have_two_cards(run, graded, monkeypatch):
    texts = (cards.SOURCE, f"{cards.SOURCE}# again\n")
    for text in texts:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert run("grade", "relu", "-") == 0
    names = [f"stdin-{hashlib.sha256(text.encode()).hexdigest()[:12]}" for text in texts]
    assert [request.submission.name for request in graded.requests] == names
    assert {path.stem for path in Path("scorecards/relu").iterdir()} == set(names)


def test_a_submission_is_called_what_the_user_says(run, graded, submission):
    assert run("grade", "relu", str(submission), "--name", "softmax_v2") == 0
    assert graded.requests[0].submission.name == "softmax_v2"
    assert Path("scorecards/relu/softmax_v2.json").is_file()
    Path("answer.md").write_text("I am sorry, I cannot do that.")
    graded.card = cards.unread_card()
    assert run("grade", "relu", "answer.md", "--name", "sorry") == 1
    assert Path("scorecards/relu/sorry.json").is_file()


@pytest.mark.parametrize("name", ["", " ", "../up", "a/b", ".", "..", ".hidden", "new\nline", "nul\0"])
def test_a_name_that_is_no_files_name_is_refused(name, run, graded, submission):
    assert run("grade", "relu", str(submission), "--name", name) == 2
    assert "is not a valid submission name" in run.err
    assert graded.requests == []


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        (Weights(rule=WeightsRule.FROZEN, graded=WeightsGraded.FROZEN), WeightsRule.FROZEN),
        (Weights(rule=WeightsRule.CHANGING, graded=WeightsGraded.FROZEN, unmatched=True), WeightsRule.CHANGING),
        (None, WeightsRule.FROZEN),  # From before weights changed.
    ],
)
def test_a_replay_has_the_weights_of_its_card(run, graded, weights, rule):
    write_card(cards.card(weights=weights), Path("card.json"))
    assert run("grade", "--replay", "card.json", "--changed-problem") == 0
    assert run("grade", "--replay", "card.json", "--changed-problem", "--weights", "changing") == 0
    assert [request.terms.options.weights for request in graded.requests] == [rule, WeightsRule.CHANGING]


@pytest.mark.parametrize(
    ("kind", "l2", "options", "asked"),
    [
        (DeviceKind.CUDA, L2Inputs(rule=L2Rule.WARM), [], L2Rule.WARM),
        (DeviceKind.CUDA, L2Inputs(rule=L2Rule.WARM), ["--l2", "cold"], L2Rule.COLD),
        (DeviceKind.CUDA, L2Inputs(rule=L2Rule.WARM), ["--device", "cpu"], None),
        (DeviceKind.CUDA, None, [], None),
        (DeviceKind.CPU, L2Inputs(rule=L2Rule.WARM), [], None),  # A card from elsewhere may hold anything.
    ],
)
def test_a_replay_on_a_gpu_has_the_l2_rule_of_its_card(kind, l2, options, asked, monkeypatch):
    monkeypatch.setattr(resolved_request, "choose", lambda _: None)
    write_card(cards.card(l2=l2, device=DeviceFacts(kind=kind, name="any")), Path("card.json"))
    named = dict(zip([each.removeprefix("--") for each in options[::2]], options[1::2], strict=True))
    arguments = GradeArguments(replay=Path("card.json"), changed_problem=True)
    assert request_for(arguments, named).terms.options.l2 is asked


def test_a_card_is_replayed_without_any_other_file(run, graded):
    card = cards.card(tolerance=ToleranceRule.KERNELBENCH)
    write_card(card, Path("card.json"))
    assert run("grade", "--replay", "card.json", "--changed-problem") == 0
    (request,) = graded.requests
    assert request.replay == card
    assert request.terms.problem.name == "relu"
    assert request.submission.source == cards.SOURCE
    assert request.terms.options.tolerance is ToleranceRule.KERNELBENCH
    assert request.terms.size == SizeName.SMALL
    assert read_card(Path("card.json")) == card
    assert Path("scorecards/relu/relu_inline.replay.json").is_file()


CHECKED = CaseResult("hidden_1", {"batch_size": 61}, 1.0, Status.CORRECT, hidden=True)
TIMED = CaseResult("hidden_1", {"batch_size": 61}, 1.0, Status.CORRECT, None, None, 2, 1, 3, 1, 2, hidden=True)
LEFT_OUT = CaseResult("decode", {"batch_size": 1}, 1.0, None, None, "case small failed")


@pytest.mark.parametrize(
    ("others", "named", "names"),
    [
        ([], {}, ("small", "decode")),
        ([CHECKED], {}, ()),
        ([TIMED], {}, ("small", "hidden")),
        ([LEFT_OUT], {}, ("small",)),
        ([], {"size": "awkward"}, ()),
        ([], {"case": ("full",)}, ("full",)),
        ([TIMED], {"device": "emulated"}, ("small",)),
    ],
)
def test_a_replay_has_the_graded_cases_of_its_card(others, named, names):
    write_card(cards.cases_card(*others), Path("card.json"))
    arguments = GradeArguments(replay=Path("card.json"), changed_problem=True)
    assert request_for(arguments, named).terms.options.case == names


def test_a_card_without_code_cannot_be_replayed(run, graded):
    write_card(cards.unread_card(), Path("card.json"))
    assert run("grade", "--replay", "card.json", "--changed-problem") == 2
    assert "contains no submission" in run.err
    assert graded.requests == []


def test_an_interruption_exits_130(run, graded, submission):
    graded.card = KeyboardInterrupt()
    assert run("grade", "relu", submission) == 130
    assert "interrupted" in run.err
    assert not list(Path("scorecards").rglob("*.*"))


def test_the_machines_failure_exits_3_with_its_hint(run, graded, submission):
    graded.card = JudgeFailed("the starter is lost", hint="run `warpgrade doctor`")
    assert run("grade", "relu", submission) == 3
    assert "error: the starter is lost\n  hint: run `warpgrade doctor`\n" in run.err


def test_a_fault_of_our_own_is_never_a_verdict(run, graded, submission):
    graded.card = ZeroDivisionError("oops")
    assert run("grade", "relu", submission) == 3
    assert "ZeroDivisionError: oops" in run.err
    assert "this is a fault in Warpgrade" in run.err


def test_only_a_deep_doctor_grades_and_the_other_says_so(run, monkeypatch):
    ready = Diagnosis(lines=[], ready=[DeviceKind.CPU], prepared=[], untried=[DeviceKind.CPU])
    tried = []

    def grade(device):
        tried.append(device)
        return Line(name="on cpu", ok=True, needed_for=[device], found="correct", fix="")

    monkeypatch.setattr("evaluator.doctor.diagnosis.diagnose", lambda: ready)
    monkeypatch.setattr("evaluator.doctor.sample_grade._line", grade)
    assert run("doctor") == 0
    assert tried == []
    assert "this machine has the parts to grade on cpu\n" in run.out
    assert "not tried      a grade on cpu\n                 → warpgrade doctor --deep\n" in run.out
    assert run("doctor", "--deep") == 0
    assert tried == [DeviceKind.CPU]
    assert "this machine can grade on cpu\n" in run.out
    assert "not tried" not in run.out
    assert run("doctor", "--deep", "--prepare") == 2
    assert "give one of them" in run.err


def test_the_doctor_sees_this_machine(run, monkeypatch):
    code = run("doctor", "--json")
    diagnosis = json.loads(run.out)
    lines = {line["name"]: line for line in diagnosis["lines"]}
    assert lines["Python"]["ok"]
    assert lines["PyTorch"]["ok"]
    assert lines["packages"]["found"].startswith("submissions may import torch, numpy")
    assert lines["packages"]["needed_for"] == []
    assert (code == 0) == ("cpu" in diagnosis["ready"])
    assert all(line["ok"] or line["fix"] for line in diagnosis["lines"])
    found = msgspec.json.decode(run.out, type=Diagnosis)
    monkeypatch.setattr("evaluator.doctor.diagnosis.diagnose", lambda: found)
    assert run("doctor") == code
    assert "  bytecode       ok       compiled for torch, sympy, numpy\n" in run.out
    assert ("✓" if code == 0 else "✗") == run.out[0]
    assert "prepared       cpu      not yet: allocator\n" in run.out
    assert run.out.count("→ warpgrade doctor --prepare\n") == 1
    assert [each["device"] for each in diagnosis["prepared"]] == ["cpu", "emulated"] or "cuda" in diagnosis["ready"]
    assert not [path for path in Path("cache").rglob("*") if path.is_file() and path.name != ".lock"]


def _stand_in(monkeypatch, *parts):
    """Have these parts in the place of the machine's own."""
    ready = Diagnosis(lines=[], ready=[DeviceKind.CPU], prepared=[])
    monkeypatch.setattr("evaluator.doctor.diagnosis.diagnose", lambda: ready)
    monkeypatch.setattr("evaluator.compile.warm_up.parts", lambda *_: list(parts))


class MadeOnce:
    """Makes a part out of nothing when it is asked for the second time: the first time is a look."""

    def __init__(self):
        self.asked = 0

    def __call__(self, _):
        self.asked += 1
        return None if self.asked > 1 else "not yet"


def test_the_doctor_prepares_and_says_what_was_made(run, monkeypatch):
    def fails(_):
        return "no \x1b[31mheader"

    parts = [
        Artefact(DeviceKind.CPU, "allocator", lambda _: None),
        Artefact(DeviceKind.EMULATED, "runtime", MadeOnce()),
        Artefact(DeviceKind.EMULATED, "precompiled header", fails),
    ]
    _stand_in(monkeypatch, *parts)
    assert run("doctor", "--prepare") == 3
    assert run.err == ("look: this machine\nprepare: emulated: runtime\nprepare: emulated: precompiled header\n")
    assert run.out.splitlines()[:3] == [
        "  cpu            there    allocator",
        "  emulated       made     runtime",
        "                 failed   precompiled header: no header",
    ]
    _stand_in(monkeypatch, *parts[:2])
    assert run("doctor", "--prepare", "--json") == 0
    assert [part["outcome"] for part in json.loads(run.out)["parts"]] == ["there", "there"]


def test_a_machine_that_cannot_grade_prepares_nothing(run, monkeypatch):
    monkeypatch.setattr("evaluator.doctor.diagnosis.diagnose", lambda: Diagnosis(lines=[], ready=[], prepared=[]))
    assert run("doctor", "--prepare") == 3
    assert "error: this machine cannot grade yet\n  hint: `warpgrade doctor` lists what is missing\n" in run.err
    assert run.out == ""


def test_the_cache_is_told_and_cleared(run):
    assert run("cache", "info") == 0
    assert run.out.splitlines()[1] == "used      0 B of 10.0 GiB (WARPGRADE_CACHE_LIMIT)"
    BuildCache(Path("cache")).put("ab" * 32, bytes(1 << 20), log="", wall_s=1.0)
    BuildCache(Path("cache")).parts.put("cd" * 32, bytes(1 << 20), log="", wall_s=1.0)
    assert run("cache", "info") == 0
    assert re.search(r"^builds +1\.0 MiB  1 entry ", run.out, re.MULTILINE)
    assert re.search(r"^parts +1\.0 MiB  1 entry ", run.out, re.MULTILINE)
    assert run("cache", "info", "--json") == 0
    told = json.loads(run.out)
    assert told["folder"] == str(Path("cache").absolute())
    assert told["limit_bytes"] == 10 << 30
    assert told["bytes"] == sum(shelf["bytes"] for shelf in told["shelves"]) >= 2 << 20
    assert run("cache", "clear") == 0
    assert run.out.startswith(f"2 entries removed from {told['folder']}, 2.0 MiB\n")
    assert run.err == ""
    assert run("cache", "clear", "--json") == 0
    assert (json.loads(run.out)["bytes"], json.loads(run.out)["stayed"]) == (0, 0)


def test_what_is_being_read_is_not_cleared(run):
    BuildCache(Path("cache")).parts.put("cd" * 32, bytes(100), log="", wall_s=1.0)
    held = BuildCache(Path("cache").absolute()).parts.folder("cd" * 32)
    assert held is not None
    assert run("cache", "clear") == 0
    assert run.out.splitlines()[1] == "1 entry kept: in use, or owned by another user"
    assert held.exists()


def test_the_limit_of_the_cache_comes_from_the_environment(run, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE_LIMIT", "512MiB")
    assert run("cache", "info") == 0
    assert "0 B of 512.0 MiB" in run.out
    monkeypatch.setenv("WARPGRADE_CACHE_LIMIT", "lots")
    assert run("cache", "info") == 2
    assert "error: WARPGRADE_CACHE_LIMIT: 'lots' is not a size" in run.err
    assert "hint: example: WARPGRADE_CACHE_LIMIT=10GiB" in run.err
    assert run("cache", "--help") == 0
    assert "WARPGRADE_CACHE_LIMIT " in run.out


def _shell(command):
    environment = {"PYTHONPATH": str(TOP), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    script = command.replace("warpgrade", f"{sys.executable} -m cli")
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_a_closed_pipe_is_silent():
    done = _shell("set -o pipefail; warpgrade schema scorecard | head -c 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_an_ascii_terminal_is_no_crash():
    done = _shell("PYTHONIOENCODING=ascii warpgrade grade relu größe.py")
    assert done.returncode == 2
    assert done.stderr.isascii()
    assert "Traceback" not in done.stderr


def test_the_shell_completes_names_of_problems():
    done = _shell("_WARPGRADE_COMPLETE=bash_complete COMP_WORDS='warp grade rel' COMP_CWORD=2 warpgrade")
    assert "plain,relu" in done.stdout.splitlines()


CPP = 'load_inline(cpp_sources="float* p = x.data_ptr<float>();")\nclass ModelNew: pass\n'


@pytest.mark.parametrize("usual", [DeviceKind.EMULATED, DeviceKind.CUDA])
def test_cpp_for_the_cpu_is_graded_there_where_no_device_is_asked_for(usual, graded, run, tmp_path, monkeypatch):
    monkeypatch.setattr("evaluator.grading.resolved_request.default_device", lambda: usual)
    (tmp_path / "mine.py").write_text(CPP)
    run("grade", "relu", "mine.py")
    run("grade", "relu", "mine.py", "--device", "emulated")
    chosen, asked = graded.requests
    assert (chosen.terms.device, chosen.terms.size, chosen.terms.gpu) == (DeviceKind.CPU, SizeName.SMALL, None)
    assert asked.terms.device is DeviceKind.EMULATED
    assert isinstance(chosen.submission, Submission)
    assert isinstance(asked.submission, Submission)
    (said,) = chosen.submission.findings
    assert (said.code, asked.submission.findings) == (Code.GRADED_ON_CPU, ())
    assert usual.value in said.message


@pytest.mark.parametrize("name", ["level1/19_ReLU", "19_ReLU", "level1/19"])
def test_a_name_of_kernelbench_asks_for_its_folder(name, run, submission, tmp_path):
    assert run("grade", name, submission) == 2
    assert "hint: problems of KernelBench are not shipped: add --problems DIR" in run.err
    (tmp_path / "empty").mkdir()
    assert run("grade", name, submission, "--problems", tmp_path / "empty") == 2
    assert "are not shipped" not in run.err
