import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluator.devices import gpu as gpu_module
from evaluator.devices.gpu import ClockLook, Gpu, GpuState, choose, leased, look_at_clock, state, visible
from evaluator.errors import InfraError
from evaluator.findings import Code
from evaluator.judge.clock.gpu_monitor import findings


@pytest.fixture
def gpu(tmp_path):
    made = Gpu(
        number=3,
        uuid=f"test-{os.getpid()}-{tmp_path.name}",
        name="a GPU",
        capability=(9, 0),
        memory_bytes=1 << 30,
        driver="1",
        nodes=(),
    )
    yield made
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{made.uuid}.{kind}").unlink(missing_ok=True)


def test_a_gpu_is_for_one_grade_at_a_time(gpu):
    with leased(gpu, 1.0), pytest.raises(InfraError, match=r"GPU 3 .* is busy with another grade"), leased(gpu, 0.05):
        pytest.fail("the same GPU was leased twice")
    with leased(gpu, 0.05):
        pass


class NoDriver(Exception):
    """Stands in for NVMLError."""


def without_driver():
    raise NoDriver("NVML Shared Library Not Found")


@pytest.mark.parametrize(
    "nvml",
    [
        {"nvmlInit": without_driver},
        {"nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: 0},
    ],
    ids=["without_driver", "without_gpu"],
)
def test_a_machine_without_a_gpu_is_told_the_emulated_device(monkeypatch, nvml):
    """The first lines of code in the README name device cuda."""
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NoDriver, **nvml))
    with pytest.raises(InfraError) as raised:
        choose(None)
    assert "--device emulated" in raised.value.hint


QUIET = GpuState(sm_mhz=1980, memory_mhz=3201, temperature_c=50, throttled=(), ecc_errors=0, processes=(), mig=False)


def codes(before=QUIET, looks=(QUIET, QUIET), after=QUIET):
    return [Code(each.code) for each in findings(before, list(looks), after)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"before": QUIET._replace(processes=(7,))}, Code.GPU_SHARED),
        ({"after": QUIET._replace(processes=(7,))}, Code.GPU_SHARED),
        ({"looks": [QUIET, QUIET._replace(memory_mhz=1600)]}, Code.GPU_CLOCK_MOVED),
        ({"after": QUIET._replace(ecc_errors=1)}, Code.GPU_ECC),
        ({"before": QUIET._replace(mig=True)}, Code.GPU_MIG),
    ],
)
def test_what_makes_a_gpus_times_doubtful_is_told(changes, code):
    assert codes(**changes) == [code]


def test_a_quiet_gpu_is_no_news():
    assert codes(looks=[QUIET, QUIET._replace(memory_mhz=3200, temperature_c=60)]) == []
    before = QUIET._replace(ecc_errors=4)
    assert codes(before=before, after=before) == []


@pytest.fixture
def nvml(monkeypatch):
    """Put an NVML of one GPU in the place of pynvml; `opened` counts its starts."""

    def made(bits=0, *, fails=False):
        def clock_of(_, kind):
            if fails:
                raise RuntimeError("GPU is lost")
            return 1980 if kind == "SM" else 3201

        opened = []
        answers = {
            "NVMLError": RuntimeError,
            "NVML_CLOCK_SM": "SM",
            "NVML_CLOCK_MEM": "MEM",
            "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
            "NVML_VOLATILE_ECC": 0,
            "NVML_TEMPERATURE_GPU": 0,
            "nvmlClocksEventReasonGpuIdle": 1,
            "nvmlClocksEventReasonSwPowerCap": 4,
            "nvmlClocksThrottleReasonHwSlowdown": 8,
            "nvmlInit": lambda: opened.append(1),
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetClockInfo": clock_of,
            "nvmlDeviceGetTemperature": lambda *_: 51,
            "nvmlDeviceGetTotalEccErrors": lambda *_: 2,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                SimpleNamespace(pid=7),
                SimpleNamespace(pid=os.getpid()),
            ],
            "nvmlDeviceGetMigMode": lambda _: (1, 0),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: bits,
        }
        monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**answers))
        return opened

    gpu_module._open.cache_clear()
    yield made
    gpu_module._open.cache_clear()


@pytest.mark.parametrize(
    ("bits", "throttled"), [(0, ()), (1, ()), (4, ("power cap",)), (12, ("power cap", "hardware slowdown"))]
)
def test_a_look_at_the_clock_opens_nvml_once_and_does_not_count_idle_clocks(gpu, nvml, bits, throttled):
    opened = nvml(bits)
    for _ in range(3):
        assert look_at_clock(gpu) == ClockLook(sm_mhz=1980, temperature_c=51, throttled=throttled)
    assert len(opened) == 1


def test_the_state_of_a_gpu_is_read_by_the_same_nvml(gpu, nvml):
    opened = nvml(4)
    for _ in range(3):
        assert state(gpu) == GpuState(1980, 3201, 51, ("power cap",), ecc_errors=2, processes=(7,), mig=True)
    look_at_clock(gpu)
    assert len(opened) == 1


def test_without_a_driver_there_is_no_state(gpu, nvml, monkeypatch):
    nvml()
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", without_driver)
    monkeypatch.setattr(sys.modules["pynvml"], "NVMLError", NoDriver)
    with pytest.raises(InfraError, match="does not answer"):
        state(gpu)
    assert look_at_clock(gpu) is None


def test_a_driver_that_does_not_answer_ends_no_grade(gpu, nvml):
    nvml(fails=True)
    assert look_at_clock(gpu) is None


def named(number, uuid):
    return Gpu(number=number, uuid=uuid, name="a GPU", capability=(9, 0), memory_bytes=1, driver="1", nodes=())


@pytest.mark.parametrize(
    ("variable", "numbers"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("GPU-bb1", [1]),
        ("GPU-bb", []),  # Two begin so.
        ("GPU-aa,GPU-bb2", [0, 2]),
        ("1,7,2", [1]),
        ("1,1,2", [1]),
        ("-1", []),
        ("MIG-aa", []),
    ],
)
def test_a_job_sees_the_gpus_that_its_scheduler_gave_it(variable, numbers):
    found = [named(0, "GPU-aa"), named(1, "GPU-bb1"), named(2, "GPU-bb2")]
    assert [gpu.number for gpu in visible(found, variable)] == numbers
