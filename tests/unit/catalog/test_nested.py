"""Problems in folders below the folder of problems: names, short names, and the limits of the search."""

import shutil

import pytest

from evaluator.batch.runs.problems import Problems
from evaluator.catalog import find, find_problem, list_problems
from evaluator.errors import ProblemError, ProblemNotFound
from evaluator.records import SizeName
from tests.definitions import NORM, write_definition
from tests.unit.catalog.test_kernelbot_tasks import HELPERS, REFERENCE, TASK
from tests.unit.catalog.texts import KERNELBENCH_FILE


@pytest.fixture
def tree(tmp_path, own):
    """Problems of five layouts, each in folders of its own."""
    write_definition(tmp_path / "sol" / "problems" / "L1" / "001_norm")
    write_definition(tmp_path / "sol" / "problems" / "L2" / "001_norm")
    task = tmp_path / "tasks" / "pmpp_v2" / "shift_py"
    task.mkdir(parents=True)
    (task / "task.yml").write_text(TASK)
    (task / "reference.py").write_text(REFERENCE)
    (task.parent / "helpers.py").write_text(HELPERS)
    numbered = tmp_path / "checkout" / "bench" / "level1" / "19_ReLU.py"
    numbered.parent.mkdir(parents=True)
    numbered.write_text(KERNELBENCH_FILE)
    (tmp_path / "mine").mkdir()
    own(name="mine/scale")
    own(name="top")
    return tmp_path


def names(folder):
    return [problem.name for problem in list_problems(folder).problems]


def test_each_layout_is_listed_by_its_path(tree):
    listing = list_problems(tree)
    assert listing.broken == []
    assert sorted(problem.name for problem in listing.problems) == [
        "level1/19_ReLU",
        "mine/scale",
        "sol/problems/L1/001_norm",
        "sol/problems/L2/001_norm",
        "tasks/pmpp_v2/shift_py",
        "top",
    ]
    assert names(tree / "sol" / "problems") == ["L1/001_norm", "L2/001_norm"]


def test_a_definition_of_flashinfer_is_named_without_its_ending(tmp_path):
    folder = write_definition(tmp_path / "norms")
    for kind, file in (("definitions", "definition.json"), ("workloads", "workload.jsonl")):
        place = tmp_path / kind / "rms" / f"norm.{file.rpartition('.')[2]}"
        place.parent.mkdir(parents=True)
        shutil.move(folder / file, place)
    shutil.rmtree(folder)
    assert names(tmp_path) == ["definitions/rms/norm"]
    assert names(tmp_path / "definitions") == ["rms/norm"]
    assert names(tmp_path / "definitions" / "rms") == ["norm"]
    assert find_problem("norm", tmp_path / "definitions" / "rms").name == "norm"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("shift_py", "tasks/pmpp_v2/shift_py"),
        ("pmpp_v2/shift_py", "tasks/pmpp_v2/shift_py"),
        ("19_ReLU", "level1/19_ReLU"),
        ("level1/19", "level1/19_ReLU"),
        ("L2/001_norm", "sol/problems/L2/001_norm"),
        ("top", "top"),
    ],
)
def test_a_unique_short_name_means_the_problem(tree, name, full):
    assert find_problem(name, tree).name == full
    assert Problems(tree, (SizeName.SMALL,)).named(name).name == full


def test_an_ambiguous_short_name_is_refused_with_all_candidates(tree):
    both = ("sol/problems/L1/001_norm", "sol/problems/L2/001_norm")
    with pytest.raises(ProblemNotFound, match="'001_norm' may mean each of 2 problems") as caught:
        find_problem("001_norm", tree)
    assert caught.value.nearest == both
    assert caught.value.hint == f"did you mean {' or '.join(both)}?"
    assert Problems(tree, (SizeName.SMALL,)).named("001_norm") == f"'001_norm' may mean {' or '.join(both)}"


def test_two_checkouts_of_kernelbench_are_told_apart(tree):
    shutil.copytree(tree / "checkout", tree / "other")
    both = ("checkout/bench/level1/19_ReLU", "other/bench/level1/19_ReLU")
    with pytest.raises(ProblemNotFound) as caught:
        find_problem("level1/19", tree)
    assert caught.value.nearest == both
    assert find_problem("other/bench/level1/19", tree).name == both[1]


def test_a_folder_with_a_dot_keeps_its_name(tmp_path):
    folder = write_definition(tmp_path / "norm.v2")
    assert [find_problem(str(folder)).name, *names(tmp_path)] == ["norm.v2", "norm.v2"]


def test_a_name_at_the_top_goes_before_one_below(tree):
    shutil.copytree(tree / "top", tree / "mine" / "top")
    assert find_problem("top", tree).path == str(tree / "top")


def test_a_broken_one_is_named_and_hides_nothing(tree):
    write_definition(tree / "sol" / "problems" / "L1" / "002_bad", {**NORM, "extra": 1})
    listing = list_problems(tree)
    assert len(listing.problems) == 6
    assert [error.message.partition(": ")[0] for error in listing.broken] == [
        f"{tree}/sol/problems/L1/002_bad/definition.json"
    ]
    with pytest.raises(ProblemError, match="extra"):
        find_problem("002_bad", tree)


def test_what_is_no_problem_below_is_left_out(tree):
    (tree / "notes" / "old").mkdir(parents=True)
    (tree / "notes" / "old" / "reference.py").write_text(KERNELBENCH_FILE)  # a reference alone
    (tree / "notes" / "old" / "attempt.py").write_text(KERNELBENCH_FILE)  # in no level
    (tree / ".cache" / "hidden").mkdir(parents=True)
    shutil.copytree(tree / "top", tree / ".cache" / "hidden" / "top")
    shutil.copytree(tree / "top", tree / "top" / "inside" / "other")  # within a problem
    (tree / "linked").mkdir()
    (tree / "linked" / "link").symlink_to(tree / "mine")
    deep = tree / "1" / "2" / "3" / "4"
    deep.mkdir(parents=True)
    shutil.copytree(tree / "top", deep / "too_deep")
    listing = list_problems(tree)
    assert (len(listing.problems), listing.broken) == (6, [])
    shutil.copytree(tree / "top", deep.parent / "deep")
    assert find_problem("deep", tree).name == "1/2/3/deep"


def test_a_search_that_ends_at_its_limit_says_so(tree, monkeypatch):
    monkeypatch.setattr(find, "_MOST_ENTRIES", 3)
    listing = list_problems(tree)
    assert [problem.name for problem in listing.problems] == ["top"]
    (cut,) = listing.broken
    assert "files and folders were searched" in cut.message


def test_a_name_that_is_not_found_before_the_limit_may_exist(tree, monkeypatch):
    monkeypatch.setattr(find, "_MOST_ENTRIES", 3)
    for search in (find.find_problem, find.find_listed):
        with pytest.raises(ProblemError, match="files and folders were searched"):
            search("somewhere_else", tree)


def test_folders_with_unprintable_names_or_without_permission_are_not_searched(tree, monkeypatch):
    before = [problem.name for problem in list_problems(tree).problems]
    for name in ("a\x1b[31mred", "new\nline", "b\udcff"):
        shutil.copytree(tree / "top", tree / "more" / name)
    assert [problem.name for problem in list_problems(tree).problems] == before
    monkeypatch.setattr(find.os, "access", lambda folder, _: folder == tree)
    assert [problem.name for problem in list_problems(tree).problems] == ["top"]
