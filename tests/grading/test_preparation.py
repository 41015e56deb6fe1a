"""What is made beside a grade: waited for in the end, killed when the grade is, and never the grade's failure.

A GPU's context makes it; here a CPU's is given the same, with a build file that says how long it takes.
"""

import contextlib
import functools
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from evaluator.catalog import find_problem
from evaluator.compile import precompiled
from evaluator.compile.device_builders import BackgroundPrecompile
from evaluator.compile.precompiled import precompiled_folder, why_not_precompiled, worth_trying
from evaluator.errors import JudgeFailed
from evaluator.grade_options import GradeOptions
from evaluator.judge.context import grade_context
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.records import DeviceKind, SizeName
from evaluator.sandbox import ForkServer
from evaluator.toolchain import host_compiler
from tests.grading.harness import nobody_left_behind, passable_folder

NINJA = """\
rule make
  command = {command} && echo made > $out
  description = make $out
build warpgrade_host.h.gch: make
build support.o: make
"""


@pytest.fixture
def cache(monkeypatch, grader):
    """A folder for what is prepared alone: the allocator need not be built for every test."""
    monkeypatch.setattr(precompiled, "_key", lambda: "0" * 32)
    monkeypatch.setenv("WARPGRADE_CACHE", grader.environment["WARPGRADE_CACHE"])
    with passable_folder() as folder, passable_folder() as temporary:
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        yield folder
        assert list(temporary.iterdir()) == []


@pytest.fixture
def context(cache, monkeypatch):
    """Open a context beside which `command` is run twice, by what `around` makes of the context's `run_tool`."""
    made = grade_context.device_builders

    @contextlib.contextmanager
    def opened(command, around=lambda run_tool: run_tool):
        def with_preparation(device, gpu, run_tool, *rest, **further):
            equipped = made(device, gpu, run_tool, *rest, **further)
            return equipped._replace(preparation=BackgroundPrecompile(around(run_tool), cache))

        monkeypatch.setattr(precompiled, "_ninja_text", lambda: NINJA.format(command=command))
        monkeypatch.setattr(grade_context, "device_builders", with_preparation)
        terms = GradeTerms(
            find_problem("relu"),
            GradeOptions(device=DeviceKind.CPU, size=SizeName.AWKWARD, timeout_s=60.0, build_timeout_s=60.0),
            None,
            threads=1,
        )
        with GradeContext(terms, "", SeedBook(None)) as context:
            yield context

    return opened


def until_it_runs():
    """Return a file in the compiler's folder, as soon as the folder is there. It is gone when the compiler ends."""
    deadline = time.monotonic() + 120
    while not (found := list(Path(tempfile.gettempdir()).glob("warpgrade-build-*/work/build.ninja"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found[0]


def entries(cache):
    return [path.name for path in precompiled_folder(cache).iterdir() if path.name != ".lock"]


def test_leaving_in_order_waits_for_it(context, cache):
    with nobody_left_behind():
        with context("until test -e go; do sleep 0.05; done"):
            assert precompiled.precompiled(cache) is None
            threading.Timer(0.5, until_it_runs().with_name("go").touch).start()
        assert precompiled.precompiled(cache).support.read_text() == "made\n"
    assert entries(cache) == ["0" * 32]
    assert not worth_trying(cache)


def leave_by(error, context, later_s):
    """Leave a context by an exception while the compiler runs; give the time of that."""
    with contextlib.suppress(error), context("sleep 300"):
        until_it_runs()
        time.sleep(later_s)
        left_s = time.monotonic()
        raise error
    return left_s


@pytest.mark.parametrize(("error", "later_s"), [(KeyboardInterrupt, 0.0), (ValueError, 0.02), (KeyboardInterrupt, 0.6)])
def test_leaving_by_an_exception_kills_it_at_once(context, cache, error, later_s):
    """At 0 s the compiler is just about to start."""
    with nobody_left_behind():
        assert time.monotonic() - leave_by(error, context, later_s) < 120
    assert entries(cache) == []
    assert worth_trying(cache)


@pytest.fixture
def raising(monkeypatch):
    """Have the thread raise when its program dies, before the fork server's end; a traceback fails the test."""
    end = ForkServer.close

    def end_after_the_thread(fork_server):
        end(fork_server)
        for thread in threading.enumerate():
            if thread.name == "prepare":
                thread.join()

    def around(run_tool):
        def run(argv, **how):
            with contextlib.suppress(JudgeFailed):
                run_tool(argv, **how)
            raise RuntimeError("the program was killed")

        return run

    monkeypatch.setattr(ForkServer, "close", end_after_the_thread)
    return around


def test_no_thread_reports_the_death_of_its_program(context, cache, raising):
    with nobody_left_behind():
        leave_by(KeyboardInterrupt, functools.partial(context, around=raising), 0.0)
    assert entries(cache) == []


def test_no_thread_reports_it_where_the_context_does_not_begin(context, cache, raising, monkeypatch):
    def set_up(_):
        until_it_runs()
        raise KeyboardInterrupt

    monkeypatch.setattr(GradeContext, "_set_up", set_up)
    with nobody_left_behind(), pytest.raises(KeyboardInterrupt), context("sleep 300", around=raising):
        pass
    assert entries(cache) == []


def test_ctrl_c_during_the_wait_kills_it_too(context, cache):
    def press():
        until_it_runs()
        time.sleep(1.0)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    started_s = time.monotonic()
    presser = threading.Thread(target=press)
    with nobody_left_behind():
        with pytest.raises(KeyboardInterrupt), context("sleep 300"):
            presser.start()
        presser.join()
    assert time.monotonic() - started_s < 120
    assert entries(cache) == []


def test_its_failure_is_nobodys_and_is_not_repeated_by_every_grade(context, cache):
    # ninja shows the command, too; it must not hold the message.
    with context("printf 'host.h:3: %s: no cublas_v2.h\\n' error && false") as opened:
        assert opened.reference is not None
    assert precompiled.precompiled(cache) is None
    assert not worth_trying(cache)
    assert why_not_precompiled(cache) == "host.h:3: error: no cublas_v2.h"


def test_no_compiler_is_no_failure_of_the_grade(context, cache, monkeypatch):
    with context("true"):
        pass
    assert precompiled.precompiled(cache) is not None

    def missing():
        raise host_compiler.ToolchainMissing("no ninja")

    monkeypatch.setattr(precompiled, "_key", lambda: "1" * 32)
    monkeypatch.setattr(host_compiler, "ninja", missing)
    with context("true"):
        pass
    assert precompiled.precompiled(cache) is None
    assert worth_trying(cache)
