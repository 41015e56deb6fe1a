"""A grader on a cluster: a fake cluster here, Ray in `test_ray.py`."""

import pytest

from tests.batch.fake_cluster import ADDRESS, FakeCluster, installed
from warpgrade import Candidate, Grader, InfraError, Status, UsageError

SOURCES = [f"# {number}\nclass ModelNew: ...\n" for number in range(8)]


@pytest.fixture(autouse=True)
def cluster():
    with installed():
        yield
    assert FakeCluster.entered == 0


def graded(sources, **options):
    with Grader(device="emulated", ray=ADDRESS, **options) as grader:
        assert FakeCluster.entered == 1
        return grader.grade_many([Candidate("relu", source) for source in sources]), grader.failure


def test_the_machines_of_a_cluster_make_the_grades():
    cards, failure = graded(SOURCES)
    assert [card.submission.source for card in cards] == SOURCES
    assert (FakeCluster.graded, failure) == (len(SOURCES), None)


def test_a_lost_machine_costs_no_grade():
    sources = [SOURCES[0] + "# power cut", *SOURCES[1:]]
    cards, failure = graded(sources)
    assert [card.submission.source for card in cards] == sources
    assert {card.status for card in cards} == {Status.CORRECT}
    assert (FakeCluster.lost, failure) == (1, None)


def test_a_waiting_machine_takes_over_the_only_grade():
    with Grader(device="emulated", ray=ADDRESS) as grader:
        grader.grade_many([Candidate("relu", source + "# both machines") for source in SOURCES[:2]])
        card = grader.submit("relu", SOURCES[0] + "# power cut").result(60)
    assert (card.status, FakeCluster.lost) == (Status.CORRECT, 1)


def test_without_machines_the_cards_name_the_failure():
    cards, failure = graded([SOURCES[0] + "# all power cuts", SOURCES[1] + "# all power cuts"])
    assert {card.status for card in cards} == {Status.INFRA_ERROR}
    assert isinstance(failure, InfraError)
    assert "no machine is left" in str(failure)


def test_a_grader_may_start_again():
    grader = Grader(device="emulated", ray=ADDRESS)
    for _ in range(2):
        with grader:
            assert grader.at_once == 4
            assert grader.grade("relu", SOURCES[0]).correct
        assert FakeCluster.entered == 0


def test_a_cluster_that_cannot_grade_is_told_at_the_start():
    with pytest.raises(InfraError, match="no Ray cluster answers"):
        Grader(device="emulated", ray="nowhere:1").start()
    with pytest.raises(InfraError, match="no CPUs"):
        Grader(device="emulated", ray=ADDRESS, jobs=99).start()


def test_a_cluster_and_the_ready_judge_exclude_each_other():
    with pytest.raises(UsageError, match="exclude"):
        Grader(device="emulated", ray=ADDRESS, ready=True)


def test_a_gpu_of_this_machine_is_no_choice_on_a_cluster():
    with pytest.raises(UsageError, match="Ray assigns the GPUs"):
        Grader(device="cuda", gpu="0", ray=ADDRESS).start()
