"""Tensors of safetensors files: values, and files that a stranger broke."""

import json

import pytest
import torch

from evaluator.errors import ProblemError
from evaluator.tensor_files import ROOT_VARIABLE, stored_tensor

VALUES = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
DTYPE = torch.bfloat16


def written(path, values=VALUES, **changed):
    """Write a file with one tensor, `x`, behind eight other bytes."""
    data = values.contiguous().view(torch.uint8).numpy().tobytes()
    entry = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [8, 8 + len(data)], **changed}
    header = json.dumps({"__metadata__": {"made": "by"}, "x": entry}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8) + data)


def read(folder, file="data/a.safetensors", key="x", shape=(2, 3), dtype=DTYPE):
    return stored_tensor(str(folder), file, key, shape, dtype)


def test_a_tensor_of_a_file_beside_or_above_the_problem(tmp_path):
    for place in ("data/a.safetensors", "one/two/data/a.safetensors"):
        written(tmp_path / place)
        assert read(tmp_path / "one" / "two").equal(VALUES)


def test_a_tensor_of_the_folder_named_by_the_environment(tmp_path, monkeypatch):
    written(tmp_path / "set" / "a.safetensors")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "set"))
    assert read(tmp_path / "elsewhere").equal(VALUES)


def test_each_call_gives_new_memory(tmp_path):
    written(tmp_path / "data" / "a.safetensors")
    read(tmp_path).zero_()
    assert read(tmp_path).equal(VALUES)


def test_an_empty_tensor(tmp_path):
    written(tmp_path / "data" / "a.safetensors", torch.empty(0, 3, dtype=DTYPE))
    assert read(tmp_path, shape=(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": [3, 2]}, "x: BF16 of shape [3, 2], expected bfloat16 of shape [2, 3]"),
        ({"dtype": "F16"}, "x: F16 of shape [2, 3], expected bfloat16"),
        ({"data_offsets": [8, 18]}, "not as many as its shape needs"),
        ({"data_offsets": [100, 112]}, "not inside of the file"),
        ({"data_offsets": [-4, 8]}, "not in the safetensors format"),
        ({"shape": [2, 2**60]}, "not in the safetensors format"),
    ],
)
def test_a_header_that_does_not_fit(tmp_path, changed, message):
    written(tmp_path / "data" / "a.safetensors", **changed)
    with pytest.raises(ProblemError) as refused:
        read(tmp_path)
    assert message in refused.value.message


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 8, b"\xff" * 64, b"\x02" + bytes(7) + b"[]", b"\x01" + bytes(7) + b"{", bytes(8)]
)
def test_a_file_of_another_format(tmp_path, data):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.safetensors").write_bytes(data)
    with pytest.raises(ProblemError, match="safetensors"):
        read(tmp_path)


@pytest.mark.parametrize("file", ["/etc/passwd", "../a.safetensors", "data/../../a", "a\0b"])
def test_a_path_that_leads_elsewhere(tmp_path, file):
    with pytest.raises(ProblemError, match="is no path below a folder of data"):
        read(tmp_path, file)


def test_a_missing_file_and_a_missing_tensor(tmp_path):
    with pytest.raises(ProblemError, match="does not exist") as refused:
        read(tmp_path)
    assert ROOT_VARIABLE in refused.value.hint
    written(tmp_path / "data" / "a.safetensors")
    with pytest.raises(ProblemError, match="no tensor is named 'y'; tensors: __metadata__, x"):
        read(tmp_path, key="y")
