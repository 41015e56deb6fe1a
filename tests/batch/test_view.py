"""`warpgrade view`: the page follows the run, and Ctrl-C ends the server."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from evaluator.commands import main as cli
from evaluator.errors import CardError
from evaluator.signatures.keys import make_key
from evaluator.view.live_run import LiveRun

TOP = Path(__file__).parents[2]


class Clock:
    """Seconds that a test advances."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


FILES = {"relu/a.py": "# right", "relu/b.py": "# wrong"}


def shown(page):
    return re.findall(r'<tbody id="s/relu/(\w+)" data-kind="(\w+)"', page.decode())


def test_the_page_follows_the_run(run, batch, hand_in, tmp_path):
    clock = Clock()
    live = LiveRun([tmp_path / "run"], clock)
    first = live.page()
    assert shown(first) == [("a", "correct"), ("b", "wrong_result")]
    assert f'data-version="{live.version()}"' in first.decode()
    hand_in({"relu/c.py": "# crashing", "relu/b.py": "# right now"})
    batch()
    clock.now_s += 0.5
    assert live.page() is first  # the server rests
    clock.now_s += 1.0
    assert live.version() != re.search(r'data-version="(\w+)"', first.decode())[1]
    assert shown(live.page()) == [("a", "correct"), ("b", "correct"), ("c", "runtime_error")]


def test_an_unchanged_run_is_read_once(run, tmp_path, monkeypatch):
    clock = Clock()
    live = LiveRun([tmp_path / "run"], clock)
    first = live.page()
    monkeypatch.setattr("evaluator.view.live_run.read_runs", lambda *_: pytest.fail("read again"))
    clock.now_s += 100
    assert live.page() is first


def test_pages_are_made_a_fifth_of_the_time_at_most(run, hand_in, tmp_path, monkeypatch):
    clock = Clock()
    live = LiveRun([tmp_path / "run"], clock)

    def slow(*arguments):
        clock.now_s += 10
        return [b"page"]

    monkeypatch.setattr("evaluator.view.live_run.run_page_of", slow)
    assert live.page() == b"page"
    before = live.version()
    (tmp_path / "run/cards/relu/a.json").unlink()
    clock.now_s += 39
    assert live.version() == before
    clock.now_s += 1
    assert live.version() != before


def test_a_run_that_vanished_is_an_error_and_comes_back(run, tmp_path):
    clock = Clock()
    live = LiveRun([tmp_path / "run"], clock)
    live.page()
    (tmp_path / "run").rename(tmp_path / "away")
    clock.now_s += 10
    with pytest.raises(CardError, match="is not a run folder"):
        live.page()
    (tmp_path / "away").rename(tmp_path / "run")
    assert shown(live.page())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["submissions"], "submissions is not a run folder"),
        (["run", "run"], "a run is named twice"),
        (["run", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_mistakes_are_told(run, arguments, message):
    assert run("view", *arguments) == 2
    assert message in run.err


def test_ctrl_c_ends_the_server(run, tmp_path):
    command = [sys.executable, str(TOP / "cli.py"), "view", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{24}/", address)
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert len(shown(answer.read())) == 2
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said.splitlines() == ["Ctrl-C ends the server", "ended"]


def test_only_cards_of_trusted_keys_are_on_the_page(run, tmp_path, monkeypatch, capsys):
    """A card without a signature counts as missing with --trusted, as in `report`."""
    pages = []
    monkeypatch.setattr("evaluator.view.server.ViewServer.serve_forever", lambda self: pages.append(self.live.page()))
    make_key(tmp_path / "mine", "me")
    for options in ([], ["--trusted", "mine.pub"]):
        assert cli.run(["view", "run", *options]) == 0, capsys.readouterr().err
    assert [{kind for _, kind in shown(page)} for page in pages] == [{"correct", "wrong_result"}, {"missing"}]


def test_the_live_page_has_references_only_from_a_named_folder(run, tmp_path, monkeypatch, capsys):
    manifest = tmp_path / "run/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"problems": str(TOP / "problems")}))
    pages = []
    monkeypatch.setattr("evaluator.view.server.ViewServer.serve_forever", lambda self: pages.append(self.live.page()))
    for options in ([], ["--problems", str(TOP / "problems")]):
        assert cli.run(["view", "run", *options]) == 0
    assert [b"<summary>reference</summary>" in page for page in pages] == [False, True]
    assert capsys.readouterr().err.count("--problems") == 1
