"""The emulator's engine: kernels as the rewriter leaves them, compiled against the runtime without PyTorch."""

import _ctypes
import ctypes
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evaluator.emulator import headers
from evaluator.emulator.frontend.build_ladder import KERNEL_FLAGS
from evaluator.toolchain import host_compiler
from tests import once

_FOLDER = re.compile(r"\(/[^\s():]*/(?=[^/\s():]+:\d+\))")
"""Folder of a place: the tests name files without the folder in which they were compiled."""

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent / "engine_cases.cpp"
ASCENDING, DESCENDING, SHUFFLED = 0, 1, 2
EVERY_ORDER = pytest.mark.parametrize(
    ("order", "seed"), [(ASCENDING, 0), (DESCENDING, 0), (SHUFFLED, 1), (SHUFFLED, 2)]
)
EVERY_WORKERS = pytest.mark.parametrize("workers", [1, 3])

Run = Callable[..., str]


OWN_SYMBOLS = os.RTLD_NOW | os.RTLD_DEEPBIND
"""Another test of this process may have loaded a runtime for everybody; these cases use their own."""


COMPILER = [host_compiler.cxx().path, "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]


def build_runtime(folder: Path, *flags: str) -> Path:
    """Compile the runtime, but for its one file that needs PyTorch."""
    unit, emulator = folder / "runtime.cpp", folder / "libemulator.so"
    sources = [path for path in headers.runtime_sources() if path.suffix == ".cpp" and "torch" not in path.name]
    # One unit, as in the product: it takes a third of the time of one unit for each file.
    included = "".join(f'#include "{path}"\n' for path in sources)
    unit.write_text(f"{included}namespace emu {{ void install_torch_allocator() {{}} }}\n")
    units = [str(unit), "-Wall", "-Wextra", "-Werror", *headers.runtime_flags()]
    # By its name, cases find the runtime that the process has loaded.
    command = [*COMPILER, *units, *flags, f"-Wl,-soname,{emulator.name}", "-o", str(emulator)]
    subprocess.run(command, check=True)
    return emulator


def build(folder: Path) -> None:
    """Compile the runtime and the cases."""
    to_runtime = [str(build_runtime(folder)), f"-Wl,-rpath,{folder}"]
    command = [*COMPILER, str(CASES), *KERNEL_FLAGS, f"-isystem{headers.INCLUDE}", *to_runtime]
    subprocess.run([*command, "-o", str(folder / "cases.so")], check=True)


@pytest.fixture(scope="session")
def libraries() -> tuple[Path, Path]:
    folder = once.made_once("engine-cases", build)
    return folder / "libemulator.so", folder / "cases.so"


@pytest.fixture(scope="session")
def emulator(libraries: tuple[Path, Path]) -> ctypes.CDLL:
    library = ctypes.CDLL(str(libraries[0]), mode=OWN_SYMBOLS)
    library.warpgrade_emu_launches.restype = ctypes.c_uint64
    library.warpgrade_emu_guard_damage.restype = ctypes.c_uint64
    return library


@pytest.fixture
def run(emulator: ctypes.CDLL, libraries: tuple[Path, Path]) -> Iterator[Run]:
    """Call a case by its name, under a schedule; give what it printed."""
    cases = ctypes.CDLL(str(libraries[1]), mode=OWN_SYMBOLS)

    def call(name: str, *args: int, order: int = ASCENDING, seed: int = 0, workers: int = 1, fill: int = 0) -> str:
        emulator.warpgrade_emu_schedule(order, ctypes.c_uint64(seed), workers, fill)
        text = ctypes.create_string_buffer(2000)
        padded = [*args, 0, 0, 0][:3]
        getattr(cases, name)(text, ctypes.c_int(len(text)), *map(ctypes.c_int, padded))
        return _FOLDER.sub("(", text.value.decode())

    yield call
    emulator.warpgrade_emu_schedule(ASCENDING, ctypes.c_uint64(0), 1, 0)
    emulator.warpgrade_emu_guard_damage(None, ctypes.c_uint64(0))


class TestSchedules:
    @EVERY_ORDER
    @EVERY_WORKERS
    @pytest.mark.parametrize("case", ["elementwise", "reduction"])
    def test_a_right_kernel_is_right_under_every_schedule(self, run, case, order, seed, workers):
        assert run(case, order=order, seed=seed, workers=workers) == "wrong 0"

    def test_a_race_shows_under_every_order(self, run):
        found = {order: run("race", order=order) for order in (ASCENDING, DESCENDING, SHUFFLED)}
        assert "wrong 0" not in found.values()
        assert len(set(found.values())) == 1 or found[ASCENDING] != found[SHUFFLED]

    @pytest.mark.parametrize("waits", [0, 1])
    def test_orders(self, run, waits):
        ascending = [int(word) for word in run("turns", waits).split()]
        descending = [int(word) for word in run("turns", waits, order=DESCENDING).split()]
        shuffled = [int(word) for word in run("turns", waits, order=SHUFFLED, seed=5).split()]
        assert ascending == list(range(12))
        assert descending == list(range(11, -1, -1))
        assert sorted(shuffled) == ascending
        assert shuffled not in (ascending, descending)

    def test_a_shuffle_is_another_one_for_each_launch_and_seed(self, run):
        assert len({run("turns", order=SHUFFLED, seed=seed) for seed in range(100, 2000, 300)}) > 3


@EVERY_ORDER
@pytest.mark.parametrize(
    ("case", "workers", "said"),
    [
        ("atomics", 4, "32000 -64000 499 -63 96000 16000 0"),
        ("counting_barriers", 1, "22 22 0 1"),
        ("warp_shuffles", 1, "wrong 0"),
        ("warp_votes", 1, "aaaaaaaa 1 0 ff ff000000 496 7 31"),
        ("active_mask", 1, "11111111 eeeeeeee 8"),
    ],
)
def test_threads_that_talk_say_the_same_in_every_order(run, case, workers, said, order, seed):
    assert run(case, order=order, seed=seed, workers=workers) == said


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("barrier_in_warps_of_their_own", "1 2"),
        ("missing_lane", "1 1"),  # A lane that does not exist gives NaN.
        ("lanes_that_left", "20"),
        ("fresh_memory", "1 1"),
        ("devices", "cudaSuccess cudaSuccess cudaSuccess cudaErrorInvalidDevice"),
        ("templates", "18 21"),
        ("symbols", "4 cudaErrorInvalidValue"),
        ("copies", "cudaSuccess cudaErrorInvalidValue cudaErrorInvalidValue"),
        ("properties", "132 232448 9.0 4"),  # of an H200
        ("intrinsics", "80000000 32 4 8 77441100 3 4 1 0 1 2 3 -2 1 1 1 3 2 1"),
    ],
)
def test_a_case_says_what_a_gpu_says(run, case, said):
    assert run(case) == said


class TestBarriers:
    @EVERY_WORKERS
    def test_a_barrier_that_some_threads_pass_by(self, run, workers):
        text = run("divergent_barrier", 16, workers=workers)
        assert text.startswith("emulator[divergent-barrier]: kernel skipped_barrier block (0,0,0) thread (15,0,0): ")
        assert "16 threads wait at __syncthreads, which 48 threads" in text
        assert text.endswith("(submission.cu:102)")

    def test_a_barrier_that_nobody_passes_by(self, run):
        assert run("divergent_barrier", 64) == ""

    @pytest.mark.parametrize("how", [0, 1])
    def test_threads_that_return_early_are_not_waited_for(self, run, how):
        assert run("early_return", how) == "40"

    def test_a_branch_around_a_barrier_is_divergent_where_returns_are_marked(self, run):
        assert run("early_return", 2).startswith("emulator[divergent-barrier]: kernel marked ")

    def test_lanes_of_one_warp_at_two_barriers(self, run):
        text = run("barrier_in_both_branches")
        assert text.startswith("emulator[divergent-barrier]: ")
        assert "another at __syncthreads (submission.cu:202)" in text
        assert text.endswith("(submission.cu:204)")

    def test_deadlock(self, run):
        text = run("deadlock")
        assert text.startswith("emulator[deadlock]: kernel stuck block (0,0,0) thread (0,0,0): ")
        assert "16 threads wait at __shfl_sync with mask 0xffffffff (submission.cu:302)" in text
        assert "16 threads wait at __syncthreads (submission.cu:304)" in text

    def test_a_kernel_that_was_not_expected_to_wait(self, run):
        assert run("plain_kernel_with_barrier").startswith("emulator[unsupported]: ")


class TestWarps:
    def test_a_lane_outside_of_its_mask(self, run):
        text = run("lane_outside_mask")
        assert text.startswith("emulator[lane-outside-mask]: kernel wrong_mask block (0,0,0) thread (16,0,0): lane 16 ")
        assert text.endswith("(submission.cu:401)")


# The emulator learns from dl_iterate_phdr which libraries there are, before each look-up of a line.
SLOW_OR_BROKEN = """
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
using Visit = int (*)(dl_phdr_info*, size_t, void*);
extern "C" { int warpgrade_is_broken = 0; }
extern "C" int dl_iterate_phdr(Visit visit, void* data) {
  if (warpgrade_is_broken) *reinterpret_cast<volatile int*>(8) = 0;
  usleep(1500000);
  return reinterpret_cast<int (*)(Visit, void*)>(dlsym(RTLD_NEXT, "dl_iterate_phdr"))(visit, data);
}
"""
# Arguments: the emulator, the cases, whether look-ups are broken. Two workers fail at the same time, twice.
TWO_ERRORS = """
import ctypes, os, sys
emulator, cases = (ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:3])
ctypes.c_int.in_dll(ctypes.CDLL(None), "warpgrade_is_broken").value = int(sys.argv[3])
emulator.warpgrade_emu_schedule(0, ctypes.c_uint64(0), 2, 0)
for _ in range(2):
    text = ctypes.create_string_buffer(2000)
    cases.write_at(text, len(text), 1030, 0, 0)
    print(text.value.decode(), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("is_broken", "place"), [(0, "submission.cu:601)"), (1, "4096 bytes (launched in line ")])
def test_workers_wait_for_the_line_of_an_error_unless_a_fault_ended_a_look_up(libraries, tmp_path, is_broken, place):
    source, preloaded = tmp_path / "preloaded.cpp", tmp_path / "preloaded.so"
    source.write_text(SLOW_OR_BROKEN)
    subprocess.run([host_compiler.cxx().path, "-O1", "-fPIC", "-shared", str(source), "-o", str(preloaded)], check=True)
    result = subprocess.run(
        [sys.executable, "-c", TWO_ERRORS, *map(str, libraries), str(is_broken)],
        env=os.environ | {"LD_PRELOAD": str(preloaded)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert place in first
    assert place in second


# Arguments: the emulator, the cases, a library, and a file that gets the number of the library's descriptor.
FROM_A_DESCRIPTOR = """
import ctypes, os, sys
emulator, cases = (ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:3])
number = os.open(sys.argv[3], os.O_RDONLY)
ctypes.CDLL(f"/proc/self/fd/{number}")
os.dup2(os.pipe()[0] if sys.argv[4] == "pipe" else os.open(sys.argv[4], os.O_RDONLY), number)
text = ctypes.create_string_buffer(2000)
cases.write_at(text, len(text), 1030, 0, 0)
print(text.value.decode(), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("other", ["pipe", "/dev/null", "/dev/zero", __file__])
def test_another_file_in_the_place_of_a_library_does_not_cost_the_line_of_an_error(libraries, tmp_path, other):
    """The judge's and the runner's libraries are files in memory, loaded by the number of a descriptor."""
    library = tmp_path / "another.so"  # the file itself is loaded already
    shutil.copyfile(_ctypes.__file__, library)
    argv = [sys.executable, "-c", FROM_A_DESCRIPTOR, *map(str, libraries), str(library), other]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "submission.cu:601)" in result.stdout


@pytest.mark.parametrize("waits", [0, 1])
class TestGlobalMemory:
    def test_inside(self, run, waits):
        assert run("read_at", 1020, waits) == "2"

    @EVERY_WORKERS
    def test_read_past_the_end(self, run, waits, workers):
        assert run("read_at", 1022, waits, workers=workers) == (
            "emulator[illegal-access]: kernel reads_at block (0,0,0) thread (2,0,0): "
            "READ just past the end of a cudaMalloc of 4096 bytes (submission.cu:501)"
        )

    def test_read_before_the_start(self, run, waits):
        text = run("read_at", -3, waits)
        assert (
            "thread (0,0,0): READ 12 bytes before the start of a cudaMalloc of 4096 bytes (submission.cu:501)" in text
        )

    @EVERY_WORKERS
    def test_write_past_the_end(self, run, waits, workers):
        text = run("write_at", 1030, waits, workers=workers)
        assert re.match(r"emulator\[illegal-access\]: kernel writes_at block \([01],0,0\) thread \(5,0,0\): ", text)
        assert text.endswith("WRITE 24 bytes past the end of a cudaMalloc of 4096 bytes (submission.cu:601)")

    def test_a_read_whose_value_is_used_later(self, run, waits):
        text = run("vector_read_at", 256, waits)
        assert text.endswith("READ just past the end of a cudaMalloc of 4096 bytes (submission.cu:551)")

    def test_far_away(self, run, waits):
        # 8 GiB below: the system puts what is mapped later below what was before, and nothing here is as large. Half a
        # gibibyte above lay memory of this very process now and then.
        assert re.search(r"WRITE at 0x\w+, far from any tensor", run("write_at", -(1 << 31), waits))

    def test_the_next_launch_works(self, run, waits):
        assert "illegal-access" in run("write_at", 1030, waits)
        assert run("reduction") == "wrong 0"


class TestGuards:
    def test_null_pointer(self, run):
        assert "WRITE at 0x8, through a null pointer (submission.cu:601)" in run("null_pointer")

    def test_use_after_free(self, run):
        assert "WRITE 8 bytes into a freed cudaMalloc of 4096 bytes (submission.cu:601)" in run("use_after_free")

    @pytest.mark.parametrize(
        ("fill", "is_one"),
        [
            (0, math.isnan),
            (1, lambda value: 1e36 < value < 2e36),
            (2, lambda value: -2e36 > value > -4e36),
            (3, lambda value: 0.5 <= abs(value) < 2),
        ],
    )
    def test_fresh_memory_of_every_kind_holds_what_the_schedule_says(self, run, fill, is_one):
        values = [float(word) for seed in (1, 2, 3) for word in run("fresh_values", fill=fill, seed=seed).split()]
        assert len(values) == 9
        assert all(is_one(value) for value in values)
        assert (len(set(values)) > 1) == (fill in (0, 3))

    @pytest.mark.parametrize(("offset", "where"), [(1014, "4 bytes past the end"), (-2, "8 bytes before the start")])
    def test_writes_beside_the_data_are_found_after_the_launch(self, run, emulator, offset, where):
        text = run("write_into_slack", offset)
        assert text.startswith("emulator[illegal-access]: kernel writes_at: ")
        assert f"WRITE {where} of a cudaMalloc of 4052 bytes (launched in line " in text
        assert emulator.warpgrade_emu_guard_damage(None, ctypes.c_uint64(0)) == 0
        assert run("reduction") == "wrong 0"

    def test_writes_of_the_host_beside_the_data_are_found_later_and_once(self, run, emulator):
        text = ctypes.create_string_buffer(500)
        assert run("write_into_slack", 1014, 1) == ""
        assert emulator.warpgrade_emu_guard_damage(text, ctypes.c_uint64(500)) == 1
        expected = (
            "emulator[illegal-access]: code of the host: WRITE 4 bytes past the end of a cudaMalloc of 4052 bytes"
        )
        assert text.value.decode() == expected
        assert emulator.warpgrade_emu_guard_damage(text, ctypes.c_uint64(500)) == 0

    def test_faults_on_the_host_are_left_alone(self, libraries):
        program = (
            "import ctypes, os, sys\n"
            "ctypes.CDLL(sys.argv[1], mode=os.RTLD_GLOBAL)\n"
            "cases = ctypes.CDLL(sys.argv[2])\n"
            "cases.reduction(ctypes.create_string_buffer(99), 99, 0, 0, 0)\n"
            "cases.crash_on_the_host()\n"
        )
        answer = subprocess.run([sys.executable, "-c", program, *map(str, libraries)], capture_output=True, check=False)
        assert answer.returncode == -signal.SIGSEGV


class TestCaughtFaults:
    PROGRAM = """if True:
        import ctypes, os, sys
        emulator = ctypes.CDLL(sys.argv[1], mode=os.RTLD_GLOBAL)
        cases = ctypes.CDLL(sys.argv[2])
        text = ctypes.create_string_buffer(500)
        for name, *numbers in [case.split() for case in sys.argv[3:]]:
            getattr(cases, name)(ctypes.create_string_buffer(500), 500, *map(int, numbers))
            print(emulator.warpgrade_emu_fault(text, ctypes.c_uint64(500)), text.value.decode())
    """

    def told(self, libraries, *cases):
        """Say after each case what the runtime knows of faults; every case catches its exception."""
        argv = [sys.executable, "-c", self.PROGRAM, *map(str, libraries), *cases]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()

    @pytest.mark.parametrize("waits", [0, 1])
    def test_the_first_fault_stays(self, libraries, waits):
        none, first, after, second = self.told(
            libraries, "reduction 0 0 0", f"write_at 1030 {waits} 0", "reduction 0 0 0", "assertion 0 0 0"
        )
        assert none.strip() == "0"
        assert first.startswith("1 emulator[illegal-access]: kernel writes_at block ")
        assert first == after == second

    @pytest.mark.parametrize(
        ("case", "word"),
        [
            ("assertion 0 0 0", "assert"),
            ("write_into_slack 1014 0 0", "illegal-access"),
            ("deadlock 0 0 0", "deadlock"),
        ],
    )
    def test_faults_of_every_kind(self, libraries, case, word):
        assert self.told(libraries, case)[0].startswith(f"1 emulator[{word}]: kernel ")

    def test_a_refused_launch_and_an_exception_are_no_faults(self, libraries):
        assert self.told(libraries, "big_block 2000 1 1", "exception 0 0 0") == ["0 ", "0 "]


class TestSharedMemory:
    @EVERY_WORKERS
    def test_fresh_for_every_block(self, run, workers):
        assert run("fresh_shared", workers=workers) == "1 1 1"

    def test_static_array_past_its_end(self, run):
        assert run("static_shared_at", 9) == (
            "emulator[shared-out-of-bounds]: kernel shared_at block (0,0,0) thread (0,0,0): "
            "READ just past the end of a static shared array of 36 bytes (submission.cu:701)"
        )

    @pytest.mark.parametrize(
        ("offset", "dynamic_bytes", "where"), [(100, 400, "just"), (0, 0, "just"), (130, 400, "120 bytes")]
    )
    def test_dynamic_array_past_its_end(self, run, offset, dynamic_bytes, where):
        text = run("dynamic_shared_at", offset, dynamic_bytes)
        assert text.startswith("emulator[shared-out-of-bounds]: kernel dynamic_at block (0,0,0) thread (0,0,0): ")
        assert f"WRITE {where} past the end of a dynamic shared array of {dynamic_bytes} bytes" in text
        assert text.endswith("(submission.cu:801)")

    @pytest.mark.parametrize(("offset", "where"), [(25, "just past the end"), (-1, "4 bytes before the start")])
    def test_writes_beside_the_data_are_found_after_the_block(self, run, offset, where):
        text = run("dynamic_shared_at", offset, 100)
        assert text.startswith("emulator[shared-out-of-bounds]: kernel dynamic_at block (0,0,0): ")
        assert f"WRITE {where} of a dynamic shared array of 100 bytes" in text

    @EVERY_ORDER
    @pytest.mark.parametrize(
        ("form", "is_race"), [(0, False), (1, False), (2, True), (3, False), (4, False), (5, False)]
    )
    def test_threads_without_a_barrier_that_write_the_same_element(self, run, form, is_race, order, seed):
        text = run("shared_without_barrier", form, order=order, seed=seed)
        if is_race:
            assert text.startswith("emulator[shared-race]: kernel without_barrier block (")
            assert "two threads write the same shared memory, and the kernel has no barrier" in text
        else:
            assert text == "ran"

    def test_more_static_memory_than_a_gpu_has(self, run):
        assert run("too_much_shared").startswith("emulator[too-much-shared]: kernel much_shared ")


class TestLaunches:
    @pytest.mark.parametrize(
        ("grid_y", "block", "dynamic_bytes", "answer"),
        [
            (1, 1024, 0, "1 cudaSuccess no error 0"),
            (1, 1025, 0, "0 cudaErrorInvalidConfiguration invalid configuration argument 0"),
            (1, 0, 0, "0 cudaErrorInvalidConfiguration invalid configuration argument 0"),
            (0, 32, 0, "0 cudaErrorInvalidConfiguration invalid configuration argument 0"),
            (65536, 32, 0, "0 cudaErrorInvalidConfiguration invalid configuration argument 0"),
            (-1, 32, 0, "0 cudaErrorInvalidConfiguration invalid configuration argument 0"),
            (1, 32, 48 * 1024, "1 cudaSuccess no error 0"),
            (1, 32, 228 * 1024, "0 cudaErrorInvalidValue invalid argument 0"),
        ],
    )
    def test_rules(self, run, emulator, grid_y, block, dynamic_bytes, answer):
        before = emulator.warpgrade_emu_launches()
        assert run("launch_rules", grid_y, block, dynamic_bytes) == answer
        assert emulator.warpgrade_emu_launches() - before == int(answer[0])

    @pytest.mark.parametrize(
        ("block", "answer"),
        [
            ((16, 16, 4), "cudaSuccess"),
            ((16, 16, 5), "cudaErrorInvalidConfiguration"),
            ((1, 1, 65), "cudaErrorInvalidConfiguration"),
            ((1 << 16, 1 << 16, 1), "cudaErrorInvalidConfiguration"),
        ],
    )
    def test_threads_of_a_block(self, run, block, answer):
        assert run("big_block", *block) == answer

    @EVERY_WORKERS
    @pytest.mark.parametrize("waits", [0, 1])
    @pytest.mark.parametrize(
        ("block", "answer"),
        [((128, 1), "512 cudaSuccess"), ((129, 1), "0 cudaErrorInvalidValue"), ((64, 3), "0 cudaErrorInvalidValue")],
    )
    def test_launch_bounds(self, run, emulator, block, answer, waits, workers):
        before = emulator.warpgrade_emu_launches()
        assert run("launch_bounds", waits, *block, workers=workers) == answer
        assert emulator.warpgrade_emu_launches() - before == (block == (128, 1))

    def refusal(self, emulator):
        text = ctypes.create_string_buffer(500)
        emulator.warpgrade_emu_refusal(text, ctypes.c_uint64(500))
        return text.value.decode().removeprefix("emulator[launch-refused]: ")

    @pytest.mark.parametrize(
        ("case", "numbers", "said"),
        [
            (
                "launch_bounds",
                (0, 64, 3),
                "kernel bounded<128>.* did not run: a block .64, 3, 1. has 192 threads, ",
            ),
            ("big_block", (16, 16, 5), "kernel .* did not run: a block .16, 16, 5. has 1280 threads, allowed are 1024"),
            ("big_block", (1, 1, 65), "kernel .* did not run: block.z is 65, allowed are 1 to 64"),
            ("launch_rules", (65536, 256, 0), "kernel .* did not run: grid.y is 65536, allowed are 1 to 65535"),
            (
                "launch_rules",
                (1, 32, 49153),
                "kernel .* did not run: a block has 49153 bytes of dynamic shared memory, allowed are 49152 without ",
            ),
        ],
    )
    def test_the_first_refused_launch_is_told_once(self, run, emulator, case, numbers, said):
        self.refusal(emulator)
        run(case, *numbers)
        run("big_block", 1, 1, 66)
        assert re.match(said, self.refusal(emulator))
        assert self.refusal(emulator) == ""

    def test_more_dynamic_memory_after_opting_in(self, run):
        """Behind the tests of the limit, which opting in raises for the process."""
        assert run("opt_in") == "cudaErrorInvalidValue 1 cudaSuccess"

    @EVERY_WORKERS
    @pytest.mark.parametrize("waits", [0, 1])
    def test_exceptions_reach_the_host(self, run, waits, workers):
        assert run("exception", waits, workers=workers) == "thrown by a kernel"

    @pytest.mark.parametrize(
        ("case", "beginning"),
        [
            ("trap", "emulator[trap]: kernel traps "),
            ("assertion", "emulator[assert]: kernel asserts block (0,0,0) thread (20,0,0): "),
            ("division_by_zero", "emulator[integer-division]: kernel divides "),
            ("stack_overflow", "emulator[stack-overflow]: kernel overflows "),
            ("nested_launch", "emulator[unsupported]: kernel launches_inside "),
        ],
    )
    def test_what_ends_a_kernel(self, run, case, beginning):
        assert run(case).startswith(beginning)

    def test_the_line_of_an_assertion(self, run):
        assert run("assertion").endswith("(submission.cu:901)")


def test_the_portable_switch_runs_the_same_kernels(libraries, tmp_path):
    """Where there is no switch of our own for the processor, ucontext does its work; a process of its own loads it."""
    emulator, cases = build_runtime(tmp_path, "-DWARPGRADE_EMU_UCONTEXT", "-O0"), libraries[1]
    program = (
        "import ctypes, os, sys\n"
        "ctypes.CDLL(sys.argv[1], mode=os.RTLD_GLOBAL)\n"
        "cases = ctypes.CDLL(sys.argv[2])\n"
        "cases_and_args = [('reduction', 0, 0), ('warp_shuffles', 0, 0), ('read_at', 1022, 1), ('exception', 1, 0)]\n"
        "for name, *args in cases_and_args:\n"
        "    text = ctypes.create_string_buffer(999)\n"
        "    getattr(cases, name)(text, 999, *args, 0)\n"
        "    print(text.value.decode())\n"
        "print(sys.argv[3] in open('/proc/self/maps').read())\n"
    )
    command = [sys.executable, "-c", program, str(emulator), str(cases), str(libraries[0])]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    assert lines[:2] == ["wrong 0", "wrong 0"]
    assert "thread (2,0,0): READ just past the end" in lines[2]
    assert lines[3:] == ["thrown by a kernel", "False"]
