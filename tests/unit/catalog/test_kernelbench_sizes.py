"""The table of small sizes for KernelBench's files: well-formed, and fitting to a checkout where there is one."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

TABLE_FILE = Path(__file__).parents[3] / "evaluator" / "kernelbench_sizes.json"
CHECKOUT_VARIABLE = "WARPGRADE_KERNELBENCH"
FILES = {"level1": 100, "level2": 100, "level3": 50}
SAMPLE = {
    "level1/6_Matmul_with_large_K_dimension_": ([32, 32], "float32"),
    "level1/19_ReLU": ([64, 4096], "float32"),
    "level1/33_BatchNorm": ([4, 64, 32, 32], "float32"),
    "level1/51_Argmax_over_a_dimension": ([4, 255], "int64"),
    "level1/93_masked_cumsum": ([16, 32768], "float32"),
    "level1/95_CrossEntropyLoss": ([], "float32"),
    "level2/3_ConvTranspose3d_Sum_LayerNorm_AvgPool_GELU": ([2, 32, 8, 16, 16], "float32"),
    "level2/11_ConvTranspose2d_BatchNorm_Tanh_MaxPool_GroupNorm": ([4, 32, 17, 17], "float32"),
    "level2/62_Matmul_GroupNorm_LeakyReLU_Sum": ([64, 512], "float32"),
    "level3/9_ResNet18": ([2, 1000], "float32"),
    "level3/38_LSTMBidirectional": ([4, 10], "float32"),
    "level3/43_MinGPTCausalAttention": ([2, 64, 256], "float32"),
}


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(TABLE_FILE.read_text())
    return entries


@pytest.fixture(scope="module")
def checkout() -> Path:
    folder = os.environ.get(CHECKOUT_VARIABLE)
    if not folder:
        pytest.skip(f"{CHECKOUT_VARIABLE} does not name a checkout's KernelBench/ folder")
    return Path(folder)


def test_every_file_of_the_three_levels_has_one_entry(table: dict[str, Any]) -> None:
    named = {entry["name"] for entry in table.values()}

    numbers = {level: sorted(_number(name) for name in named if _level(name) == level) for level in FILES}

    assert numbers == {level: list(range(1, count + 1)) for level, count in FILES.items()}
    assert len(table) == sum(FILES.values())


def test_keys_are_sha256_sums(table: dict[str, Any]) -> None:
    assert [key for key in table if not re.fullmatch("[0-9a-f]{64}", key)] == []


def test_constants_are_positive_integers(table: dict[str, Any]) -> None:
    wrong = {
        f"{entry['name']}: {name}": value
        for entry in table.values()
        for name, value in entry["small"].items()
        for each in (value if isinstance(value, list) else [value])
        if not name.isidentifier() or type(each) is not int or each <= 0
    }

    assert wrong == {}


def test_each_entry_is_one_line_so_that_changes_can_be_read(table: dict[str, Any]) -> None:
    lines = TABLE_FILE.read_text().splitlines()

    assert len(lines) == len(table) + len("{}")
    assert all(f'"{key}"' in line for key, line in zip(table, lines[1:-1], strict=True))


def test_the_table_knows_every_file_of_the_checkout(table: dict[str, Any], checkout: Path) -> None:
    files = {
        hashlib.sha256(file.read_bytes()).hexdigest(): f"{level}/{file.stem}"
        for level in FILES
        for file in (checkout / level).glob("*.py")
    }

    known = {sha256: entry["name"] for sha256, entry in table.items()}

    assert files == known


@pytest.mark.filterwarnings("ignore")  # the files' own
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_runs_at_its_small_size(name: str, checkout: Path) -> None:
    torch = pytest.importorskip("torch")
    from evaluator.catalog import find_problem, sized_source
    from evaluator.records import SizeName

    module: dict[str, Any] = {"__name__": "reference"}
    exec(sized_source(find_problem(name, checkout), SizeName.SMALL), module)
    model = module["Model"](*module["get_init_inputs"]())
    with torch.no_grad():
        output = model(*module["get_inputs"]())

    shape, dtype = SAMPLE[name]
    assert (list(output.shape), output.dtype) == (shape, getattr(torch, dtype))
    assert output.isfinite().all()


def test_targets_of_cross_entropy_stay_integers_within_the_classes(checkout: Path) -> None:
    torch = pytest.importorskip("torch")
    from evaluator.catalog import find_problem, sized_source
    from evaluator.records import SizeName

    module: dict[str, Any] = {"__name__": "reference"}
    exec(sized_source(find_problem("level1/95_CrossEntropyLoss", checkout), SizeName.SMALL), module)
    predictions, targets = module["get_inputs"]()

    assert targets.dtype == torch.int64
    assert int(targets.max()) < predictions.shape[1]


def _level(name: str) -> str:
    return name.partition("/")[0]


def _number(name: str) -> int:
    return int(name.partition("/")[2].partition("_")[0])
