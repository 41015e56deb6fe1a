"""The confined child that reads C++ before the judge does: a text that is too much is told, and costs little."""

import pytest

from evaluator.emulator.frontend.front_end import FrontEnd, front_end
from evaluator.emulator.parsing import PARSER, parse_in_sandbox
from evaluator.emulator.parsing.parse_in_sandbox import read_for_emulator, too_much_to_split
from evaluator.protocol.frames import BuildRequest
from evaluator.sandbox import ForkServer

KERNEL = "__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"


@pytest.fixture(scope="module")
def spawn():
    with ForkServer(preload=(PARSER,)) as fork_server:
        yield fork_server.spawn


def limited(monkeypatch, **limits):
    for name in ("FRONT_END", "SPLIT"):
        monkeypatch.setattr(parse_in_sandbox, name, getattr(parse_in_sandbox, name)._replace(**limits))


def request(text):
    return BuildRequest(name="mine", cuda_sources=[text], with_cuda=True)


def test_a_long_text_of_usual_code_is_not_too_much(spawn):
    asked = request(KERNEL * 200)
    assert read_for_emulator(asked, spawn) == front_end(asked)


@pytest.mark.parametrize("reads", [read_for_emulator, too_much_to_split])
def test_a_text_of_any_length_is_read_by_a_child_first(spawn, reads):
    asked = []
    said = reads(request(KERNEL), lambda entry, limits: asked.append(entry) or spawn(entry, limits))
    assert said is None or isinstance(said, FrontEnd)
    assert len(asked) == 1


def test_a_text_that_cannot_be_split_is_not_too_much(spawn):
    assert too_much_to_split(request("#ifdef __CUDACC__\n#endif\n" + KERNEL), spawn) is None


def test_a_text_that_takes_too_long_is_told(spawn, monkeypatch):
    limited(monkeypatch, limit_s=0.5)
    assert (
        read_for_emulator(request(KERNEL * 40_000), spawn) == "the emulator needs more than 0.5 s to read the sources"
    )


def test_so_is_one_that_takes_too_long_to_split(spawn, monkeypatch):
    limited(monkeypatch, limit_s=0.1)
    said = too_much_to_split(request(KERNEL * 40_000), spawn)
    assert said == "the split needs more than 0.1 s to read the sources"


def test_the_headers_of_the_emulator_are_known_in_the_sandbox(spawn):
    text = "#include <cooperative_groups.h>\n#include <cudnn.h>\n" + KERNEL
    read = read_for_emulator(request(text), spawn)
    assert [lacking.construct for lacking in read.lacking] == ["the header cudnn.h"]


def test_what_takes_a_second_to_split_is_not_split(spawn, monkeypatch):
    monkeypatch.setattr(parse_in_sandbox, "_MOST_SPLIT_S", 0.0)
    assert "of a processor" in too_much_to_split(request(KERNEL), spawn)
