"""Commands that only look something up must not load what only a grade needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.files.card_files import write_card
from tests import cards

TOP = Path(__file__).parents[2]
HEAVY = ("torch", "rich", "jsonschema", "numpy", "psutil", "jinja2")
SCRIPT = f"""
import sys
from evaluator.commands import main as cli
code = cli.run(sys.argv[1:])
loaded = [name for name in {HEAVY!r} if name in sys.modules]
print(code, *loaded, file=sys.stderr)
"""


def loaded_by(arguments: list[str], folder: Path) -> list[str]:
    """Run a command in a process of its own; give the heavy packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(TOP), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    code, *loaded = done.stderr.splitlines()[-1].split()
    assert code == "0", done.stderr
    return loaded


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "grade --help",
        "problems list",
        "problems list --json",
        "problems show relu",
        "problems show relu --json",
        "schema scorecard",
        "schema problem",
        "explain",
        "explain C405",
        "cache info",
        "new problem mine",
        "new solution relu",
    ],
)
def test_a_cheap_command_loads_nothing_heavy(command: str, tmp_path: Path) -> None:
    assert loaded_by(command.split(), tmp_path) == []


def test_showing_a_card_loads_rich_and_nothing_else(tmp_path: Path) -> None:
    write_card(cards.card(), tmp_path / "card.json")
    assert loaded_by(["show", "card.json"], tmp_path) == ["rich"]


def test_checking_a_card_loads_jsonschema_and_nothing_else(tmp_path: Path) -> None:
    write_card(cards.card(), tmp_path / "card.json")
    assert loaded_by(["check-card", "card.json"], tmp_path) == ["jsonschema"]
