"""Ids of MCP requests that the package cannot read."""

import json

import pytest

from evaluator.agents.server import id_in, id_of

SOURCE = 'x = {"id": 99, "method": "no"}\n'
REQUEST = json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": {"id": 8, "source": SOURCE}, "id": 7})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (REQUEST.replace("7", '"seven"'), "seven"),
        (REQUEST.replace(SOURCE[0], "\\ud800", 1), 7),
        (REQUEST[:-3], None),
        ('{"method": "x", "params": ' + "[" * 200_000 + "]" * 200_000 + ', "id": 7}', None),
        ('{"params": {"id": 8}, "method": "x"}', None),
        ('{"id": "\\ud800", "method": "x"}', None),
        ('{"id": 1.5, "method": "x"}', None),
        ('{"id": true, "method": "x"}', None),
        ('{"id": ' + "9" * 5000 + ', "method": "x"}', None),
        ('{"id": ' + "9" * 100 + ', "method": "x"}', None),
        ('[{"id": 7, "method": "x"}]', None),
        ("", None),
    ],
)
def test_the_id_is_that_of_the_outermost_object_of_a_request(line, found):
    assert id_in(line) == found


def test_an_answer_of_the_client_has_no_answer():
    assert id_of({"id": 7}) == 7
    assert id_of({"id": 7, "result": {}}) is None
    assert id_of({"id": 7, "error": {}}) is None
