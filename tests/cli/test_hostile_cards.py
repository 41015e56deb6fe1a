"""A card is data: replaying, showing and indexing one neither runs nor writes anything that it names."""

import hashlib
import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.commands import main as cli
from evaluator.files.card_files import write_card
from evaluator.grading import pipeline
from tests import cards

REFERENCE = (
    "import pathlib\npathlib.Path({!r}).touch()\nclass Model: pass\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
)
TOML = 'title = "x"\nlevel = 1\ndescription = "x"\n[sizes.full]\n[sizes.small]\n'


@pytest.fixture(autouse=True)
def _here(tmp_path, tmp_path_factory, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def asked(monkeypatch):
    """Stands in for the pipeline; what it was asked to grade."""
    requests = []

    def grade(request, progress, **_):
        requests.append(request)
        return request.replay

    monkeypatch.setattr(pipeline, "grade", grade)
    return requests


def hostile(tmp_path, *, problem="relu", name="mine", **changes):
    """A card in a file, with these names in it; its problem is the shipped relu to the byte."""
    made = cards.card(**changes)
    ref = replace(made.problem, name=problem, sha256=find_problem("relu").sha256)
    card = replace(made, problem=ref, submission=replace(made.submission, name=name))
    (tmp_path / "card.json").write_bytes(msgspec.json.encode(card))
    return str(tmp_path / "card.json")


def everything(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "spelled", ["{0}/evil", "../evil", "./../evil", "../work/../evil", "{0}/level1/1_evil.py", "../level1/1_evil.py"]
)
def test_a_card_whose_problem_is_a_path_is_refused(spelled, tmp_path, asked, capsys):
    for folder, name in (("evil", "reference.py"), ("level1", "1_evil.py")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(REFERENCE.format(str(tmp_path / "ran")))
    (tmp_path / "evil" / "problem.toml").write_text(TOML)
    assert cli.run(["grade", "--replay", hostile(tmp_path, problem=spelled.format(tmp_path)), "--changed-problem"]) == 2
    said = capsys.readouterr().err
    assert "as this scorecard requires" in said
    assert "--problems DIR" in said
    assert asked == []
    assert everything(tmp_path / "work") == set()


@pytest.mark.parametrize(
    "name",
    [
        *("../../out", "../../../tmp/out", "/etc/out", "..", ".", "", "a/../../out", "a\0b", "x" * 5000),
        *("a\n\x1b[2Jb", ".warpgrade-0123456789abcdef.tmp", "\u202e"),
    ],
)
def test_a_cards_name_stays_inside_of_scorecards(name, tmp_path, asked):
    before = everything(tmp_path)
    assert cli.run(["grade", "--replay", hostile(tmp_path, name=name), "-q"]) == 0
    (written,) = [each for each in everything(tmp_path) - before - {"card.json"} if each.endswith(".json")]
    folder, _, file = written.rpartition("/")
    assert folder == "work/scorecards/relu"
    assert file.endswith(".replay.json")
    assert len(asked) == 1


def test_a_link_where_the_card_goes_is_refused(tmp_path, asked):
    victim = tmp_path / "victim.json"
    victim.write_text("mine")
    place = Path("scorecards/relu/mine.replay.json")
    place.parent.mkdir(parents=True)
    place.symlink_to(victim)
    assert cli.run(["grade", "--replay", hostile(tmp_path), "-q"]) == 2
    assert victim.read_text() == "mine"
    assert asked == []


def test_a_changed_problem_is_refused_unless_told_otherwise(tmp_path, asked, capsys):
    write_card(cards.card(), tmp_path / "card.json")
    card = str(tmp_path / "card.json")
    for words in (["--replay", card], ["relu", "--replay", card]):
        assert cli.run(["grade", *words]) == 2
        said = capsys.readouterr().err
        assert "has changed since this scorecard" in said
        assert "--changed-problem" in said
    assert asked == []
    assert cli.run(["grade", "--replay", card, "--changed-problem", "-q"]) == 0


def test_a_named_problem_is_used_with_the_cards_submission(tmp_path, asked):
    assert cli.run(["grade", "relu", "--replay", hostile(tmp_path, problem="/etc"), "-q"]) == 0
    assert asked[0].terms.problem.name == "relu"
    assert asked[0].submission.source == cards.SOURCE


@pytest.mark.parametrize("sha256", ["0" * 64, hashlib.sha256(b"another").hexdigest()])
def test_a_source_that_is_not_its_hash_is_refused(sha256, tmp_path, asked, capsys):
    path = hostile(tmp_path)
    document = msgspec.json.decode(Path(path).read_bytes())
    document["submission"]["sha256"] = sha256
    Path(path).write_bytes(msgspec.json.encode(document))
    assert cli.run(["grade", "--replay", path]) == 2
    assert "does not match its sha256" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "check-card", "grade --replay"])
def test_a_card_that_is_a_pipe_does_not_hang(command, tmp_path, capsys):
    os.mkfifo(tmp_path / "card.json")
    assert cli.run([*command.split(), str(tmp_path / "card.json")]) == 2
    assert "a named pipe" in capsys.readouterr().err


def test_nothing_of_a_card_reaches_the_terminal_as_an_escape(tmp_path, capsys):
    """Every text of a card, hostile at once: escapes, markup, marks of direction, and very long."""
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m[red]x[/red]\u202e\r\n" * 300
    document = msgspec.to_builtins(cards.wrong_card())

    def poison(value):
        if isinstance(value, dict):
            return {key: poison(each) for key, each in value.items()}
        if isinstance(value, list):
            return [poison(each) for each in value]
        return evil if isinstance(value, str) else value

    poisoned = poison(document)
    for path in ("status", "tolerance", "values", "mode", "seeds", "benchmark_rule"):
        poisoned[path] = document[path]
    for record, fixed in (
        ("problem", ("sha256", "size", "precision", "mode")),
        ("submission", ("sha256",)),
        ("device", ("kind",)),
    ):
        poisoned[record] |= {field: document[record][field] for field in fixed}
    for check, was in zip(poisoned["checks"], document["checks"], strict=True):
        check |= {"profile": was["profile"], "seed": was["seed"], "size": was["size"]}
    for unit, was in zip(poisoned["build"]["units"], document["build"]["units"], strict=True):
        unit["key"] = was["key"]
    (tmp_path / "card.json").write_bytes(msgspec.json.encode(poisoned))
    assert cli.run(["show", str(tmp_path / "card.json")]) == 0
    cli.run(["check-card", str(tmp_path / "card.json")])
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(text)
        assert len(text) < 20_000
    assert "[red]x[/red]" in shown.out  # as text: nothing of it is markup
