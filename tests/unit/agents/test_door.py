"""Ids of MCP requests, read from lines that may be no JSON: reading ends, and never returns another id."""

import json
import random
import time

import pytest

from evaluator.agents.server import id_in, id_of

SOURCE = 'x = {"id": 99, "method": "no"}\n\\"{[:,'
REQUEST = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"id": 8, "source": SOURCE}})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (REQUEST, 7),
        (REQUEST[:-3], 7),
        (REQUEST.replace("7", '"seven"'), "seven"),
        (REQUEST.replace(SOURCE[0], "\\ud800", 1), 7),
        ('{"method": "x", "params": ' + "[" * 200_000 + "]" * 200_000 + ', "id": 7}', 7),
        ('{"id": 7, "method": "x", "params": {"deep": ' + '{"id": 9, "a":' * 10_000, 7),
        ('{"params": {"id": 8}, "method": "x"}', None),
        ('{"result": {}, "id": 7}', None),
        ('{"id": "\\ud800", "method": "x"}', None),
        ('{"id": 1.5, "method": "x"}', None),
        ('{"id": true, "method": "x"}', None),
        ('{"id": null, "method": "x"}', None),
        ('{"id": ' + "9" * 5000 + ', "method": "x"}', None),
        ('{"id": ' + "9" * 100 + ', "method": "x"}', None),
        ('[{"id": 7, "method": "x"}]', None),
        ("", None),
        ('"', None),
    ],
)
def test_the_id_is_that_of_the_outermost_object_of_a_request(line, found):
    assert id_in(line) == found


def test_an_answer_of_the_client_has_no_answer():
    assert id_of({"id": 7}) == 7
    assert id_of({"id": 7, "result": {}}) is None
    assert id_of({"id": 7, "error": {}}) is None
    assert id_of({"id": 10**5000}) is None


def test_any_damage_leaves_the_id_or_none():
    chance = random.Random(5)
    for _ in range(3000):
        line = list(REQUEST)
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(35, len(line))  # behind the id and the method
            line[place : place + chance.randrange(3)] = chance.choices('"\\{}[]:,é\ud800 7', k=chance.randrange(3))
        found = id_in("".join(line))
        assert found in (7, None)


@pytest.mark.parametrize("piece", ['\\"', '"', "\\", "{", '":', "x", '{"id":', "\ud800"])
def test_the_time_is_in_proportion_to_the_line(piece):
    """A quadratic search would take hours."""
    started = time.process_time()
    id_in('{"id": 7, "method": "' + piece * (4_000_000 // len(piece)))
    assert time.process_time() - started < 60
