"""A ratchet: prose gets fewer pronouns, never more."""

from tests.prose import TOP, Count, counts, prose, total

LIMIT = 3.2
"""Pronouns in 100 words of docstrings and comments. The ratchet: lower it, never raise it."""


def test_pronouns_become_fewer():
    found = total(counts(TOP / "evaluator"))
    assert found.words > 10_000
    assert found.per_100 <= LIMIT


def test_directives_and_doctests_are_no_prose():
    source = '"""Doc.\n\n>>> what\n"""\nX = 1  # noqa: E501 - that\n# it waits\n'
    assert list(prose(source)) == ["Doc.\n\n", "# it waits"]
    assert Count(1, 2).plus(Count(1, 2)).per_100 == 50.0
