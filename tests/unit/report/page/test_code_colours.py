"""Colours of code in the pages' script: no text changes, and the time is in proportion to the text's length."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from evaluator.report import page
from tests.cards import SOURCE
from tests.unit.report.page.reader import HOSTILE_NAMES

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
SCRIPT = Path(page.__file__).parent / "templates" / "code_colours.js"
READ = "const read = (source) => Array.from(tokens(source, PYTHON));"
CUDA = 'x = r"""#include <torch/extension.h>\n__global__ void f(int n) { // a "b\n  return 1.5f; }\n"""\nprint(x)\n'
HARD = (
    '"' + "%" + "0" * 100_000,
    "int f()" + " " * 100_000 + "x",
    '"""' + '\n\\"""' * 20_000 + "\\",
    "'''\\" * 20_000,
    '"""__global__' + "/*" * 50_000,
    '"""__global__' + " " * 100_000 + "#",
    "@" * 100_000,
    "0x" * 50_000,
    "bB" * 50_000,
    "\\\n" * 50_000,
)


def tokens_of(*sources):
    """Return the pairs of class and text of each source."""
    program = f"{SCRIPT.read_text()}\n{READ}\nprocess.stdout.write(JSON.stringify({json.dumps(sources)}.map(read)));"
    done = subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def spans(source):
    (found,) = tokens_of(source)
    return [(kind, text) for kind, text in found if kind]


def test_the_texts_together_are_the_source():
    sources = [SOURCE, CUDA, "", "\n", *HOSTILE_NAMES, *HARD]
    found = tokens_of(*sources)
    assert ["".join(text for _, text in each) for each in found] == sources
    assert {kind for each in found for kind, _ in each} <= {"", *"ckmsf"}


def test_python_has_its_colours():
    assert spans("@cache\ndef f(x):  # why\n    return g(x) + 0x1F if None else 'a'\n") == [
        ("f", "@cache"),
        ("k", "def"),
        ("f", "f"),
        ("c", "# why"),
        ("k", "return"),
        ("f", "g"),
        ("m", "0x1F"),
        ("k", "if"),
        ("k", "None"),
        ("k", "else"),
        ("s", "'a'"),
    ]


def test_cuda_in_a_string_has_colours_of_its_own():
    found = spans(CUDA)
    assert found[:3] == [("s", 'r"""'), ("k", "#include"), ("k", "__global__")]
    assert ("c", '// a "b') in found
    assert ("m", "1.5f") in found
    assert found[-2:] == [("s", '"""'), ("f", "print")]


def test_a_string_without_cuda_is_one_string():
    assert spans('"""return 1"""') == [("s", '"""return 1"""')]


def test_a_string_without_an_end_reaches_to_the_end():
    assert spans('"""a\nb') == [("s", '"""a\nb')]
    assert spans('"""a\\') == [("s", '"""a')]
    assert spans("'a\nb = 1") == [("s", "'a"), ("m", "1")]
