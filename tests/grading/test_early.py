"""Builds begun before PyTorch is there: used where the submission asks for them, ended where it does not."""

import contextlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import wait

import psutil
import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.catalog import find_problem
from evaluator.compile.builder import BuildResult, CpuBuilder
from evaluator.errors import SandboxUnavailable
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.grading import pipeline
from evaluator.grading.request import GradeRequest, threads
from evaluator.judge import timing_stage
from evaluator.judge.runners import speculative_build as speculative
from evaluator.judge.runners.fork_servers import SandboxedTools, light_fork_server_for
from evaluator.judge.runners.speculative_build import SpeculativeBuild
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.trial import timing_loop
from evaluator.lint import messages
from evaluator.progress import Silent
from evaluator.protocol.frames import BuildRequest
from evaluator.records import BuildUnit, DeviceKind, SandboxMode, SizeName, Status
from evaluator.sandbox import Limits
from evaluator.sandbox.scratch_folders import remove_abandoned
from evaluator.sandbox.tool import ToolResult
from evaluator.submission.read import Submission
from tests.grading.harness import PATIENT_BUILD_S, PATIENT_S, TOP, module, nobody_left_behind
from tests.grading.test_interruption import said_by

ASKED = BuildRequest(name="mine", cpp_sources=["int f();"])
OTHER = BuildRequest(name="mine", cpp_sources=["int g();"])
TEXT = 'from torch.utils.cpp_extension import load_inline\nload_inline("mine", "int f();")\n'
WITHOUT_END = """\
template <int n, int m> struct A { enum { v = A<n - 1, m>::v + A<n - 1, m + (1 << n)>::v }; };
template <int m> struct A<0, m> { enum { v = m }; };
int f() { return A<28, 0>::v; }
"""
"""The compiler takes hours."""
FORWARD = "    def forward(self, x):\n        return torch.relu(x)\n"
WORKING = """\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = '''
#include <Python.h>
static PyObject* f(PyObject*, PyObject* x) { return PyObject_CallMethod(x, "relu", nullptr); }
static PyMethodDef methods[] = {{"f", f, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "mine", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_mine() { return PyModule_Create(&definition); }
'''
extension = load_inline("mine", source, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.f(x)
"""
"""Without headers of PyTorch and pybind11, whose compilation takes most of the time."""


def built(request, library=b"library"):
    unit = BuildUnit(
        name=request.name, key="key", ok=library is not None, cached=False, wall_s=1.0, diagnostics=[], log=""
    )
    return BuildResult(unit=unit, library=library, finding=None)


class Noting:
    """A builder that notes what it is asked for."""

    def __init__(self, library=b"library"):
        self.asked = []
        self.library = library

    def build(self, request):
        self.asked.append(request)
        return built(request, self.library)


@contextlib.contextmanager
def speculative_build(builder_of, run_tool=None, text=TEXT):
    with (
        light_fork_server_for(DeviceKind.CPU, SandboxMode.FULL) as fork_server,
        SpeculativeBuild(
            fork_server, run_tool or SandboxedTools(fork_server, DeviceKind.CPU), builder_of, text, ["ModelNew"]
        ) as begun,
    ):
        yield begun


def test_what_was_foreseen_is_built_once_and_handed_out():
    ahead, later = Noting(), Noting()
    with speculative_build(lambda _: ahead) as begun:
        builder = begun.in_front_of(later)
        first, second = builder.build(ASKED), builder.build(ASKED)
    assert (ahead.asked, later.asked) == ([ASKED], [])
    assert first == built(ASKED)
    # The second time nothing was waited for, and the card says so.
    assert (second.unit.cached, second.unit.wall_s, second.library) == (True, 0.0, first.library)


def test_what_was_not_foreseen_is_built_when_it_is_asked_for():
    ahead, later = Noting(), Noting()
    with speculative_build(lambda _: ahead) as begun:
        assert begun.in_front_of(later).build(OTHER) == built(OTHER)
    assert (ahead.asked, later.asked) == ([ASKED], [OTHER])


def test_it_says_when_all_that_was_foreseen_is_built():
    may_end = threading.Event()

    class Waiting(Noting):
        def build(self, request):
            assert may_end.wait(120)
            return super().build(request)

    ahead = Waiting()
    with speculative_build(lambda _: ahead) as begun:
        assert not begun.has_built()
        may_end.set()
        soon(begun.has_built)
        assert ahead.asked == [ASKED]


def test_what_failed_or_was_not_foreseen_is_not_built():
    class Failing:
        def build(self, request):
            return built(request, None)._replace(finding=finding(Code.COMPILE_FAILED, "no"))

    class Broken:
        def build(self, request):
            raise MemoryError

    for builder, text in ((Failing(), TEXT), (Broken(), TEXT), (Noting(), FORWARD)):
        with speculative_build(lambda _, builder=builder: builder, text=text) as begun:
            begun.looked_at()
            wait([build for _, build in begun._builds])
            assert not begun.has_built()


def test_a_machine_that_fails_is_told_to_who_asks():
    class Broken:
        def build(self, request):
            raise MemoryError

    with speculative_build(lambda _: Broken()) as begun, pytest.raises(MemoryError):
        begun.in_front_of(Noting()).build(ASKED)


ASLEEP = f"600.{secrets.randbelow(10**12):012d}"
"""Seconds that no other process sleeps: tests run beside each other."""


class Sleeping:
    """A builder whose compiler takes ten minutes."""

    def __init__(self, run_tool, folder):
        self.run_tool = run_tool
        self.folder = folder
        self.began = threading.Event()

    def build(self, request):
        self.began.set()
        for _ in range(3):  # One step after the other, as builders do.
            self.run_tool(["sleep", ASLEEP], work=self.folder, timeout_s=1200.0, limits=Limits())
        return built(request)


def asleep():
    return [each for each in psutil.process_iter(["cmdline"]) if ASLEEP in (each.info["cmdline"] or [])]


def soon(what):
    limit = time.monotonic() + 120
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_what_nobody_asked_for_is_ended(tmp_path):
    made = []

    def builder_of(run_tool):
        made.append(Sleeping(run_tool, tmp_path))
        return made[0]

    with speculative_build(builder_of) as begun:
        begun.looked_at()
        assert made[0].began.wait(120)
        soon(asleep)
        begun.end()
        assert asleep() == []
        later = Noting()
        assert begun.in_front_of(later).build(ASKED) == built(ASKED)
        assert later.asked == [ASKED]


def test_what_is_noticed_of_a_text_is_not_lost_where_builds_are_ended(monkeypatch):
    """Where nothing is known of a problem yet they are ended first of all; the look may still be under way."""
    monkeypatch.setattr(messages, "ANALYSIS", messages.ANALYSIS._replace(limit_s=240.0))
    long = "x = 1\n" * 30_000 + "import torch\nclass ModelNew(torch.nn.Module):\n"
    with speculative_build(lambda _: Noting(), text=long + FORWARD) as begun:
        begun.end()
        assert [each.code for each in begun.looked_at().findings] == [Code.LIBRARY_IN_FORWARD.value]


def test_leaving_it_ends_builds_that_the_look_starts_meanwhile(monkeypatch):
    """The end of the look is not the end of the builds."""
    looks_on, killed, ended = threading.Event(), threading.Event(), []
    look_at, wait_for = speculative.look_at, speculative.wait

    def slowly(*given):
        assert looks_on.wait(120)
        return look_at(*given)

    def look_on_and_wait(*given, **named):
        looks_on.set()
        return wait_for(*given, **named | {"timeout": 60.0} if not killed.is_set() and not begun._builds else named)

    class Killed:
        def build(self, request):
            ended.append(killed.wait(60))
            return built(request)

    monkeypatch.setattr(speculative, "look_at", slowly)
    monkeypatch.setattr(speculative, "wait", look_on_and_wait)
    with speculative_build(lambda _: Killed()) as begun:
        monkeypatch.setattr(begun._fork_server, "condemn_all", killed.set)
    assert ended == [True]


def test_a_build_that_took_too_long_beside_others_is_made_again():
    late = built(ASKED, None)
    late = replace(late, finding=finding(Code.COMPILER_TIMED_OUT, "the compiler was stopped"))

    class Late:
        def build(self, request):
            return late

    later = Noting()
    with speculative_build(lambda _: Late()) as begun:
        assert begun.in_front_of(later).build(ASKED) == built(ASKED)
    assert later.asked == [ASKED]


def test_a_build_that_was_ended_is_not_remembered_as_one_that_failed(tmp_path, monkeypatch):
    began, stopped = threading.Event(), threading.Event()

    def killed_compiler(_argv, *, work, timeout_s, limits, readable=()):
        began.set()
        stopped.wait(120)
        said = f"{work}/main.cpp:2:1: error: that is no C++"
        return ToolResult(exit_code=1, signal=None, timed_out=False, output=said, wall_s=1.0)

    cache = BuildCache(tmp_path)
    with speculative_build(lambda run_tool: CpuBuilder(run_tool, cache, TEXT, 60.0), killed_compiler) as begun:
        assert began.wait(120)
        monkeypatch.setattr(begun._fork_server, "condemn_all", stopped.set)
        begun.end()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size] == []


@pytest.fixture
def graded(grader, monkeypatch):
    """Grade in this process, as on a machine with many cores."""
    monkeypatch.setenv("WARPGRADE_CACHE", grader.environment["WARPGRADE_CACHE"])
    monkeypatch.setattr(pipeline, "_CORES_FOR_SPECULATION", 1)

    def run(source, strict=False):
        request = GradeRequest(
            Submission(
                name="mine",
                origin="",
                source=source,
                sha256="0" * 64,
                line_offset=0,
                extracted_from_answer=False,
                findings=(),
            ),
            GradeTerms(
                find_problem("relu"),
                GradeOptions(
                    device=DeviceKind.CPU,
                    size=SizeName.AWKWARD,
                    timeout_s=PATIENT_S,
                    build_timeout_s=PATIENT_BUILD_S,
                    strict=strict,
                ),
                gpu=None,
                threads=threads(),
            ),
        )
        return pipeline.grade(request, Silent())

    return run


@pytest.fixture
def begun(monkeypatch):
    """Note what was asked of those that are begun early, and whether they had it."""
    noted = []
    had = SpeculativeBuild.build_of

    def build_of(self, request):
        found = had(self, request)
        noted.append((request.name, found is not None))
        return found

    monkeypatch.setattr(SpeculativeBuild, "build_of", build_of)
    return noted


@pytest.mark.slow
def test_a_grade_uses_what_was_begun(graded, begun, monkeypatch):
    monkeypatch.setattr(timing_stage, "_is_drawn", lambda: False)
    # A text of its own: other tests of the run fill the same cache.
    card = graded(WORKING.replace('("relu")()', '("relu")().attr("relu")()'))
    assert card.status is Status.CORRECT
    # Read in, then checked and timed, by one runner where a freeze is atomic: each runner asks.
    assert begun == [("mine", True)] * (2 if "atomic-freeze" in card.sandbox.layers else 3)
    (unit,) = card.build.units
    assert unit.ok
    assert unit.wall_s > 0
    # It took longer than it was waited for, and reading the submission in took the time that it took.
    assert card.build.import_s > 0


@pytest.mark.slow
def test_what_is_never_asked_for_is_no_part_of_the_card_and_at_an_end_before_anything_is_timed(graded, monkeypatch):
    order = []
    end, side = SpeculativeBuild.end, timing_loop.side
    monkeypatch.setattr(SpeculativeBuild, "end", lambda self: (order.append("end"), end(self)))
    monkeypatch.setattr(timing_loop, "side", lambda *given, **named: (order.append("side"), side(*given, **named))[1])
    unasked = 'if False:\n    load_inline("unasked", "int f() { return }", no_implicit_headers=True)\n'
    card = graded(WORKING.replace("class ModelNew", unasked + "\n\nclass ModelNew"))
    assert card.status is Status.CORRECT
    assert [unit.name for unit in card.build.units] == ["mine"]
    assert order[0] == "end"
    assert order.count("side") == 3


@pytest.mark.parametrize(("strict", "begins"), [(False, True), (True, False)])
def test_where_every_wall_is_asked_for_nothing_is_begun_before(graded, monkeypatch, strict, begins):
    class Begun(Exception):
        pass

    def begin(*_):
        raise Begun

    monkeypatch.setattr(pipeline, "start_speculative_build", begin)
    with contextlib.suppress(SandboxUnavailable), pytest.raises(Begun) if begins else contextlib.nullcontext():
        graded(module(), strict=strict)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "later_s"), [(signal.SIGINT, 0.3), (signal.SIGKILL, 1.5)])
def test_a_grade_that_is_ended_leaves_nobody(grader, tmp_path, number, later_s):
    slow = f'load_inline("slow", {WITHOUT_END!r}, no_implicit_headers=True)\n'
    (tmp_path / "mine.py").write_text(WORKING.replace("extension = load", slow + "extension = load"))
    script = "import evaluator.grading.pipeline as p; p._CORES_FOR_SPECULATION = 1; import cli; cli.main()"
    with (
        nobody_left_behind(),
        subprocess.Popen(
            [sys.executable, "-c", script, "grade", "relu", "mine.py", "--device", "cpu", "--output", "card.json"],
            cwd=tmp_path,
            env=grader.environment | {"PYTHONPATH": str(TOP), "WARPGRADE_CACHE": str(tmp_path / "cache")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        said_by(process, b"read")
        time.sleep(later_s)
        process.send_signal(number)
        _, said = process.communicate(timeout=240)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert b"Traceback" not in said
    assert not (tmp_path / "card.json").exists()
    remove_abandoned(grader.temporary)  # folders of a killed grade; the next start of a fork server removes them
