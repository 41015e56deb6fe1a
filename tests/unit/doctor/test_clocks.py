"""What the doctor says of a GPU's clocks, with a GPU whose times and clocks are given."""

import io
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from evaluator.devices.gpu import ClockLook, Gpu, leased
from evaluator.doctor import clocks
from evaluator.doctor.clocks import report_of, spread_of
from evaluator.errors import InfraError
from evaluator.report.doctor_screen import render_clocks


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    made = Gpu(
        number=2,
        uuid=f"GPU-test-{os.getpid()}-{tmp_path.name}",
        name="NVIDIA H200",
        capability=(9, 0),
        memory_bytes=1,
        driver="1",
        nodes=(),
    )
    monkeypatch.setattr(clocks, "gpus", lambda: [made])
    monkeypatch.setattr(clocks, "look_at_clock", lambda _: ClockLook(1965, 41, ("power cap",)))
    monkeypatch.setattr(clocks, "max_sm_mhz", lambda _: 1980)
    yield made
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{made.uuid}.{kind}").unlink(missing_ok=True)


MOVING = [(60.0 + number / 10, 1980 - 5 * number) for number in range(41)]
STEADY = [(60.0, 1980)] * 41


@pytest.fixture
def sampler(monkeypatch):
    """Have the sampler print this; returns how it was started."""
    started = []

    def made(stdout="", stderr="", *, raises=None):
        def run(command, *, env, **_):
            started.append((command[-1], env["CUDA_VISIBLE_DEVICES"]))
            if raises is not None:
                raise raises
            return SimpleNamespace(stdout=stdout, stderr=stderr)

        monkeypatch.setattr(clocks.subprocess, "run", run)
        return started

    return made


def test_a_spread_is_the_middle_of_the_samples_in_any_order():
    spread = spread_of(list(reversed(MOVING)))
    assert (spread.samples, spread.low_us, spread.median_us, spread.high_us) == (41, 60.2, 62.0, 63.8)
    assert (spread.low_mhz, spread.median_mhz, spread.high_mhz) == (1790, 1880, 1970)


def test_the_command_locks_the_lowest_clock_that_the_gpu_held(gpu, sampler):
    started = sampler(json.dumps(MOVING))
    (report,) = clocks.clock_reports()
    assert started == [(gpu.uuid, gpu.uuid)]
    assert report.command == "sudo nvidia-smi -i 2 -lgc 1790,1790"
    assert report.undo == "sudo nvidia-smi -i 2 -rgc"
    assert (report.lock_mhz, report.max_mhz, report.throttled) == (1790, 1980, ["power cap"])
    assert "a clock that moves by 9.1%" in report.gain
    assert "about 4.8% longer" in report.gain


def test_a_clock_that_stays_is_said_to_gain_little(gpu):
    assert report_of(gpu, spread_of(STEADY), "").gain.startswith("little: the clock stayed within 0.0%")


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ({"stderr": "Traceback\nRuntimeError: no kernel image"}, "RuntimeError: no kernel image"),
        ({"stdout": json.dumps(MOVING[:9])}, "too few samples"),
        ({"stdout": '[["a", 1]]'}, "too few samples"),
        ({"stdout": "[1, 2]"}, "too few samples"),
        ({"raises": subprocess.TimeoutExpired("python", 120)}, "timed out after 120 seconds"),
    ],
)
def test_a_kernel_that_cannot_be_timed_is_said_with_the_reason(gpu, sampler, printed, why):
    sampler(**printed)
    (report,) = clocks.clock_reports()
    assert report.spread is None
    assert why in report.why_not
    assert report.command == "sudo nvidia-smi -i 2 -lgc 1980,1980"


def test_a_gpu_that_grades_is_not_measured(gpu, sampler):
    started = sampler(json.dumps(MOVING))
    with leased(gpu, 1.0):
        (report,) = clocks.clock_reports()
    assert "is busy with another grade" in report.why_not
    assert started == []


def test_a_driver_that_knows_no_clock_gets_no_command(gpu, monkeypatch):
    monkeypatch.setattr(clocks, "max_sm_mhz", lambda _: None)
    monkeypatch.setattr(clocks, "look_at_clock", lambda _: None)
    report = report_of(gpu, None, "no answer")
    assert (report.command, report.sm_mhz, report.lock_mhz) == ("", None, None)


def test_without_a_gpu_there_is_nothing_to_measure(monkeypatch):
    monkeypatch.setattr(clocks, "gpus", list)
    with pytest.raises(InfraError, match="no NVIDIA GPU is visible"):
        clocks.clock_reports()


def screen(*reports):
    stream = io.StringIO()
    render_clocks(reports, Console(file=stream, width=100))
    return stream.getvalue()


def test_the_screen_has_the_measurement_the_gain_and_the_command(gpu):
    text = screen(report_of(gpu, spread_of(MOVING), ""))
    for said in (
        "2: NVIDIA H200",
        "1965 MHz now, 1980 MHz at most; throttled: power cap",
        "60.2 to 63.8 µs, at 1790 to",
    ):
        assert said in " ".join(text.split())
    assert "sudo nvidia-smi -i 2 -lgc 1790,1790\n" in text
    assert "-rgc unlocks the clocks" in text
    assert "the GPU is busy" in screen(report_of(gpu, None, "the GPU is busy"))
