"""The wheel, installed into a fresh environment, grades from an empty folder: nothing of the checkout is needed."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900
REACHES = """
import torch

for name in ("grade", "Grader"):
    try:
        exec(f"from warpgrade import {name}")
    except (ImportError, OSError):
        continue
    raise RuntimeError("Warpgrade can be imported")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def run(*argv, cwd, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WARPGRADE", "PYTHON"))}
    return subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=environment | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=CHECKOUT)
    assert made.returncode == 0, made.stderr
    (path,) = folder.glob("warpgrade-*.whl")
    return path


def test_it_holds_the_data_and_none_of_the_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("problems", "solutions"):
        shipped = {path.parent.name for path in (CHECKOUT / folder).glob("*/*.*")}
        assert shipped
        assert {name.split("/")[3] for name in names if name.startswith(f"evaluator/_data/{folder}/")} == shipped
    assert "evaluator/_data/schemas/scorecard.schema.json" in names
    assert "evaluator/runner/native/arena.cpp" in names
    assert {"warpgrade/py.typed", "evaluator/py.typed"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.startswith("warpgrade-")} == {"evaluator", "warpgrade"}


def lend_dependencies(python, wheel):
    """Let a fresh environment import the packages that the wheel requires: to copy PyTorch there takes a minute."""
    said = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=wheel.parent)
    ours, theirs = Path(pytest.__file__).parents[1], Path(said.stdout.strip())
    (name,) = theirs.glob("warpgrade-*.dist-info")
    for needed in importlib.metadata.Distribution.at(name).requires:
        if "extra ==" not in needed:
            importlib.metadata.version(re.match(r"[\w.-]+", needed)[0])
    # Lines of this file are not processed as those of a .pth: the checkout, installed there, is not seen.
    (theirs / "lent.pth").write_text(f"{ours}\n")


@pytest.mark.long
@pytest.mark.slow
def test_a_fresh_environment_grades_from_an_empty_folder(wheel, tmp_path):
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet", "install"]
    installed = run(*pip, "--no-deps", wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    lend_dependencies(python, wheel)
    empty = tmp_path / "empty"
    empty.mkdir()
    where = "from evaluator.paths import data_dir; print(data_dir('solutions') / 'relu')"
    solutions = Path(run(python, "-c", where, cwd=empty).stdout.strip())
    # The emulator's headers and runtime lie inside of the package, which a runner cannot see.
    for device, name in (("cpu", "cpp_plain"), ("emulated", "cuda_plain")):
        graded = run(
            tmp_path / "venv" / "bin" / "warpgrade",
            *("grade", "relu", solutions / f"{name}.py", "--device", device, "--json"),
            cwd=empty,
            WARPGRADE_CACHE=tmp_path / "cache",
        )
        assert graded.returncode == 0, graded.stderr + graded.stdout[:2000]
        card = json.loads(graded.stdout)
        assert card["status"] == "correct"
        assert card["build"]["units"][0]["cached"] is False
        assert str(CHECKOUT) not in graded.stdout + graded.stderr
    # A submission cannot import what grades it.
    card_file = tmp_path / "reaches.json"
    (tmp_path / "reaches.py").write_text(REACHES)
    words = ("grade", "relu", tmp_path / "reaches.py", "--device", "cpu", "--output", card_file)
    graded = run(tmp_path / "venv" / "bin" / "warpgrade", *words, cwd=empty)
    assert json.loads(card_file.read_text())["status"] == "correct", graded.stderr
    written = sorted(empty.rglob("*.json"))
    assert [path.stem for path in written] == ["cpp_plain", "cuda_plain"]
    checked = run(tmp_path / "venv" / "bin" / "warpgrade", "check-card", written[0], cwd=empty)
    assert checked.returncode == 0, checked.stdout + checked.stderr
