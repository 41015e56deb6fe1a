"""Numbers of a problem's full size in a submission's code."""

import ast

import pytest

from evaluator.emulator.frontend import hard_coded_sizes
from evaluator.emulator.frontend.hard_coded_sizes import hard_coded
from evaluator.protocol.submission_files import joined, place_of

FULL = {"batch": 4096, "dim": 393216, "kernel": 3, "name": "x", "flag": True, "shape": [128, 500]}
SMALL = {"batch": 64, "dim": 512, "kernel": 3, "name": "x", "flag": True, "shape": [16, 40]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = f(4096)", [(4096, 1)]),
        ("\nclass ModelNew:\n    def forward(self):\n        return g(393216)", [(393216, 4)]),
        ("n = f(1610612736)", [(4096 * 393216, 1)]),
        ("n = f(500)", [(500, 1)]),
        ("n = 4096\nblocks = n // 2\nf(blocks)", [(4096, 1)]),
        ("y = f(x) / 393216.0", [(393216, 1)]),
        ("batch = 4096\nclass ModelNew:\n    def forward(self, x):\n        return [batch for y in x]", [(4096, 1)]),
        ("batch = 4096\nclass ModelNew:\n    rows = batch\n    def __init__(self, batch):\n        pass", [(4096, 1)]),
        ("batch = 4096\ndef f(batch=batch):\n    return batch", [(4096, 1)]),
        ("src = '''\n__global__ void k() {\n  int n = 393'216;\n  m = 1 / 4096.0f;\n}'''", [(393216, 3), (4096, 4)]),
        ("src = f'''\n__global__ void k() {{\n  if (i < 4096u) x;\n}}'''", [(4096, 3)]),
        ("load(cpp_sources='int f() { return 0x1000; }')", [(4096, 1)]),
    ],
)  # fmt: skip
def test_numbers_of_the_full_size(source, expected):
    assert hard_coded(source, FULL, SMALL) == expected


def test_numbers_of_macros_count_in_every_line_of_the_macro():
    source = "src = '''\n#define ROWS 4096\n# define N(x) \\\\\n  (x * 393216)\n#include <4096.h>\nint x;\n'''"
    assert hard_coded(source, FULL, SMALL) == [(4096, 2), (393216, 4)]


@pytest.mark.parametrize(
    "source",
    [
        "batch = 4096\nshape = (batch, 393216)\ndef get_inputs():\n    return [torch.rand(*shape)]",
        "x = f(64, 512, 3, 128, True)",
        "# 4096 rows\nx = 1",
        '"""For 4096 rows;\n{ 393216 }\n"""\nx = 1',
        "def f():\n    '''Takes 4096;\n    rows {'''\n",
        "src = '''\n// 4096 rows\n/* 393216 */ int x;\n'''",
        'src = "expects 4096 rows"',
        "batch = 4096\ndim = 393216\ndef get_inputs():\n    return [torch.rand(batch, dim)]",
        "if __name__ == '__main__':\n    print(4096)",
        "x = 'a'\ndef broken(:",
        "batch = 4096\nclass ModelNew:\n    def __init__(self, batch):\n        self.batch = batch + 1",
        "batch = 4096\ndef forward(x):\n    batch = len(x)\n    return [batch for x in batch]",
        "batch = 4096\ndef outer(batch):\n    def inner():\n        return batch\n    return inner",
    ],
)
def test_numbers_that_do_not_count(source):
    assert hard_coded(source, FULL, SMALL) == []


def test_numbers_of_every_file_of_a_folder_count_in_lines_of_its_text():
    source = joined(
        [
            ("submission.toml", 'entry = "main.py"\n# 4096\n'),
            ("broken.py", "def (:\n4096\n"),
            ("main.py", "import helper\n# 4096\n"),
            ("helper.py", "x = f(4096)\nsrc = '''\n  m = 393216;\n'''\n"),
            ("k.cu", "// 4096\n__global__ void k() {\n  int n = 393216;\n}\n"),
            ("k.cuh", "constexpr int rows = 4096;\n#include <4096.h>\n#define N 393216\n"),
        ]
    )
    found = [(number, place_of(source, line).label) for number, line in hard_coded(source, FULL, SMALL)]
    assert found == [
        (4096, "helper.py, line 1"),
        (393216, "helper.py, line 3"),
        (393216, "k.cu, line 3"),
        (4096, "k.cuh, line 1"),
        (393216, "k.cuh, line 3"),
    ]


def test_block_sizes_and_the_small_sizes_own_numbers_do_not_count():
    full, small = {"rows": 1024, "columns": 2048, "depth": 768}, {"rows": 64, "columns": 16, "depth": 768}
    assert hard_coded("f(1024, 2048, 768, 64 * 16)", full, small) == [(2048, 1)]
    assert hard_coded("f(2048)", {"rows": 4096, "columns": 2048}, {"rows": 2048, "columns": 32}) == []
    assert hard_coded("f(4096 * 768)", {"a": 4096, "b": 4096}, {"a": 4096, "b": 4096}) == []


def test_a_constant_counts_where_something_needs_it_by_way_of_others():
    chain = "a = 4096\nb = a\nc = b\n"
    assert hard_coded(chain + "f(c)", FULL, SMALL) == [(4096, 1)]
    assert hard_coded(chain + "def get_inputs():\n    return c", FULL, SMALL) == []
    assert hard_coded("a = b\nb = a + 4096\ndef get_inputs():\n    return a", FULL, SMALL) == []


def test_a_long_chain_of_constants_is_followed_once(monkeypatch):
    """It was walked through as often as it has links: 30 000 of them took hours."""
    walked = []
    monkeypatch.setattr(hard_coded_sizes.ast, "walk", lambda node, walk=ast.walk: walked.append(node) or walk(node))
    chain = "".join(f"a{i} = a{i - 1}\n" for i in range(1, 500))
    assert hard_coded(f"a0 = 4096\n{chain}", FULL, SMALL) == []
    assert len(walked) < 20 * 500
