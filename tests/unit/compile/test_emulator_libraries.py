"""The emulator's own parts, with a compiler that is a function of the test."""

import threading

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile import own_libraries
from evaluator.compile.own_libraries import PRECOMPILED, precompilation
from evaluator.emulator.frontend.build_ladder import SUPPORT, StepName
from evaluator.errors import JudgeFailed
from evaluator.toolchain import host_compiler
from tests.unit.compile.tool_results import ended

pytestmark = pytest.mark.usefixtures("named_compilers")

HEADER, LATER_HEADER = PRECOMPILED[StepName.BOUND], PRECOMPILED[StepName.LIGHT]


class Tool:
    """Stands in for the sandboxed ninja: writes some of what it is asked for, and remembers all of it."""

    def __init__(self, *can: str) -> None:
        self.asked = []
        self._can = can

    def __call__(self, argv, *, work, timeout_s, limits, readable=()):
        lines = (work / "build.ninja").read_text().splitlines()
        self.asked.append({line.split()[1].rstrip(":") for line in lines if line.startswith("build ")})
        for name in self._can:
            if name in self.asked[-1]:
                (work / name).write_bytes(b"made " + name.encode())
        return ended(0 if self._can else 1)


@pytest.fixture
def cache(tmp_path):
    return BuildCache(tmp_path)


def test_the_first_use_builds_what_every_submission_needs_side_by_side(cache):
    tool = Tool("runtime.so", HEADER, SUPPORT)
    assert own_libraries.build_runtime(tool, cache) == b"made runtime.so"
    header = own_libraries.precompiled_headers(tool, cache, StepName.BOUND)
    assert header.read_bytes() == b"made " + HEADER.encode()
    assert own_libraries.binding_support(tool, cache).read_bytes() == b"made " + SUPPORT.encode()
    (asked,) = tool.asked
    assert asked == {"runtime.so", HEADER, SUPPORT}
    assert LATER_HEADER not in asked


def test_the_headers_of_a_later_step_are_built_when_the_step_is_reached(cache):
    own_libraries.build_runtime(Tool("runtime.so", HEADER, SUPPORT), cache)
    tool = Tool(LATER_HEADER)
    header = own_libraries.precompiled_headers(tool, cache, StepName.LIGHT)
    assert header.read_bytes() == b"made " + LATER_HEADER.encode()
    assert tool.asked == [{LATER_HEADER}]


def test_separate_units_have_no_headers_of_their_own(cache):
    assert own_libraries.precompiled_headers(Tool(), cache, StepName.SPLIT) is None


def test_later_uses_build_nothing(cache):
    own_libraries.build_runtime(Tool("runtime.so", HEADER, SUPPORT), cache)
    tool = Tool()
    assert own_libraries.build_runtime(tool, cache) == b"made runtime.so"
    assert own_libraries.precompiled_headers(tool, cache, StepName.BOUND) is not None
    assert own_libraries.binding_support(tool, cache) is not None
    assert tool.asked == []


def test_parts_that_exist_are_not_made_again(cache):
    own_libraries.precompiled_headers(Tool(HEADER), cache, StepName.BOUND)
    own_libraries.binding_support(Tool(SUPPORT), cache)
    tool = Tool("runtime.so")
    own_libraries.build_runtime(tool, cache)
    assert not {HEADER, SUPPORT} & tool.asked[0]


def test_parts_that_cannot_be_made_are_tried_once_and_missed_by_nobody(cache):
    tool = Tool("runtime.so")
    assert own_libraries.build_runtime(tool, cache) == b"made runtime.so"
    assert own_libraries.precompiled_headers(tool, cache, StepName.BOUND) is None
    assert own_libraries.binding_support(tool, cache) is None
    assert len(tool.asked) == 1


def test_a_runtime_that_does_not_compile_is_nobodys_fault_but_ours(cache):
    tool = Tool(HEADER)
    for _ in range(2):
        with pytest.raises(JudgeFailed, match="runtime does not compile"):
            own_libraries.build_runtime(tool, cache)
    assert len(tool.asked) == 2  # it is not remembered


@pytest.mark.parametrize("step", StepName)
def test_clang_has_no_use_for_the_header(cache, monkeypatch, step):
    monkeypatch.setattr(
        host_compiler, "cxx", lambda: host_compiler.InstalledTool("/usr/bin/c++", "Debian clang version 19.1")
    )
    assert precompilation(step) is None
    assert own_libraries.precompiled_headers(Tool(PRECOMPILED.get(step, "")), cache, step) is None


@pytest.mark.parametrize("step", PRECOMPILED)
def test_the_header_is_compiled_with_the_flags_of_a_build_and_no_extensions_own(step):
    argv = precompilation(step).argv
    assert {"-O1", "-g1", "-fPIC", "-DTORCH_API_INCLUDE_EXTENSION_H"} <= set(argv)
    assert not any("TORCH_EXTENSION_NAME" in word or "MARKS_RETURNS" in word for word in argv)
    assert argv[-2:] == ["-o", PRECOMPILED[step]]


def test_two_grades_at_once_build_the_parts_once(cache):
    """The second one comes while the first one builds; whether it looks before or after the end makes no difference."""
    tool, results = Tool("runtime.so", HEADER, SUPPORT), []
    second = threading.Thread(target=lambda: results.append(own_libraries.build_runtime(tool, cache)))

    def meanwhile(*arguments, **options):
        second.start()
        return tool(*arguments, **options)

    results.append(own_libraries.build_runtime(meanwhile, cache))
    second.join(120)
    assert results == [b"made runtime.so"] * 2
    assert len(tool.asked) == 1
