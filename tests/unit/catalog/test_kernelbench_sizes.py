"""The table of small sizes for KernelBench's files is well-formed; a program under `benchmarks` runs the files."""

import json
import re
from pathlib import Path

TABLE_FILE = Path(__file__).parents[3] / "evaluator" / "kernelbench_sizes.json"
TABLE = json.loads(TABLE_FILE.read_text())
FILES = {"level1": 100, "level2": 100, "level3": 50}


def test_every_file_of_the_three_levels_has_one_entry():
    numbers = {level: [] for level in FILES}
    for entry in TABLE.values():
        level, _, file = entry["name"].partition("/")
        numbers[level].append(int(file.partition("_")[0]))
    assert {level: sorted(found) for level, found in numbers.items()} == {
        level: list(range(1, count + 1)) for level, count in FILES.items()
    }


def test_keys_are_hashes_and_constants_are_positive_integers():
    for key, entry in TABLE.items():
        assert re.fullmatch("[0-9a-f]{64}", key)
        for name, value in entry["small"].items():
            assert name.isidentifier()
            assert all(type(each) is int and each > 0 for each in (value if isinstance(value, list) else [value]))


def test_each_entry_is_one_line_so_that_changes_can_be_read():
    lines = TABLE_FILE.read_text().splitlines()
    assert len(lines) == len(TABLE) + len("{}")
    assert all(f'"{key}"' in line for key, line in zip(TABLE, lines[1:-1], strict=True))
