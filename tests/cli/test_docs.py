"""The pages for users: commands exist with their options, links lead somewhere, named source files exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from evaluator.commands.main import warpgrade

TOP = Path(__file__).parents[2]
PAGES = sorted([TOP / "README.md", TOP / "CONTRIBUTING.md", *(TOP / "docs").rglob("*.md")])
COMMAND = re.compile(r"^    (?:\$ |\.venv/bin/)?warpgrade ([a-z-].*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
SOURCE = re.compile(r"`((?:evaluator|tests|benchmarks|warpgrade|solutions|docs)/[\w./-]*)`")
SCRIPT = re.compile(r"python -m (benchmarks(?:\.\w+)+)|pytest [^`\n]*?\b(tests/[\w/.]+)")


def name(page):
    return str(page.relative_to(TOP).with_suffix(""))


def commands():
    for page in PAGES:
        for number, line in enumerate(COMMAND.findall(page.read_text())):
            if "…" not in line:
                yield pytest.param(shlex.split(line, comments=True), id=f"{name(page)}-{number}")


@pytest.mark.parametrize("words", list(commands()))
def test_a_command_in_the_docs_exists(words):
    command: click.Command = warpgrade
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    if command is warpgrade:
        known |= {"--version"}
    asked = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert asked <= known


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_leads_to_a_file_and_a_heading(page):
    for target, anchor in LINK.findall(page.read_text()):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path = page.parent / target
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, (target, anchor)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_source_file_in_the_docs_exists(page):
    assert [path for path in SOURCE.findall(page.read_text()) if "NAME" not in path and not (TOP / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_script_in_the_docs_exists(page):
    missing = []
    for benchmark, test in SCRIPT.findall(page.read_text()):
        path = test or benchmark.replace(".", "/") + ".py"
        if not (TOP / path).exists():
            missing.append(path)
    assert missing == []


def test_every_page_is_in_the_navigation():
    named = re.findall(r": (\S+\.md)$", (TOP / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(TOP / "docs")) for page in (TOP / "docs").rglob("*.md")}
    assert set(named) == pages
    assert len(named) == len(pages)
