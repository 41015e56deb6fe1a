"""Options from a project's pyproject.toml and from the environment; completion of a shell's words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from evaluator.commands import main as cli
from evaluator.commands import project_file
from evaluator.commands.options import field_of
from evaluator.commands.project_file import KEYS, REFUSED
from evaluator.files.card_files import write_card
from evaluator.grade_options import GradeOptions
from evaluator.grading import pipeline
from evaluator.records import BaselineKind
from tests import cards

TOP = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    (tmp_path / "project" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "inner")
    for name in [name for name in os.environ if name.startswith("WARPGRADE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    Path("mine.py").write_text(cards.SOURCE)


@pytest.fixture
def options(monkeypatch, capsys):
    """Grade with words of the command line, and give the options that arrive, or the exit code and stderr."""

    def run(*words):
        requests = []
        monkeypatch.setattr(pipeline, "grade", lambda request, *_, **__: requests.append(request) or cards.card())
        code = cli.run([*words])
        run.err = capsys.readouterr().err
        return requests[0].terms.options if requests else code

    return run


def project(text, folder=".."):
    Path(folder, "pyproject.toml").write_text(f"[tool.warpgrade]\n{text}\n")


GRADE = ("grade", "relu", "mine.py")


def test_options_come_from_the_file_and_are_named(options):
    project('device = "cpu"\ntimeout = 77\nbaseline = ["compile"]\nrequire-own-kernel = 0.5\nstrict = true')
    found = options(*GRADE)
    assert (found.device, found.timeout_s, found.baselines) == ("cpu", 77, (BaselineKind.COMPILE,))
    assert (found.require_own_kernel, found.strict) == (0.5, True)
    path = Path("../pyproject.toml").resolve()
    listed = 'device = "cpu", timeout = 77, baseline = ["compile"], require-own-kernel = 0.5, strict = true'
    assert f"options of {path}: {listed}\n" in options.err


def test_the_command_line_comes_before_a_variable_and_a_variable_before_the_file(options, monkeypatch):
    project('device = "cpu"\ntimeout = 77\ndeadline = 770')
    monkeypatch.setenv("WARPGRADE_GRADE_TIMEOUT", "88")
    monkeypatch.setenv("WARPGRADE_GRADE_DEADLINE", "880")
    found = options(*GRADE, "--deadline", "990")
    assert (found.timeout_s, found.deadline_s) == (88, 990)
    assert 'pyproject.toml: device = "cpu"\n' in options.err


def test_the_nearest_file_with_a_table_counts_alone(options):
    project("timeout = 77\nstrict = true")
    Path("pyproject.toml").write_text('[project]\nname = "warpgrade-like"\n')
    assert options(*GRADE).timeout_s == 77
    project("timeout = 88", ".")
    found = options(*GRADE, "--device", "cpu")
    assert (found.timeout_s, found.strict) == (88, False)


@pytest.mark.parametrize("words", [("--no-config", *GRADE), GRADE])
def test_the_file_may_be_turned_off(options, words, monkeypatch):
    project("strict = true")
    if words is GRADE:
        monkeypatch.setenv("WARPGRADE_NO_CONFIG", "1")
    assert options(*words).strict is False
    assert "pyproject" not in options.err


def test_a_replay_has_the_options_of_its_card(options):
    project("timeout = 77\nstrict = true")
    write_card(cards.card(), Path("card.json"))
    found = options("grade", "--replay", "card.json", "--changed-problem")
    assert found.timeout_s != 77
    assert found.strict is False


def test_a_file_of_another_user_is_ignored(options, monkeypatch):
    project("strict = true")
    if os.geteuid():
        monkeypatch.setattr(project_file.os, "geteuid", lambda: os.getuid() + 1)
    else:  # A file of root's is good for everybody.
        os.chown("../pyproject.toml", 12345, -1)
    assert options(*GRADE).strict is False


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ('devise = "cpu"', "unknown option devise", "did you mean device?"),
        ('sandbox = "none"', "sandbox cannot be set in a file", "--sandbox"),
        ('problems = "evil"', "problems cannot be set in a file", "trusted"),
        ('sign = "key"', "sign cannot be set in a file", "--sign"),
        ('size = "small"', "size cannot be set in a file", "WARPGRADE_GRADE_SIZE"),
        ('tolerance = "kernelbench"', "tolerance cannot be set in a file", "a rule of the verdict: use --tolerance"),
        ('device = "tpu"', "device: 'tpu' is not one of", ""),
        ('baseline = "compile"', "baseline is not a list", ""),
        ("timeout = -1", "timeout: -1.0 is not a positive number of seconds", ""),
        ("require-own-kernel = true", "require-own-kernel is not a number or a text", ""),
        ('strict = "yes"', "strict is not true or false", ""),
        ('device = ["cpu"]', "device is not a number or a text", ""),
        ("x", "is not TOML", "mend"),
    ],
)
def test_a_wrong_file_is_refused_with_what_to_do(options, text, why, hint):
    project(text)
    assert options(*GRADE) == 2
    assert why in options.err
    assert hint in options.err
    assert options("grade", "--help") == 0


def test_a_deleted_folder_has_no_file(options):
    Path.cwd().joinpath("mine.py").unlink()
    Path.cwd().rmdir()
    assert options(*GRADE) == 2
    assert "cannot read mine.py" in options.err


def test_a_named_pipe_is_no_file_of_a_project(options):
    os.mkfifo("../pyproject.toml")
    assert options(*GRADE).strict is False


def test_every_option_of_a_grade_may_be_in_a_file_or_has_a_reason_why_not():
    names = {
        param.name.replace("_", "-")
        for command in ("grade", "batch")
        for param in cli.warpgrade.commands[command].params
        if isinstance(param, click.Option) and field_of(param.name) in GradeOptions.__struct_fields__
    }
    assert names - {"profile", "speedup-of"} == set(KEYS) - {"jobs"} | set(REFUSED)


def test_a_batch_has_the_options_of_the_file(monkeypatch):
    project('device = "cpu"\njobs = 3')
    ctx = cli.warpgrade.commands["batch"].make_context("batch", ["submissions", "--run", "run"])
    assert (ctx.params["device"], ctx.params["jobs"]) == ("cpu", 3)


def test_the_help_names_the_variables(capsys):
    assert cli.run(["grade", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name in ("WARPGRADE_GRADE_REQUIRE_OWN_KERNEL", "WARPGRADE_GRADE_DEVICE", "WARPGRADE_PROBLEMS"):
        assert f"env var: {name}" in out


COMPLETIONS = {
    ("warpgrade grade", "rel"): ["relu", "relu_backward"],
    ("warpgrade problems show", "conv"): ["conv2d", "conv2d_bias_relu"],
    ("warpgrade batch x --only", "cums"): ["cumsum"],
    ("warpgrade explain", "t31"): [f"T31{number}" for number in range(10)],
    ("warpgrade grade --mode", "c"): ["check"],
    ("warpgrade", "comp"): ["compare", "completion"],
}
COMPLETE = """
import contextlib, json, os, sys
from evaluator.commands.main import run
for words, current in json.loads(sys.argv[1]):
    os.environ |= {"COMP_WORDS": f"{words} {current}", "COMP_CWORD": str(len(words.split()))}
    with contextlib.suppress(SystemExit):
        run([])
    print()
print(*[name for name in ("torch", "rich", "numpy") if name in sys.modules])
"""


def test_problems_and_codes_complete_without_torch():
    project("x")  # A broken file must not break completion.
    environment = {**os.environ, "PYTHONPATH": str(TOP), "_WARPGRADE_COMPLETE": "bash_complete"}
    words = [sys.executable, "-c", COMPLETE, json.dumps(list(COMPLETIONS))]
    out = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    *found, heavy = out.removesuffix("\n").split("\n\n")
    assert [each.replace("plain,", "").split() for each in found] == list(COMPLETIONS.values())
    assert heavy == ""


@pytest.mark.parametrize(("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete")])
def test_the_script_of_a_shell_is_printed(shell, sign, capsys):
    assert cli.run(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert sign in out
    assert f"_WARPGRADE_COMPLETE={shell}_complete" in out
