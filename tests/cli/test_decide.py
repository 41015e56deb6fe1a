"""`warpgrade problems decide`: decisions about bare files go into the cache and a table, and are made once."""

import errno
import json
from functools import partial

import pytest
from msgspec.structs import replace

from evaluator.admission import decisions
from evaluator.catalog import find_problem
from evaluator.catalog.lock import SizeLock
from evaluator.catalog.stored_locks import read_table, table_text
from evaluator.commands import main as cli
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import distribution_mix
from evaluator.judge.setup.distribution_mix import decided
from evaluator.records import Profile, SizeName
from tests.problem_text import RELU

CONSTRUCTOR = """\
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "bench" / "level1"
    folder.mkdir(parents=True)
    (folder / "10_Other.py").write_text(RELU.replace("relu", "tanh"))
    (folder / "2_Mine.py").write_text(RELU)
    (folder / "3_Broken.py").write_text(RELU.replace("torch.relu(x)", "x.no_such_method()"))
    return folder.parent


def run(capsys, *arguments):
    code = cli.run(["problems", "decide", *map(str, arguments)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def no_decision(monkeypatch):
    monkeypatch.setattr(distribution_mix, "decide", lambda *_: pytest.fail("it was decided again"))


def test_all_files_are_decided_in_order_and_a_broken_file_stops_none(tree, capsys, tmp_path):
    table = tmp_path / "table.json"
    code, out, _ = run(capsys, "--problems", tree, "--output", table)
    assert code == 1
    mine, broken, other = out.splitlines()
    assert mine.split() == ["level1/2_Mine", "full", "10", "profiles,", "2", "row", "sites"]
    assert "left out: " in broken
    assert "no_such_method" in broken
    assert other.startswith("level1/10_Other")
    assert [entry.name for entry in read_table(table).values()] == ["level1/2_Mine", "level1/10_Other"]
    assert table.read_text() == table_text(read_table(table))


def test_a_second_command_continues_the_first(tree, capsys, tmp_path, monkeypatch):
    table = tmp_path / "table.json"
    assert run(capsys, "level1/2", "--problems", tree, "--output", table)[0] == 0
    (tmp_path / "cache").rename(tmp_path / "another_cache")
    before = table.read_text()
    with monkeypatch.context() as patch:
        no_decision(patch)
        code, out, _ = run(capsys, "level1/2", "--problems", tree, "--output", table)
    assert (code, out.endswith("(known)\n"), table.read_text()) == (0, True, before)
    assert run(capsys, "level1/10", "--problems", tree, "--output", table)[0] == 0
    assert before.splitlines()[1] in table.read_text()
    assert len(read_table(table)) == 2


def test_sizes_are_merged_and_outdated_decisions_replaced(tree, capsys, tmp_path):
    table = tmp_path / "table.json"
    run(capsys, "level1/2", "--problems", tree, "--output", table)
    ((key, entry),) = read_table(table).items()
    full = entry.sizes[SizeName.FULL]
    table.write_text(table_text({key: replace(entry, sizes={SizeName.SMALL: full})}))
    run(capsys, "level1/2", "--problems", tree, "--output", table)
    assert list(read_table(table)[key].sizes) == [SizeName.FULL, SizeName.SMALL]
    sites = replace(entry.row_sites, elementwise=None)
    table.write_text(table_text({key: replace(entry, row_sites=sites)}))
    run(capsys, "level1/2", "--problems", tree, "--output", table)
    assert read_table(table)[key] == entry
    for outdated in ({"rules": entry.rules - 1}, {"small": {"rows": 2}}):
        table.write_text(table_text({key: replace(entry, sizes={SizeName.SMALL: full}, **outdated)}))
        run(capsys, "level1/2", "--problems", tree, "--output", table)
        assert read_table(table)[key] == entry


def test_a_decision_that_depends_on_the_weights_is_left_to_the_first_grade(tree, capsys, tmp_path, monkeypatch):
    weighted = RELU.replace("    def forward", f"{CONSTRUCTOR}\n    def forward").replace(
        "torch.relu(x)", "self.linear(x)"
    )
    (tree / "level1" / "4_Weighted.py").write_text(weighted)
    table = tmp_path / "table.json"
    uses = iter([[Profile.SMALL], [Profile.LARGE], [Profile.SMALL], [Profile.SMALL]])
    monkeypatch.setattr(distribution_mix, "decide", lambda *_: SizeLock(next(uses)))
    code, out, _ = run(capsys, "level1/4", "--problems", tree, "--output", table)
    assert (code, "depend on the weights" in out, table.exists()) == (1, True, False)
    assert run(capsys, "level1/4", "--problems", tree, "--output", table)[0] == 0
    (entry,) = read_table(table).values()
    assert (entry.sizes[SizeName.FULL].use, list(uses)) == ([Profile.SMALL], [])


def test_a_file_too_large_to_try_is_left_out(tree, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(distribution_mix, "decide", partial(distribution_mix.decide, limit_s=0.0))
    table = tmp_path / "table.json"
    code, out, _ = run(capsys, "level1/2", "--problems", tree, "--output", table)
    assert (code, "left out: too large to try" in out, table.exists()) == (1, True, False)


def test_without_a_table_a_grade_finds_the_decision_in_the_cache(tree, capsys, monkeypatch):
    code, out, _ = run(capsys, "level1/2", "--problems", tree, "--size", "small", "--json")
    (found,) = json.loads(out)
    assert (code, found["size"], len(found["profiles"]), found["why_not"]) == (0, "small", 10, None)
    problem = find_problem("level1/2", tree)
    smaller = replace(problem, sizes={**problem.sizes, SizeName.SMALL: {"rows": 64}})
    run(capsys, "level1/2", "--problems", tree)
    no_decision(monkeypatch)
    assert len(decided(Reference(smaller, SizeName.FULL, 1), SizeName.FULL).use) == 10


def test_problems_with_folders_and_broken_tables_are_refused(tree, capsys, tmp_path):
    code, _, err = run(capsys, "relu")
    assert (code, "problems validate relu --write" in err) == (2, True)
    code, _, err = run(capsys)
    assert (code, "--problems DIR" in err) == (2, True)
    table = tmp_path / "table.json"
    table.write_text("[]")
    code, out, err = run(capsys, "level1/2", "--problems", tree, "--output", table)
    assert (code, out, table.read_text()) == (2, "", "[]")
    assert "table.json" in err
    table.unlink()
    table.mkdir()
    assert run(capsys, "level1/2", "--problems", tree, "--output", table)[0] == 2


def test_a_table_that_cannot_be_written_is_an_error_with_its_name(tree, capsys, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(decisions, "write_whole", full)
    table = tmp_path / "table.json"
    code, _, err = run(capsys, "level1/2", "--problems", tree, "--output", table)
    assert (code, f"cannot write {table}: no space left on device" in err) == (2, True)
