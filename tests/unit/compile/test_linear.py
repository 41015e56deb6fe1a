"""Work on text that a submission, or its compiler, wrote grows with its length, and no faster (J4).

Work is counted in lines of Python that are run, not in seconds: twice the text takes at most a little more than twice
as many. What regular expressions do inside does not show there; those are held to a number of steps by their texts.

The lines are counted in a fresh interpreter, `python -m tests.unit.compile.test_linear`: in a process that had run
thousands of tests before, CPython 3.11 did not come back from a traced call.
"""

import json
import subprocess
import sys
from functools import partial

import pytest

from evaluator.compile.binding_errors import undeclared
from evaluator.compile.disassembly import machine_code
from evaluator.cuda_source.symbols import _function_name, kernels_in_library, missing
from evaluator.judge.runners.language_faults import kernel_fault
from evaluator.protocol.frames import BuildRequest
from evaluator.protocol.frames.oversize import oversized_request
from evaluator.toolchain import diagnostics
from evaluator.toolchain.diagnostics import LineMap, parse
from evaluator.toolchain.nvcc_flags import nvcc_flags, refused_compile_flags, words


def steps(work):
    """Count the lines of Python that `work` runs."""
    count = 0

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


SAME = "x = 1;\n"
WORK = {
    "a log of errors in many files": lambda n: parse(
        "".join(f"f{i}.cpp:1:1: error: e{i}\n" for i in range(n)),
        {f"f{i}.cpp": SAME * 9 for i in range(n)},
        SAME * 100,
    ),
    "the same line everywhere": lambda n: [LineMap(SAME * n, SAME * n).submission_line(line) for line in range(1, 9)],
    "places in an error of the emulator's": lambda n: kernel_fault(
        "emulator[trap]: " + "(x.cu:1)" * n, {"x.cu": SAME * 50}, SAME * 50
    ),
    "functions that nothing declares": lambda n: undeclared(
        [], BuildRequest(name="x", cpp_sources=["f " * n], functions={f"g{i}": "" for i in range(n)})
    ),
    "clones of a symbol": lambda n: _function_name("f(int)" + " [clone .a]" * n),
    "clones that never close": lambda n: _function_name("f(int)" + " [clone .a" * n),
    "symbols without a definition": lambda n: missing("U f(int)\n" * n, "", {"f"}),
    "words of a flag": lambda n: words(["'" + "x " * n + "'", "y " * n]),
    "functions of a disassembly": lambda n: machine_code(
        "".join(f"Function : k{i}\n/*0010*/ F2F.F16.F32 R{i}, R4 ;\n" for i in range(n))
    ),
    "flags of nvcc": lambda n: nvcc_flags(["-Xcompiler " + "-O3," * n]),
}


LINES = LineMap(SAME * 60_000, SAME * 60_000)
HOSTILE_STUBS = b"\x7fELF.nv_fatbin" + b"".join(b"__device_stub__Z9%09dv\0" % number for number in range(60_000))
LONG_FLAGS = ["-D" + "x" * 4094] * 8
AT_MOST = {
    "lines with one content": (lambda: LINES.submission_line(7), 10_000),
    "stubs of a library": (lambda: kernels_in_library(HOSTILE_STUBS), 1_000_000),
    # `shlex` takes time as the square of a word's length: flags of 64 KiB took 98 s.
    "flags of the greatest length": (lambda: refused_compile_flags(words(LONG_FLAGS)), 1_000_000),
}


def main():
    """Print the numbers of lines, as JSON."""
    for work in WORK.values():
        work(1)
    counts = {
        "few": {name: steps(partial(work, 200)) for name, work in WORK.items()},
        "many": {name: steps(partial(work, 400)) for name, work in WORK.items()},
        "once": {name: steps(work) for name, (work, _) in AT_MOST.items()},
    }
    json.dump(counts, sys.stdout)


@pytest.fixture(scope="module")
def counted():
    return json.loads(subprocess.run([sys.executable, "-m", __name__], check=True, capture_output=True).stdout)


@pytest.mark.parametrize("name", WORK)
def test_twice_the_text_is_at_most_twice_the_work(counted, name):
    assert 0 < counted["many"][name] <= 2.2 * counted["few"][name] + 200


@pytest.mark.parametrize("name", AT_MOST)
def test_the_work_on_a_text_of_any_length_is_bounded(counted, name):
    assert 0 < counted["once"][name] < AT_MOST[name][1]


def test_a_submission_is_cut_into_lines_once_for_all_files_of_a_build():
    """It was once for each of them: 50 messages in 50 files, each with 1 MiB to compare."""
    diagnostics._lines_of_text.cache_clear()
    log = "".join(f"f{number}.cpp:1:1: error: no\n" for number in range(40))
    parse(log, {f"f{number}.cpp": SAME for number in range(40)}, SAME * 3)
    assert (diagnostics._lines_of_text.cache_info().misses, diagnostics._lines_of_text.cache_info().hits) == (1, 39)


def test_lines_are_compared_up_to_a_limit_that_no_submission_reaches():
    honest = "".join(f"line {number} of a kernel\n" for number in range(40_000))
    assert LineMap(honest, honest).submission_line(39_999) == 39_999
    hostile = LineMap("\n" * (4 << 20), "\n" * (1 << 20))
    assert len(hostile.lines) <= 1 << 16
    assert hostile.submission_line(1 << 21) is None


def test_the_stubs_of_a_library_are_counted_up_to_a_limit():
    honest = b"\x7fELF.nv_fatbin" + b"".join(b"__device_stub__Z4k%03dPf\0" % number for number in range(200))
    assert len(kernels_in_library(honest).names) == 200


def test_no_flag_is_long_enough_to_be_cut_slowly():
    most = BuildRequest(name="x", extra_cflags=LONG_FLAGS)
    assert oversized_request(most) is None
    assert oversized_request(BuildRequest(name="x", extra_cflags=[*LONG_FLAGS, "x"])) is not None


if __name__ == "__main__":
    main()
