"""Cards of earlier schema versions: read by every command that reads cards.

`tests/data/earlier_cards.jsonl` has a card of every form that was ever on main, valid under the schema of its commit.
The code of that commit wrote the card, except for the two oldest forms, which are later cards without later fields.
"""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

import warpgrade
from evaluator.batch.runs.run_folder import manifest_for, opened
from evaluator.cards.replay import changed_circumstances, differences
from evaluator.commands import main as cli
from evaluator.errors import CardError, UsageError
from evaluator.files.card_files import FIRST_VERSION, card_of, in_current_form, read_card, write_card
from evaluator.grade_options import GradeOptions
from evaluator.grading.resolved_request import GradeArguments, request_for
from evaluator.records import SCHEMA_VERSION, DeviceKind, Status
from evaluator.report.card.feedback import feedback
from evaluator.schema import SchemaName, faults_of, schema
from evaluator.signatures.keys import encoded, make_key, signing_key
from evaluator.signatures.signing import State, _message, signature_of
from tests import cards

LINES = list(map(json.loads, Path(__file__, "../../data/earlier_cards.jsonl").resolve().read_text().splitlines()))
NAMES = [line["commit"] for line in LINES]
DOCUMENTS = [line["card"] for line in LINES]
FORM = "7b1623772a188629"
"""Hash of the names and types of a card's fields in version `SCHEMA_VERSION`."""

each_card = pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)


def written(document, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def form(node):
    """The schema without its prose."""
    if isinstance(node, dict):
        return {name: form(each) for name, each in node.items() if isinstance(each, dict) or name not in _PROSE}
    return [form(each) for each in node] if isinstance(node, list) else node


_PROSE = {"description", "title", "$id"}


def test_a_card_with_another_form_has_another_version():
    found = form(schema(SchemaName.SCORECARD))
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
    assert digest == FORM, (
        f"the form of a card changed to {digest}. Once version {SCHEMA_VERSION} is on main: raise SCHEMA_VERSION, add "
        "a card of the earlier form to tests/data/earlier_cards.jsonl, and mend in_current_form. Then renew FORM."
    )


def test_there_is_a_card_of_each_earlier_version():
    assert {each["schema_version"] for each in DOCUMENTS} == set(range(FIRST_VERSION, SCHEMA_VERSION))


@each_card
def test_an_earlier_card_is_read_shown_and_written(document, tmp_path, capsys):
    path = written(document, tmp_path / "card.json")
    card = read_card(path)
    assert (card.schema_version, card.status) == (document["schema_version"], Status.CORRECT)
    assert card.timing.submission.samples_ms == document["timing"]["submission"]["samples_ms"]
    assert cli.run(["show", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"{document['submission']['name']} for relu" in said
    remark = f"schema version {card.schema_version}: intervals followed earlier rules"
    assert (remark in said) is (card.timing.speedup_low is not None)
    assert feedback(card).splitlines()[1].startswith("Verdict: correct.")
    assert cli.run(["check-card", str(path)]) == 0
    assert f"of {remark}" in capsys.readouterr().out
    again = tmp_path / "again.json"
    write_card(card, again)
    assert read_card(again) == card
    assert cli.run(["check-card", str(again)]) == 0


@each_card
def test_a_grade_of_an_earlier_card_can_be_replayed(document, tmp_path):
    path = written(document, tmp_path / "card.json")
    arguments = GradeArguments(replay=path, changed_problem=True)
    request = request_for(arguments, {"device": "cpu"})
    assert request.replay.seeds.weight == document["seeds"]["weight"]
    assert request.submission.source == document["submission"]["source"]
    with pytest.raises(UsageError, match="has changed since this scorecard"):
        request_for(arguments._replace(changed_problem=False), {})
    today = msgspec.structs.replace(cards.card(checks=request.replay.checks), schema_version=SCHEMA_VERSION)
    assert differences(request.replay, today) == []
    assert "the version of cards" in changed_circumstances(request.replay, today)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(Path("run"), manifest_for(GradeOptions(DeviceKind.CPU), "submissions")) as folder:
        for document in DOCUMENTS:
            written(document, folder.cards / f"relu/{document['submission']['name']}.json")
    return folder


def test_a_run_of_earlier_cards_is_reported_and_compared(run, tmp_path, capsys):
    files = ["--html", "page.html", "--junit", "junit.xml", "--submissions", "rows.csv"]
    assert cli.run(["report", "run", *files, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert sum(each["total"]["samples"] for each in document["devices"]) == len(DOCUMENTS)
    assert {each["total"]["correct"]["value"] for each in document["devices"]} == {1.0}
    assert all(name in Path("page.html").read_text() for name in NAMES)
    assert cli.run(["compare", "run", "run", "--json", "--html", "compared.html"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert (compared["pairs"], compared["broken"]) == (len(DOCUMENTS), [])


def test_an_earlier_card_written_again_has_no_broken_signature(tmp_path):
    key = make_key(tmp_path / "key", "me")
    document = DOCUMENTS[-2] | {"schema_version": 1}
    blank = {"algorithm": "ed25519", "public_key": encoded(key.raw), "name": "me", "value": ""}
    value = signing_key(tmp_path / "key", sandboxed=True).sign(
        _message(json.dumps(document | {"signature": blank}).encode())
    )
    content = json.dumps(document | {"signature": blank | {"value": encoded(value)}}).encode()
    assert signature_of(content).state is State.INTACT
    path = tmp_path / "card.json"
    path.write_bytes(content)
    card = warpgrade.read_card(path)
    assert card.signature is not None
    card.write(tmp_path / "again.json")
    assert signature_of((tmp_path / "again.json").read_bytes()).state is State.UNSIGNED


def test_a_card_that_quotes_spot_checks_is_refused_with_what_to_do(tmp_path, capsys):
    document = next(each for each, line in zip(DOCUMENTS, LINES, strict=True) if line["commit"] == "d8141c9")
    windows = document["timing"]["submission"]["windows"] | {"spot_quoted": True}
    submission = document["timing"]["submission"] | {"windows": windows}
    quoted = document | {"timing": document["timing"] | {"submission": submission}}
    with pytest.raises(CardError, match="a rule that was withdrawn") as caught:
        card_of(json.dumps(quoted).encode(), Path("card.json"))
    assert "grade the submission again" in caught.value.hint
    assert cli.run(["check-card", str(written(quoted, tmp_path / "card.json"))]) == 2
    assert capsys.readouterr().out.startswith("timing: the card quotes times of spot checks")


@pytest.mark.parametrize("version", [0, -1, SCHEMA_VERSION + 1, 10**30])
def test_a_card_of_an_unknown_version_is_refused_with_the_known_ones(version):
    content = json.dumps(DOCUMENTS[-1] | {"schema_version": version}).encode()
    with pytest.raises(CardError, match=f"this Warpgrade reads versions 1 to {SCHEMA_VERSION}") as caught:
        card_of(content, Path("card.json"))
    assert ("a newer Warpgrade wrote it" in caught.value.message) is (version > SCHEMA_VERSION)
    assert len(faults_of(content, Path("card.json"))) == 1


@pytest.mark.parametrize("level", [-1, 10**9, 10**30])
def test_a_card_of_an_impossible_level_is_broken(level, run, capsys):
    document = DOCUMENTS[-1] | {"problem": DOCUMENTS[-1]["problem"] | {"level": level}}
    written(document, run.cards / "relu/another.json")
    assert cli.run(["report", "run", "--json"]) == 3
    said = capsys.readouterr().err
    assert "another.json is not a scorecard" in said
    assert "problem.level" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("field", ["checks", "timing", "baselines"])
@pytest.mark.parametrize("value", [7, "x", [7], {"submission": 7}, {"submission": {"windows": 7}}, [{"samples": 7}]])
def test_an_earlier_card_may_hold_anything(field, value):
    document = DOCUMENTS[0] | {field: value}
    assert in_current_form(document).keys() >= document.keys()
    with pytest.raises(CardError, match="is not a scorecard"):
        card_of(json.dumps(document).encode(), Path("card.json"))
    assert faults_of(json.dumps(document).encode(), Path("card.json"))
