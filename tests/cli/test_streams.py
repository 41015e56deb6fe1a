"""Standard streams that are closed, full, or whose reader went away, and what is coloured."""

import io
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.commands import main as cli
from evaluator.commands import terminal
from evaluator.commands.terminal import coloured
from evaluator.errors import UsageError
from evaluator.files.card_files import card_bytes
from tests import cards

CLI = [sys.executable, "-c", "import cli; cli.main()"]
CODES = {
    ("problems", "list", "--json"): 0,
    ("problems", "show", "nosuch"): 2,
    ("problems", "list", "--nosuch"): 2,
    ("--help",): 0,
    ("explain", "C401"): 0,
    ("check-card", "CARD"): 0,
    ("show", "CARD"): 0,
    ("grade", "relu", "-", "--device", "cpu", "--timeout", "0"): 2,
    ("batch", "nosuch", "--run", "nosuch", "--device", "cpu"): 2,
}
COMMANDS = pytest.mark.parametrize("command", CODES, ids=" ".join)
CLOSINGS = [("0<&-",), ("1>&-",), ("2>&-",), ("0<&-", "1>&-", "2>&-")]
KINDS = ("all closed", "stdout closed", "stderr full", "stdout full", "reader gone")
DRIVER = """
import json, os, sys, tempfile
import evaluator.batch.command, evaluator.grading.resolved_request, evaluator.report.card.card_screen, evaluator.schema
import jsonschema, rich.console
from evaluator.commands import main as cli
def open_to(number, kind):
    if kind == "closed":
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
        return
    if kind == "gone":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open({"full": "/dev/full", "null": "/dev/null"}.get(kind, kind), os.O_RDWR | os.O_CREAT)
    os.dup2(writer, number)
    os.close(writer)
WISHES = {
    "all closed": ["closed"] * 3, "stdout closed": ["null", "closed", "errors"],
    "stderr full": ["null", "null", "full"],
    "stdout full": ["null", "full", "errors"], "reader gone": ["null", "gone", "errors"],
}
found = []
for kind, arguments in json.load(sys.stdin):
    if (pid := os.fork()) == 0:
        os.chdir(tempfile.mkdtemp(dir="."))
        sys.argv[1:] = arguments
        for number, wish in enumerate(WISHES[kind]):
            open_to(number, "../errors" if wish == "errors" else wish)
        cli.main()
    _, status = os.waitpid(pid, 0)
    said = open("errors").read() if os.path.exists("errors") else ""
    found.append([os.waitstatus_to_exitcode(status), said])
    if os.path.exists("errors"):
        os.remove("errors")
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def ends(card, tmp_path_factory):
    """Every command with every kind of streams: its exit code and what it said on stderr. Forks of one process."""
    wanted = list(itertools.product(KINDS, CODES))
    asked = [[kind, [str(card) if word == "CARD" else word for word in command]] for kind, command in wanted]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("forks"),
    )
    return dict(zip(wanted, (tuple(each) for each in json.loads(done.stdout)), strict=True))


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    path = tmp_path_factory.mktemp("cards") / "card.json"
    path.write_bytes(card_bytes(cards.card()))
    return path


def run(command, redirection, card, **options):
    words = [str(card) if word == "CARD" else word for word in command]
    shell = ["sh", "-c", f'"$@" {redirection}', "sh"]
    return subprocess.run([*shell, *CLI, *words], capture_output=True, text=True, check=False, **options)


@COMMANDS
@pytest.mark.parametrize("kind", ["all closed", "stdout closed", "stderr full"])
def test_streams_that_lead_nowhere_change_no_exit_code(kind, command, ends):
    code, said = ends[kind, command]
    assert code == CODES[command], said
    assert "Traceback" not in said


@COMMANDS
def test_a_stdout_that_is_full_is_told_and_is_no_verdict(command, ends):
    code, said = ends["stdout full", command]
    assert "Traceback" not in said
    if CODES[command] == 0:
        assert code == 3
        assert said.startswith("error: cannot write to stdout: No space left on device")
    else:
        assert code == CODES[command]  # It had nothing for stdout.


@COMMANDS
def test_a_reader_that_went_away_is_no_error(command, ends):
    code, said = ends["reader gone", command]
    assert code == CODES[command], said
    assert "Traceback" not in said
    assert "Broken pipe" not in said


@pytest.mark.parametrize("closing", CLOSINGS, ids=" ".join)
def test_closed_streams_leave_the_others_as_they_are(closing, card):
    said = run(("problems", "list"), " ".join(closing), card, stdin=subprocess.DEVNULL)
    assert said.returncode == 0
    assert ("level  name" in said.stdout) == ("1>&-" not in closing)
    assert said.stderr == ""
    wrong = run(("problems", "show", "nosuch"), " ".join(closing), card, stdin=subprocess.DEVNULL)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: ") == ("2>&-" not in closing)
    assert wrong.stdout == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environment", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": ""}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, True, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ],
)
def test_who_wants_colours_gets_them(environment, on_terminal, in_pipe):
    assert coloured(Terminal(), environment) == on_terminal
    assert coloured(io.StringIO(), environment) == in_pipe


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_a_piped_card_and_an_error_are_coloured_where_that_is_forced(variables, coloured, card):
    names = ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "CLICOLOR", "TERM", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in names} | variables
    shown = run(("show", "CARD"), "", card, env=environment)
    assert ("\x1b[1;32m" in shown.stdout) == coloured
    assert ("\x1b" in shown.stdout) == coloured
    wrong = run(("problems", "show", "nosuch"), "", card, env=environment)
    assert ("\x1b[31m" in wrong.stderr) == coloured


def test_a_grade_reads_nothing_from_a_closed_stdin(card, tmp_path):
    done = run(("grade", "relu", "-", "--device", "cpu"), "0<&-", card, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert Path(tmp_path, "scorecards").exists()


def test_a_hint_wraps_on_a_terminal_alone(monkeypatch, capsys):
    error = UsageError("no", hint="a long hint " * 9 + "--with-hyphens-" + "x" * 90)
    terminal.complain("error", error)
    assert len(capsys.readouterr().err.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    terminal.complain("error", error)
    first, second, *_, last = capsys.readouterr().err.splitlines()[1:]
    assert first.startswith("  hint: a long")
    assert second.startswith(" " * 8 + "a long")
    assert max(map(len, (first, second))) <= 80
    assert last == " " * 8 + "--with-hyphens-" + "x" * 90


def test_mcp_without_its_package_serves_nothing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    assert cli.run(["mcp", "--device", "emulated"]) == 2
    assert capsys.readouterr().err.startswith("error: `warpgrade mcp` needs the package mcp")
