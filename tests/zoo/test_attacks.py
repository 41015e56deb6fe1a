"""Attacks at the judge are told with the tests that show their end."""

import pytest

from tests.zoo.attacks import attacks, is_defined

ATTACKS = attacks()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_names_tests_that_are_there(name):
    attack = ATTACKS[name]
    assert attack.tests
    assert [test for test in attack.tests if not is_defined(test)] == []
    assert all(text.strip() for text in (attack.attack, attack.now))


@pytest.mark.parametrize("test", ["tests/zoo/test_attacks.py::test_gone", "tests/no_such.py::test_x", ""])
def test_a_test_that_is_gone_is_seen(test):
    assert not is_defined(test)
