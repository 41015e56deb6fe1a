"""What a newcomer reads first agrees with the code: licence, versions, paths."""

import re
import tomllib
from pathlib import Path

from evaluator.version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]


def test_every_room_of_the_evaluator_is_in_the_contribution_guide():
    rooms = {f"evaluator/{path.parent.name}/" for path in CHECKOUT.glob("evaluator/*/__init__.py")}
    guide = (CHECKOUT / "CONTRIBUTING.md").read_text()
    assert {room for room in rooms if f"`{room}`" not in guide} == set()


def test_the_version_is_one():
    changelog = (CHECKOUT / "CHANGELOG.md").read_text()
    assert f"\n## [{__version__}] - " in changelog
    assert f"\nversion: {__version__}\n" in (CHECKOUT / "CITATION.cff").read_text()


def test_the_licence_is_the_one_that_the_metadata_names():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    (name,) = project["license-files"]
    assert "Apache License\n                           Version 2.0, January 2004" in (CHECKOUT / name).read_text()


def test_every_adapter_is_an_extra_that_ci_installs_and_tests():
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    adapters = {path.stem.partition("_")[0] for path in CHECKOUT.glob("examples/*.py")} - {"toy"}
    assert adapters
    assert adapters <= extras.keys()
    makefile = (CHECKOUT / "Makefile").read_text()
    (installed,) = re.findall(r"^\tfor each in (.*); do", makefile, re.MULTILINE)
    assert f"--target build/verifiers '{extras['verifiers'][0]}'" in makefile
    # Targets of their own install the other extras.
    assert {*installed.split(), "verifiers"} == extras.keys() - {"dev", "docs", "http", "triton"}
    assert "\nmake adapters\n" in (CHECKOUT / ".ci" / "run").read_text()
    page = (CHECKOUT / "docs" / "integrations.md").read_text()
    assert all(f"`{path.name}`" in page for path in CHECKOUT.glob("examples/*.py"))
