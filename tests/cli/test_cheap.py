"""Commands that only look something up must not load what only a grade needs."""

import subprocess
import sys
from pathlib import Path

from evaluator.files.card_files import write_card
from tests import cards

TOP = Path(__file__).parents[2]
HEAVY = ("torch", "rich", "jsonschema", "numpy", "psutil", "jinja2")
CHEAP = (
    *("--help", "--version", "grade --help", "problems list", "problems list --json", "problems show relu"),
    *("problems show relu --json", "schema scorecard", "schema problem", "explain", "explain C405", "cache info"),
    *("new problem mine", "new solution relu"),
)
SCRIPT = f"""
import sys
from evaluator.commands import main as cli
for command in sys.argv[1:]:
    before = set(sys.modules)
    code = cli.run(command.split())
    loaded = [name for name in {HEAVY!r} if name in sys.modules and name not in before]
    print(code, command, "loads", *loaded, file=sys.stderr)
"""


def loaded_by(folder, *commands):
    """Run commands in one process; give, for each, the exit code and the heavy packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *commands],
        cwd=folder,
        env={"PYTHONPATH": str(TOP), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stderr.splitlines() if " loads" in line]


def test_a_cheap_command_loads_nothing_heavy(tmp_path):
    assert loaded_by(tmp_path, *CHEAP) == [f"0 {command} loads" for command in CHEAP]


def test_a_card_is_shown_with_rich_alone_and_checked_with_jsonschema_alone(tmp_path):
    write_card(cards.card(), tmp_path / "card.json")
    commands = {"show card.json": "rich", "check-card card.json": "jsonschema"}
    assert loaded_by(tmp_path, *commands) == [f"0 {command} loads {package}" for command, package in commands.items()]
