"""What a batch, a report and a list of problems find by walking folders is a regular file, or is refused by name."""

import os
import socket
from pathlib import Path

import pytest

from evaluator.batch.runs.inputs import read_folder
from evaluator.batch.runs.problems import Problems
from evaluator.batch.runs.tasks import Refused, Task
from evaluator.catalog import find_problem
from evaluator.files.card_files import write_card
from evaluator.records import SizeName
from tests import cards
from tests.unit.files.test_safe_open import bound, dangling, link, link_to_folder

IRREGULAR = [link, link_to_folder, dangling, os.mkfifo, bound]


@pytest.mark.parametrize("make", IRREGULAR)
def test_a_submission_that_is_no_file_is_refused_and_named(make, batch, hand_in, tmp_path):
    top = hand_in({"relu/a.py": "# right"})
    make(top / "relu" / "b.py")
    assert batch() == 2
    assert "relu/b.py" in batch.err
    assert "it is a " in batch.err
    assert [path.name for path in (tmp_path / "run/cards").rglob("*.json")] == ["a.json"]
    assert "relu/b.py: it is a " in (tmp_path / "run/logs/batch.log").read_text()


def test_a_linked_folder_is_refused_and_named(hand_in, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.py").write_text("secret")
    top = hand_in({"softmax/b.py": "y = 2"})
    (top / "relu").symlink_to(secret)
    items = list(read_folder(top, Problems(None, (SizeName.SMALL,))))
    assert [type(item) for item in items] == [Refused, Task] or [type(item) for item in items] == [Task, Refused]
    (refused,) = [item for item in items if isinstance(item, Refused)]
    assert refused.origin.endswith("/relu")
    assert "a symbolic link" in refused.reason


def test_a_folder_that_becomes_a_link_after_it_was_listed_is_not_followed(hand_in, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "b.py").write_text("secret")
    top = hand_in({"relu/a.py": "x = 1", "softmax/b.py": "y = 2"})
    items = read_folder(top, Problems(None, (SizeName.SMALL,)))
    assert isinstance(next(items), Task)
    (top / "softmax").rename(tmp_path / "was")
    (top / "softmax").symlink_to(secret)
    (refused,) = items
    assert isinstance(refused, Refused)
    assert "a symbolic link" in refused.reason


def test_the_folder_itself_may_be_a_link(hand_in, tmp_path):
    hand_in({"relu/a.py": "x = 1"})
    (tmp_path / "linked").symlink_to(tmp_path / "submissions")
    (task,) = read_folder(tmp_path / "linked", Problems(None, (SizeName.SMALL,)))
    assert task.submission.source == "x = 1"


def test_other_files_and_links_beside_submissions_are_passed_over(hand_in, tmp_path):
    top = hand_in({"relu/a.py": "x = 1", "relu/notes.json": "{}"})
    (top / "relu" / "data.json").symlink_to("notes.json")
    (top / "relu" / ".git").symlink_to("/etc")
    os.mkfifo(top / "relu" / "pipe")
    assert [type(item) for item in read_folder(top, Problems(None, (SizeName.SMALL,)))] == [Task]


FILES = {"relu/a.py": "# right", "relu/b.py": "# wrong"}


@pytest.fixture
def a_run(run, tmp_path):
    return tmp_path / "run"


@pytest.mark.parametrize("make", IRREGULAR)
def test_a_card_that_is_no_file_is_named_and_the_rest_is_read(make, a_run, run):
    make(a_run / "cards" / "relu" / "c.json")
    assert run("report", "run", "--html", "page.html") == 3
    assert "c.json is a " in run.err
    assert "2 submissions" in run.out


def test_a_linked_folder_of_cards_is_named(a_run, run, tmp_path):
    write_card(cards.card(), tmp_path / "elsewhere" / "a.json")
    (a_run / "cards" / "softmax").symlink_to(tmp_path / "elsewhere")
    assert run("report", "run") == 3
    assert "softmax is a symbolic link" in run.err


@pytest.mark.parametrize("file", ["manifest.json", "plan.jsonl"])
@pytest.mark.parametrize("make", [link, os.mkfifo, bound])
def test_what_a_run_is_made_of_are_files(make, file, a_run, run):
    (a_run / file).unlink()
    make(a_run / file)
    assert run("report", "run") == 2


@pytest.mark.parametrize("make", [link, os.mkfifo, bound])
def test_an_index_that_is_no_file_is_done_without(make, a_run, run):
    (a_run / "index.sqlite").unlink()
    make(a_run / "index.sqlite")
    assert run("report", "run") == 0


def test_an_index_with_a_view_that_never_ends_is_made_anew(a_run, run):
    import sqlite3

    (a_run / "index.sqlite").unlink()
    with sqlite3.connect(a_run / "index.sqlite") as forged:
        forged.execute(
            "CREATE VIEW cards AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        )
        forged.execute("PRAGMA user_version = 1")
    assert run("report", "run") == 0


def test_a_run_writes_through_no_link(a_run, batch, hand_in, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    hand_in({"relu/d.py": "# right"})
    (a_run / "cards" / "relu" / "d.json").symlink_to(victim)
    for name in ("manifest.tmp", "plan.tmp", "logs/worker-0.log"):
        (a_run / name).unlink(missing_ok=True)
        (a_run / name).symlink_to(victim)
    batch()
    assert victim.read_text() == "mine"
    assert (a_run / "cards" / "relu" / "d.json").is_file()
    assert not (a_run / "cards" / "relu" / "d.json").is_symlink()


TOML = 'title = "x"\nlevel = 1\ndescription = "x"\n[sizes.full]\nn = 1\n[sizes.small]\nn = 1\n'
REFERENCE = "n = 1\nclass Model:\n    def forward(self, x): ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def a_problem(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "problem.toml").write_text(TOML)
    (folder / "reference.py").write_text(REFERENCE)
    return folder


@pytest.mark.parametrize("file", ["problem.toml", "reference.py"])
@pytest.mark.parametrize("make", [link, os.mkfifo, bound])
def test_a_problem_of_a_folder_is_made_of_files(make, file, tmp_path, command):
    a_problem(Path("mine/good"))
    a_problem(Path("mine/bad"))
    Path("mine/bad", file).unlink()
    make(tmp_path / "mine" / "bad" / file)
    assert command("problems", "list", "--problems", "mine") == 2
    assert "good" in command.out
    assert f"mine/bad/{file}: refused: it is a " in command.err


def test_a_linked_problem_of_a_folder_is_named_and_may_be_named(tmp_path, command):
    a_problem(Path("elsewhere/mine"))
    Path("problems").mkdir()
    Path("problems/linked").symlink_to(tmp_path / "elsewhere" / "mine")
    assert command("problems", "list", "--problems", "problems") == 2
    assert "a symbolic link" in command.err
    assert find_problem("problems/linked", None).name == "linked"


def test_a_named_pipe_of_lines_is_given_up_when_nobody_writes(tmp_path, monkeypatch):
    from evaluator.batch.runs.inputs import open_lines
    from evaluator.errors import UsageError
    from evaluator.files import safe_open

    os.mkfifo(tmp_path / "lines")
    monkeypatch.setattr(safe_open.open_named, "__defaults__", (0.05,))
    with pytest.raises(UsageError, match="nothing was written into this pipe"):
        open_lines(tmp_path / "lines")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(tmp_path / "s"))
    with pytest.raises(UsageError, match="cannot read"):
        open_lines(tmp_path / "s")
