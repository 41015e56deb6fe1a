import tomllib
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from evaluator.catalog import list_problems
from evaluator.commands.machine import SCHEMAS
from evaluator.errors import CardError
from evaluator.files.card_files import MAX_CARD_BYTES, write_card
from evaluator.records import SCHEMA_VERSION
from evaluator.schema import SchemaName, check_card, schema, schema_bytes, schema_file
from tests import cards

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SchemaName)
def test_the_files_say_what_the_records_say(name):
    stored = schema_file(name, TOP / "schemas").read_bytes()
    assert stored == schema_bytes(name), "run: python -m evaluator.schema --write"


@pytest.mark.parametrize("name", SchemaName)
def test_a_schema_is_a_schema_and_says_which(name):
    made = schema(name)
    Draft202012Validator.check_schema(made)
    version = SCHEMA_VERSION if name is SchemaName.SCORECARD else 1
    assert made["$id"] == f"urn:warpgrade:schema:{name.value}:{version}"
    assert made["title"]
    assert made["description"]


def test_the_command_line_knows_every_schema():
    assert [name.value for name in SchemaName] == SCHEMAS


def test_every_shipped_problem_fits_its_schema():
    validator = Draft202012Validator(schema(SchemaName.PROBLEM))
    problems = list_problems().problems
    assert problems
    for problem in problems:
        validator.validate(tomllib.loads(Path(problem.path, "problem.toml").read_text()))


@pytest.mark.parametrize(
    "wrong",
    [
        'levle = 1\ntitle = "x"\nlevel = 1\ndescription = "x"\n[sizes.full]\n[sizes.small]\n',
        'title = "x"\nlevel = 9\ndescription = "x"\n[sizes.full]\n[sizes.small]\n',
        'title = "x"\nlevel = 1\ndescription = "x"\n[sizes.full]\n',
        'title = "x"\nlevel = 1\ndescription = "x"\n[sizes.full]\nn = [1]\n[sizes.small]\nn = [1]\n',
        'title = "x"\nlevel = 1\ndescription = "x"\nsplit = { x = -1 }\n[sizes.full]\n[sizes.small]\n',
    ],
)
def test_a_wrong_problem_does_not_fit(wrong):
    assert not Draft202012Validator(schema(SchemaName.PROBLEM)).is_valid(tomllib.loads(wrong))


@pytest.mark.parametrize(
    "card", [cards.card(), cards.wrong_card(), cards.uncompiled_card(), cards.crashed_card(), cards.unread_card()]
)
def test_a_written_card_is_valid(card, tmp_path):
    write_card(card, tmp_path / "card.json")
    assert check_card(tmp_path / "card.json") == []


def _changed(tmp_path, change):
    document = msgspec.to_builtins(cards.wrong_card())
    change(document)
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(document))
    return check_card(path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda card: card.pop("wall_s"), "the card: 'wall_s' is a required property"),
        (lambda card: card.update(extra=1), "the card: Additional properties are not allowed ('extra' was unexpected)"),
        (lambda card: card.update(seeds=[1]), "seeds: a list stands where an object or null belongs"),
        (
            lambda card: card["checks"][2]["tensors"][0].update(error_ratio="x"),
            "checks[2].tensors[0].error_ratio: a text stands where a number or null belongs",
        ),
        (
            lambda card: card["submission"].update(sha256="zz"),
            "submission.sha256: 'zz' does not have the form ^[0-9a-f]{64}$",
        ),
        (
            lambda card: card.update(schema_version=6),
            (
                "schema_version: this card is of version 6; this Warpgrade reads versions 1 to 5; a newer Warpgrade "
                "wrote it, so install that version"
            ),
        ),
    ],
)
def test_a_fault_is_named_with_its_place(change, fault, tmp_path):
    assert _changed(tmp_path, change) == [fault]


def test_a_wrong_status_is_told_what_is_allowed(tmp_path):
    (fault,) = _changed(tmp_path, lambda card: card.update(status="fine"))
    assert fault.startswith("status: 'fine' is none of build_error, correct,")


def test_many_faults_are_cut_short(tmp_path):
    faults = _changed(tmp_path, lambda card: card.update({f"extra{n}": n for n in range(3)}, checks=[1] * 50))
    assert len(faults) == 21
    assert faults[-1].endswith("more")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"status: correct", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "a list instead of an object"),
        (b'"correct"', "a text instead of an object"),
        (b"null", "null instead of an object"),
        (b"[" * 100_000, "is not JSON"),
        (b" " * (MAX_CARD_BYTES + 1), "larger than"),
    ],
    ids=["empty", "yaml", "bytes", "list", "text", "null", "deep", "large"],
)
def test_what_is_no_card_at_all_is_an_error(content, message, tmp_path):
    path = tmp_path / "card.json"
    path.write_bytes(content)
    with pytest.raises(CardError, match=message):
        check_card(path)


@pytest.mark.parametrize("depth", [100, 900, 950, 990])
def test_a_deep_value_is_a_fault_or_an_error_but_no_crash(depth, tmp_path):
    path = tmp_path / "card.json"
    path.write_text('{"status": ' + "[" * depth + "]" * depth + "}")
    try:
        faults = check_card(path)
    except CardError:
        return
    assert any(fault.startswith("status: ") for fault in faults)


@pytest.mark.parametrize("path", ["missing.json", ".", "/dev/zero"])
def test_what_cannot_be_read_is_an_error(path, tmp_path):
    with pytest.raises(CardError):
        check_card(tmp_path / path)
