"""Seeds: fresh from the operating system, or those of the card that is replayed, in their order."""

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.judge.reference.input_distributions import PROFILES
from evaluator.judge.setup import seed_book as seeds_module
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.records import CancellingRows, Fill, Profile, RowSite, Seeds, SizeName, seed_text
from tests import cards

SIDES = ["reference_before", "submission", "reference_after"]


def first(count, seeds):
    return list(itertools.islice(seeds, count))


def replayed(**changes):
    timing = cards.timing()
    for number, name in enumerate(SIDES):
        seeds = [seed_text(1_000_000 * (number + 1) + n) for n in range(20)]
        timing = replace(timing, **{name: replace(getattr(timing, name), seeds=seeds)})
    return SeedBook(cards.card(**{"timing": timing} | changes))


def test_a_replay_checks_the_cards_inputs_and_then_fresh_ones():
    seeds = replayed(checks=[cards.check(n) for n in (3, 1, 2)])
    drawn = seeds.checks()
    assert drawn[:3] == [1003, 1001, 1002]
    assert len(set(drawn)) == len(drawn) == 5


def test_a_replay_of_few_checks_adds_the_distributions_that_the_card_lacks():
    mix = DistributionMix(PROFILES)
    first_checks = [replace(cards.check(0), seed=seed_text(mix.seed_for(profile))) for profile in PROFILES[:3]]
    for _ in range(20):
        book = SeedBook(cards.card(checks=first_checks, seeds=Seeds(seed_text(1), None, list(PROFILES))))
        book.settle(mix)
        assert Counter(map(book.distribution_mix.pick, book.checks())) == Counter(mix.checks())


@pytest.mark.parametrize(("name", "start"), [(name, 1_000_000 * n) for n, name in enumerate(SIDES, 1)])
def test_a_replay_times_each_side_on_its_own_inputs_and_then_fresh_ones(name, start):
    drawn = first(25, replayed().timed(name))
    assert drawn[:20] == list(range(start, start + 20))
    assert len(set(drawn)) == 25


@pytest.mark.parametrize("name", [name for name in SIDES if name != "submission"])
def test_the_references_own_calls_have_the_problems_own_values(name):
    seeds = SeedBook(None)
    seeds.settle(DistributionMix((Profile.LARGE, Profile.SIGNED_NORMAL)))
    assert {seeds.distribution_mix.pick(seed) for seed in first(100, seeds.timed(name))} == {Profile.AS_GIVEN}
    assert len({seeds.distribution_mix.pick(seed) for seed in first(200, seeds.timed("submission"))}) == 3


def test_a_replay_of_a_card_that_names_no_values_has_those_of_its_checks():
    kinds = [Profile.AS_GIVEN, Profile.LARGE, Profile.SIGNED_NORMAL]
    checks = [replace(cards.check(n), profile=kind) for n, kind in enumerate(kinds)]
    book = replayed(checks=checks, seeds=Seeds(weight=seed_text(1), replayed_from=None, profiles=[]))
    book.settle(DistributionMix(PROFILES))
    assert book.distribution_mix.use == (Profile.SIGNED_NORMAL, Profile.LARGE)


def test_a_replay_has_the_seeds_of_each_size():
    checks = [replace(cards.check(n), size=size) for n, size in enumerate([None, SizeName.AWKWARD, SizeName.SMALL])]
    seeds = replayed(checks=checks)
    assert first(2, seeds.checks(SizeName.SMALL)) == [1000, 1002]
    assert first(1, seeds.checks(SizeName.AWKWARD)) == [1001]


def test_a_replay_says_so():
    seeds = replayed(seeds=Seeds(weight=seed_text(2**63 - 1), replayed_from=None))
    assert seeds.weight == 2**63 - 1
    assert seeds.record() == Seeds(weight=seed_text(2**63 - 1), replayed_from="2026-01-02T03:04:05Z")


def test_each_stage_starts_from_the_first_seed():
    seeds = replayed()
    assert first(3, seeds.checks()) == first(3, seeds.checks()) == [1000, 1001, 1002]


@pytest.mark.parametrize("changes", [{"timing": None}, {"timing": None, "checks": [], "seeds": None}])
def test_what_a_card_does_not_have_is_drawn_fresh(changes):
    seeds, again = replayed(**changes), replayed(**changes)
    assert first(3, seeds.timed("submission")) != first(3, again.timed("submission"))
    if not changes.get("seeds", True):
        assert seeds.weight != again.weight
        assert first(3, seeds.checks()) != first(3, again.checks())


def test_a_grade_of_its_own_has_fresh_seeds_everywhere():
    seeds, other = SeedBook(None), SeedBook(None)
    assert seeds.weight != other.weight
    assert seeds.record() == Seeds(weight=seed_text(seeds.weight), replayed_from=None)
    drawn = [*set(seeds.checks()), *first(50, seeds.timed("submission")), *set(other.checks())]
    assert len(set(drawn)) == 60
    assert all(0 <= seed < 2**63 for seed in drawn)
    assert max(drawn) > 2**56


def test_one_of_the_checked_calls_after_the_first_comes_twice():
    for _ in range(20):
        drawn = SeedBook(None).checks()
        assert len(drawn) == 6
        assert len(set(drawn)) == 5
        assert drawn.count(drawn[0]) == 1


def test_where_nothing_is_timed_there_are_more_checked_calls_and_how_many_is_drawn(monkeypatch):
    numbers = set()
    for number in range(17):
        monkeypatch.setattr(seeds_module.secrets, "randbelow", lambda below, n=number: min(n, below - 1))
        drawn = _untimed(SeedBook(None))
        assert len(drawn) == len(set(drawn)) + 1
        numbers.add(len(drawn))
    assert numbers == set(range(16, 33))


def test_an_old_card_is_replayed_with_as_many_calls_as_are_made_today():
    assert len(_untimed(replayed(seeds=Seeds(weight=seed_text(1), replayed_from=None)))) == 16


def _untimed(book):
    return [*(needed := book.checks()), *book.more_checks(len(needed))]


def test_any_four_schedules_in_turn_have_every_fill_and_twenty_each_with_each():
    drawn = first(23, SeedBook(None).schedules())
    assert drawn[0].fill is Fill.NAN
    assert all({each.fill for each in drawn[i : i + 4]} == set(Fill) for i in range(20))
    assert len({(each.order, each.workers, each.fill) for each in drawn[:20]}) == 20


def test_the_checked_calls_have_every_profile():
    seeds = SeedBook(None)
    distribution_mix = DistributionMix(PROFILES)
    seeds.settle(distribution_mix)
    drawn = [distribution_mix.pick(seed) for seed in seeds.checks()]
    assert set(drawn) == set(Profile)
    assert drawn[0] is Profile.AS_GIVEN
    assert len(drawn) == len(PROFILES) + 5  # outliers thrice, as given twice, and one call repeated
    assert seeds.record().profiles == list(PROFILES)


def test_a_replay_has_the_cards_profiles_whatever_is_decided_now():
    only = [Profile.SMALL]
    seeds = replayed(seeds=Seeds(weight=seed_text(1), replayed_from=None, profiles=only))
    trials = SimpleNamespace()
    seeds.settle(DistributionMix(PROFILES, trials=trials))
    assert seeds.distribution_mix == DistributionMix((Profile.SMALL,), trials=trials)
    before = replayed(seeds=Seeds(weight=seed_text(1), replayed_from=None))
    before.settle(DistributionMix(PROFILES))
    assert before.distribution_mix.use == ()


def test_rows_cancel_in_a_replay_where_they_did_in_the_card():
    rows, columns = RowSite(0, 0, {"output": 0}), RowSite(0, 1, {"output": 1})
    mix = DistributionMix(PROFILES, row_sites=(rows, columns))
    first = SeedBook(None)
    first.settle(mix)
    assert first.record().cancelling_rows == [CancellingRows(0, 0), CancellingRows(0, 1)]
    for known, sites in (([], ()), ([CancellingRows(0, 1)], (columns,)), ([CancellingRows(2, 0)], ())):
        seeds = replayed(seeds=Seeds(weight=seed_text(1), replayed_from=None, cancelling_rows=known))
        seeds.settle(mix)
        assert seeds.distribution_mix.row_sites == sites


def test_calls_for_lack_of_proof_use_the_distributions_that_are_evidence():
    evidence = (Profile.AS_GIVEN, Profile.LARGE, Profile.OUTLIERS)
    trials = SimpleNamespace(is_evidence=evidence.__contains__)
    mix = DistributionMix((Profile.SMALL, Profile.LARGE), trials=trials)
    seeds = SeedBook(None)
    seeds.settle(mix)
    assert [mix.pick(seed) for seed in seeds.proofs()] == [Profile.AS_GIVEN, Profile.LARGE] * 6
    seeds.settle(mix._replace(trials=SimpleNamespace(is_evidence=lambda _: False)))
    assert list(seeds.proofs()) == []
