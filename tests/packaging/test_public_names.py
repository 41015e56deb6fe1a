"""Programs import `warpgrade`: its names are written down here, and nothing else is visible."""

import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import warpgrade
from evaluator import errors
from evaluator.version import __version__


def test_every_visible_name_is_exported():
    visible = [name for name in dir(warpgrade) if not name.startswith("_")]
    assert visible == [name for name in sorted(warpgrade.__all__) if name != "__version__"]
    assert warpgrade.__version__ == __version__


def test_what_grade_returns_and_raises_is_exported():
    exported = [getattr(warpgrade, name) for name in warpgrade.__all__]
    fields = typing.get_type_hints(warpgrade.Scorecard)
    for field in ("status", "reason", "build", "checks", "timing"):
        (kind,) = {*typing.get_args(fields[field]), fields[field]} & set(exported)
        assert kind.__module__.startswith("evaluator.records")
    documented = inspect.getdoc(warpgrade.grade).partition("Raises:")[2]
    raised = [kind for name, kind in vars(errors).items() if inspect.isclass(kind) and f"{name}:" in documented]
    assert raised
    assert set(raised) <= set(exported)


def test_importing_it_neither_imports_torch_nor_starts_anything():
    program = "import sys, warpgrade, threading; print('torch' in sys.modules, threading.active_count())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False 1\n"


def test_every_exported_name_is_on_the_reference_page():
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    listed = re.findall(r"^        - (\w+)$", page, re.MULTILINE)
    modules = {"rewards"}
    named = {*warpgrade.__all__, *warpgrade.rewards.__all__} - modules - {"__version__"}
    assert sorted(listed) == sorted(named)
    assert all(f"\n::: warpgrade.{name}\n" in page for name in modules)
    assert all(inspect.getdoc(getattr(warpgrade, name)) for name in warpgrade.__all__ if name != "__version__")
