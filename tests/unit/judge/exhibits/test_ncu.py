"""Nsight Compute: where it is looked for, how its page is read, and what becomes of what it says."""

import math
from pathlib import Path

import msgspec
import pytest

from evaluator.cuda_source.symbols import Kernels
from evaluator.errors import ToolchainMissing
from evaluator.findings import Code
from evaluator.judge.exhibits.hardware_counters import counted
from evaluator.judge.exhibits.ncu import MOST_LAUNCHES, Launch, command, find_ncu, installation, read_page
from evaluator.protocol.standalone_call import FAILED
from evaluator.records import Counters
from evaluator.sandbox import ToolResult
from evaluator.toolchain import nvcc

OWN = Kernels(device_code=True, names=["relu_kernel"])
RELU = "relu_kernel(const float *, float *, long)"
FILL = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2, T3)"
COLUMNS = [
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"),
    *("Device", "CC", "dram__bytes.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    *("gpu__time_duration.sum", "sm__warps_active.avg.pct_of_peak_sustained_active"),
]


def line(*fields):
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def row(name, size, bandwidth, time, occupancy):
    facts = ["0", "71", "python3.11", "127.0.0.1", name, "1", "7", "(256, 1, 1)", "(65536, 1, 1)", "0", "9.0"]
    return line(*facts, size, bandwidth, time, occupancy)


def units(size="byte", time="ns"):
    return line(*[""] * 11, size, "%", time, "%")


HEADER = line(*COLUMNS)
PAGE = "\n".join(
    [
        "==PROF== Connected to process 71 (/usr/bin/python3.11)",
        '==PROF== Profiling "relu_kernel" - 0: 0%....50%....100% - 1 pass',
        "==PROF== Disconnected from process 71",
        HEADER,
        units(),
        row(RELU, "6,442,450,944", "91.25", "1,490,000", "80.00"),
        row(FILL, "4096", "0.50", "1000", "12.50"),
        row(RELU, "2147483648", "81.25", "510000", "60.00"),
    ]
)


def result(output, exit_code=0, *, timed_out=False):
    return ToolResult(
        exit_code=None if timed_out else exit_code, signal=None, timed_out=timed_out, output=output, wall_s=1.0
    )


def test_a_page_is_read_in_its_order():
    assert read_page(PAGE) == [
        Launch(RELU, pytest.approx(1490.0), 6442450944.0, 91.25, 80.0),
        Launch(FILL, pytest.approx(1.0), 4096.0, 0.5, 12.5),
        Launch(RELU, pytest.approx(510.0), 2147483648.0, 81.25, 60.0),
    ]


def test_launches_of_one_kernel_are_summed_and_its_shares_weighted_by_time():
    found = counted(result(PAGE), OWN)
    assert (found.finding, found.launches, found.cut, found.other_kernels) == (None, 3, False, 0)
    relu, fill = found.kernels
    assert (relu.name, relu.launches, relu.own, fill.own) == (RELU, 2, True, False)
    assert relu.time_us == pytest.approx(2000.0)
    assert relu.dram_bytes == 6442450944 + 2147483648
    assert relu.dram_bytes_per_s == pytest.approx(relu.dram_bytes / 2e-3)
    assert relu.bandwidth_percent == pytest.approx((91.25 * 1490 + 81.25 * 510) / 2000)
    assert relu.occupancy_percent == pytest.approx((80 * 1490 + 60 * 510) / 2000)


@pytest.mark.parametrize(
    ("unit", "time", "time_us"),
    [("ns", "2500", 2.5), ("nsecond", "2500", 2.5), ("us", "2.5", 2.5), ("msecond", "2.5", 2500.0), ("s", "1", 1e6)],
)
def test_times_are_read_in_the_units_that_the_page_names(unit, time, time_us):
    (launch,) = read_page("\n".join([HEADER, units(time=unit), row(RELU, "1.5", "1", time, "1")]))
    assert launch.time_us == pytest.approx(time_us)


def test_a_size_in_an_unknown_unit_is_no_size():
    (launch,) = read_page("\n".join([HEADER, units(size="bit"), row(RELU, "1.5", "1", "5", "1")]))
    assert (launch.dram_bytes, launch.time_us) == (None, pytest.approx(5e-3))


def test_what_a_gpu_does_not_count_is_not_known():
    page = "\n".join([HEADER, units(), row(RELU, "n/a", "n/a", "1000", "50")])
    (kernel,) = counted(result(page), OWN).kernels
    assert (kernel.dram_bytes, kernel.dram_bytes_per_s, kernel.bandwidth_percent) == (None, None, None)
    assert kernel.occupancy_percent == 50.0


@pytest.mark.parametrize("bad", ["nan", "inf", "-1", "1e400", "9" * 400, "", "many", "1,2,3", "\u0663e99"])
def test_a_forged_number_is_none(bad):
    page = "\n".join([HEADER, units(), row("t", "1", "1", bad, "1"), row("k", bad, bad, "1000", bad)])
    assert read_page(page) == [Launch("k", pytest.approx(1.0), None, None, None)]


def test_the_last_header_counts_and_junk_around_the_page_does_not():
    forged = "\n".join([HEADER, units(), row("forged", "1", "1", "1000", "1")])
    junk = ['"an open quote', '"a","few"', "\x00", '"' + "," * 200_000, line(*["x"] * len(COLUMNS))]
    assert [launch.name for launch in read_page("\n".join([forged, *junk, PAGE, *junk]))] == [RELU, FILL, RELU]


def test_a_page_is_bounded():
    rows = [row(f"{number}" + "k" * 9000, "1", "1", "1000", "1") for number in range(500)]
    found = counted(result("\n".join([HEADER, units(), *rows])), OWN)
    assert (found.launches, found.cut, len(found.kernels), found.other_kernels) == (MOST_LAUNCHES, True, 32, 32)
    assert max(len(kernel.name) for kernel in found.kernels) <= 4096


def test_the_largest_numbers_that_pass_fit_into_a_card():
    rows = [row("k", "1e18", "1000", "1", "1000")] * MOST_LAUNCHES
    found = counted(result("\n".join([HEADER, units(), *rows])), OWN)
    assert math.isfinite(found.kernels[0].dram_bytes_per_s)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Counters) == found


@pytest.mark.parametrize("text", ["", HEADER, f"{HEADER}\n{units()}", "==PROF== nothing\n"])
def test_no_launch_is_no_page(text):
    assert read_page(text) == []
    found = counted(result(text), OWN)
    assert (found.kernels, found.finding.code) == ([], Code.NOT_COUNTED.value)
    assert "recorded no kernel" in found.finding.message


def test_why_nothing_was_counted_is_said():
    refused = result("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access ...", 1)
    found = counted(refused, OWN).finding
    assert found.code == Code.COUNTERS_REFUSED.value
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.next_step
    late = counted(result(PAGE, timed_out=True), OWN)
    assert (late.kernels, late.finding.code) == ([], Code.NOT_COUNTED.value)
    assert "120 s" in late.finding.message
    failed = counted(result(f"{PAGE}\n{FAILED}ValueError: no\n==ERROR== The application returned 1", 1), OWN)
    assert (failed.kernels, failed.finding.message) == ([], "the call failed: ValueError: no")
    broken = counted(result("==ERROR== unknown option\n" * 9 + "x" * 10_000, 255), OWN).finding
    assert broken.message.startswith("ncu failed (exit status 255): ==ERROR== unknown option")
    assert len(broken.message) <= 600


def test_the_command_line_ends_with_the_program():
    words = command(Path("/opt/ncu"), ["python", "-c", "pass"])
    assert (words[0], words[-3:]) == ("/opt/ncu", ["python", "-c", "pass"])
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert words[words.index("--launch-count") + 1] == str(MOST_LAUNCHES)


def made(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_ncu_is_looked_for_in_three_places(tmp_path, monkeypatch):
    def no_toolkit():
        raise ToolchainMissing("none", hint="")

    packages = tmp_path / "packages"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(nvcc, "cuda_home", no_toolkit)
    assert find_ncu(packages) is None
    made(packages / "2024.3.2" / "ncu")
    newest = made(packages / "2024.10.0" / "ncu")
    (packages / "2099.1.0" / "ncu").mkdir(parents=True)
    assert find_ncu(packages) == newest
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path / "cuda")
    in_toolkit = made(tmp_path / "cuda" / "bin" / "ncu")
    assert find_ncu(packages) == in_toolkit
    assert find_ncu(packages) != made(tmp_path / "bin" / "ncu") == find_ncu(packages)


def test_only_an_installation_is_shown_to_the_program_under_it(tmp_path, monkeypatch):
    """A link in a user's home leads to the installation; the home stays out of sight."""
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path / "cuda")
    real = made(tmp_path / "nsight" / "ncu")
    (tmp_path / "nsight" / "target").mkdir()
    link = tmp_path / "home" / "ncu"
    link.parent.mkdir()
    link.symlink_to(real)
    assert installation(link) == [tmp_path / "nsight", tmp_path / "cuda"]
    assert installation(made(tmp_path / "other" / "ncu")) == [tmp_path / "cuda"]
