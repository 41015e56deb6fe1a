"""Colours of code: the scanner changes no text, and takes time in proportion to the text's length."""

import sys

import pytest

from evaluator.report.page import code_colours
from evaluator.report.page.code_colours import coloured
from tests.cards import SOURCE
from tests.unit.report.page.reader import HOSTILE_NAMES, Reader

CUDA = 'x = r"""#include <torch/extension.h>\n__global__ void f(int n) { // a "b\n  return 1.5f; }\n"""\nprint(x)\n'
STRAY_QUOTES = '"""' + '\n\\"""' * 300 + "\\"
HARD = (
    '"' + "%" + "0" * 3000,
    "int f()" + " " * 3000 + "x",
    STRAY_QUOTES,
    "'''\\" * 700,
    '"""__global__' + "/*" * 1500,
    '"""__global__' + " " * 3000 + "#",
    "@" * 3000,
    "0x" * 1500,
    "bB" * 1500,
    "\\\n" * 1500,
)


@pytest.mark.parametrize("source", [SOURCE, CUDA, "", "\n", *HOSTILE_NAMES, *HARD])
def test_the_text_between_the_tags_is_the_source(source):
    reader = Reader(coloured(source))
    assert reader.text.replace("\x00", "") == source.replace("\x00", "")
    assert reader.names <= {"span"}
    assert {attributes["class"] for _, attributes in reader.tags} <= set("ckmsf")


def spans(source):
    pieces = str(coloured(source)).split('<span class="')[1:]
    return [(piece[0], Reader(piece[3:].partition("</span>")[0]).text) for piece in pieces]


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


@pytest.mark.parametrize("scanner", [code_colours._PYTHON, code_colours._CUDA])
def test_no_repeat_of_the_scanner_backtracks(scanner):
    """A repeat without a bound is possessive; a bounded one has at most ten characters."""
    constants = sys.modules.get("re._constants") or pytest.skip("the parser of expressions has another place")
    parsed = sys.modules["re._parser"].parse(scanner.pattern, scanner.flags & ~32)

    def check(tree):
        for kind, content in tree:
            if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
                assert content[1] <= 10, "a repeat may backtrack"
                check(content[2])
            elif kind is constants.POSSESSIVE_REPEAT:
                check(content[2])
            elif kind is constants.SUBPATTERN:
                check(content[-1])
            elif kind is constants.BRANCH:
                for branch in content[1]:
                    check(branch)
            elif kind is constants.ASSERT_NOT:
                check(content[1])

    check(parsed)


def test_an_alternative_fails_early():
    """A quote that opens nothing may not read the rest of the source: once for each such quote would be quadratic."""
    for opening in ('"""', "'''"):
        found = code_colours._PYTHON.match(opening + "a" * 100 + "\\")
        assert found is not None
        assert len(found[0]) == 103
    comment = code_colours._CUDA.match("/*" + "a" * 100)
    assert comment is not None
    assert len(comment[0]) == 102
