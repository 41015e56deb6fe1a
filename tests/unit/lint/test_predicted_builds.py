"""Which builds a text foretells: what PyTorch's `load_inline` would be asked for, or nothing."""

import ast
import inspect
import sys
from pathlib import Path

import msgspec
import pytest
from torch.utils import cpp_extension

from evaluator.findings import Code
from evaluator.lint.lint import look
from evaluator.lint.messages import MAX_BUILDS
from evaluator.lint.names import DottedNames
from evaluator.lint.predicted_builds import predicted_builds
from evaluator.protocol.frames import MAX_FRAME_BYTES, BuildRequest
from evaluator.protocol.submission_files import joined
from evaluator.runner.extensions import ExtensionLoader
from evaluator.runner.submission_module import read_in
from tests.corpus.entries import entries

HEAD = "import torch\nfrom torch.utils.cpp_extension import load_inline\n"


class Asked(Exception):
    """Stops a submission at its first build."""


class Listening:
    """A channel that hears the first request."""

    def send(self, frame):
        raise Asked(frame)

    def receive(self):
        raise AssertionError

    def take_descriptors(self):
        raise AssertionError


def foreseen(text: str) -> list[BuildRequest]:
    nodes = list(ast.walk(ast.parse(HEAD + text)))
    return predicted_builds(nodes, DottedNames(nodes))


def asked(text: str, monkeypatch) -> BuildRequest:
    """Run the text with the runner's own `load_inline`."""
    loader = ExtensionLoader(Listening(), Path("/nonexistent/extensions"))
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", loader.load_inline)
    with pytest.raises(Asked) as caught:
        exec(HEAD + text, {})
    return caught.value.args[0]


@pytest.mark.parametrize(
    "text",
    [
        "load_inline('e', 'int f();')",
        "load_inline(name='e', cpp_sources=['int f();'], cuda_sources='int f() {}', functions=['f'])",
        "S = 'int f();'\nT: str = S + '//'\nload_inline('e', [S, T], functions={'f': 'what it does'}, verbose=True)",
        "N = 4\nW = '4'\nload_inline('e', f'int f() {{ return {W}; }}', with_cuda=False)",
        "load_inline('e', 'int f();', extra_cuda_cflags=['-O3'] + ['--use_fast_math'], no_implicit_headers=True)",
        "load_inline('e', '', ('a', 'b'), None, 'f', extra_ldflags=['-lm'], with_pytorch_error_handling=False)",
        "def build():\n    return load_inline(name='e', cpp_sources='x', build_directory=str(1))\nbuild()",
        "load_inline('e', 'x', None, None, None, None, None, None, None, None, '/tmp', True, False)",
        "from torch.utils import cpp_extension as c\nc.load_inline('e', 'x', is_python_module=False)",
    ],
)
def test_what_is_foreseen_is_what_is_asked_for(text, monkeypatch):
    assert foreseen(text) == [asked(text, monkeypatch)]


INLINE = "load_inline('e', '#include \"{}\"', extra_include_paths=['csrc'], functions=['f'])\n"


@pytest.mark.parametrize("included", ["twice.h", "csrc/b/twice.h", "elsewhere.h"])
def test_the_headers_of_a_folder_are_foreseen(included, monkeypatch, tmp_path):
    """In the runner's order: by the parts of the paths, where `a-b` comes after `a/`."""
    code = HEAD + INLINE.format(included)
    headers = {"csrc/b/twice.h": "#define TWICE 2\n", "csrc/b-c/two.cuh": ""}
    files = {"model.py": f"{code}ModelNew = torch.nn.ReLU\n", "csrc/k.cu": "\n", **headers}
    text = joined([*files.items(), ("submission.toml", 'entry = "model.py"\n')])
    loader = ExtensionLoader(Listening(), tmp_path / "extensions")
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", loader.load_inline)
    monkeypatch.setattr("sys.path", [*sys.path])
    with pytest.raises(Asked) as caught:
        read_in(tmp_path, text, "", ["ModelNew"])
    request = caught.value.args[0]
    assert look(text).builds == [request]
    assert [header.name for header in request.headers] == ([] if included == "elsewhere.h" else list(headers))


def test_the_arguments_are_pytorchs_own_in_pytorchs_order(monkeypatch):
    pytorchs = list(inspect.signature(cpp_extension.load_inline).parameters)
    monkeypatch.setattr(cpp_extension, "load_inline", None)
    monkeypatch.setattr(cpp_extension, "load", None)
    ExtensionLoader(Listening(), Path("/nonexistent/extensions")).install()
    assert list(inspect.signature(cpp_extension.load_inline).parameters) == pytorchs
    assert cpp_extension.load_inline.__name__ == "load_inline"


@pytest.mark.parametrize(
    "text",
    [
        "S = 'a'\nS += 'b'\nload_inline('e', S)",
        "S = 'a'\nS = 'b'\nload_inline('e', S)",
        "def g(S):\n    load_inline('e', S)\nS = 'a'",
        "import os\nload_inline('e', os.name)",
        "load_inline('e', 'x'.strip())",
        "load_inline('e', 'x', **{})",
        "load_inline('e', 'x', *[])",
        "load_inline('e', 'x', unheard_of=1)",
        "load_inline(3, 'x')",
        "load_inline('e', 'x', functions={'f': 3})",
        "load_inline('e', 'x', sycl_sources='y')",
        "load_inline()",
        "load_inline('e', f'{1:>4}')",
        "A = [B, B]\nB = [A, A]\nload_inline('e', A)",
        "torch.load_inline('e', 'x')",
    ],
)
def test_what_the_text_does_not_tell_is_not_guessed(text):
    assert foreseen(text) == []


def test_a_text_that_is_twice_a_text_that_is_twice_a_text_takes_no_time():
    names = [f"A{level} = A{level + 1} + A{level + 1}" for level in range(60)]
    assert foreseen("\n".join([*names, "A60 = ''", "load_inline('e', A0)", "load_inline('f', 'x')"])) == []


def test_a_text_cannot_be_repeated_without_end():
    text = "S = '" + "x" * 300_000 + "'\n"
    assert len(foreseen(text + "load_inline('e', [S, S])\nload_inline('f', [S, S])")) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"load_inline('e', 0x{'f' * 5000})",
        f"load_inline('e', [0x{'f' * 5000}])",
        "load_inline('e', '\\ud800')",
        f"N = 0x{'f' * 3500}\nload_inline('e', 'x', extra_cflags=[{'N, ' * 9000}])",
        f"S = '{chr(0xE0001) * 6500}'\nload_inline('e', 'x', functions=[{', '.join(['[S, S]'] * 160)}])",
        f"S = '{chr(0xE0001) * 6500}'\nload_inline('e', 'x', functions=[{', '.join(['S'] * 160)}])",
        "S = '" + chr(0xE0001) * 4000 + "'\n"
        + "\n".join(f"load_inline('e{n}', 'x', extra_cflags=[{', '.join(['S'] * 60)}])" for n in range(9)),
    ],
)  # fmt: skip
def test_no_text_hides_what_else_was_noticed(text):
    """A lint child that dies of a text says nothing of the rest of it."""
    forward = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    looked = look(f"{HEAD}{forward}if 0:\n    " + text.replace("\n", "\n    "))
    assert Code.LIBRARY_IN_FORWARD in {each.code for each in looked.noticed}
    assert len(msgspec.msgpack.encode(looked)) < MAX_FRAME_BYTES


def test_a_few_builds_are_enough():
    text = "\n".join(f"load_inline('e{number}', 'x')" for number in range(9))
    assert [build.name for build in foreseen(text)] == ["e0", "e1", "e2", "e3"]
    assert len(look(HEAD + text).builds) == MAX_BUILDS


def test_every_submission_of_the_corpus_is_foreseen():
    texts = [entry.source for entry in entries() if "load_inline" in entry.source]
    assert len(texts) > 50
    assert all(look(text).builds for text in texts)
