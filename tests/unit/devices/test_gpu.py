from pathlib import Path

import pytest

from evaluator.devices.gpu import Gpu, GpuState, leased, visible
from evaluator.errors import InfraError
from evaluator.findings import Code
from evaluator.judge.backend.gpu_monitor import findings


@pytest.fixture
def gpu(tmp_path):
    made = Gpu(
        number=3,
        uuid=f"test-{tmp_path.name}",
        name="a GPU",
        capability=(9, 0),
        memory_bytes=1 << 30,
        driver="1",
        nodes=(),
    )
    yield made
    Path("/tmp", f"warpgrade-{made.uuid}.lock").unlink(missing_ok=True)


def test_a_gpu_is_for_one_grade_at_a_time(gpu):
    with leased(gpu, 1.0), pytest.raises(InfraError, match=r"GPU 3 .* is busy with another grade"), leased(gpu, 0.05):
        pytest.fail("the same GPU was leased twice")
    with leased(gpu, 0.05):
        pass


QUIET = GpuState(sm_mhz=1980, memory_mhz=3201, temperature_c=50, throttled=(), ecc_errors=0, processes=(), mig=False)


def codes(before=QUIET, looks=(QUIET, QUIET), after=QUIET):
    return [Code(each.code) for each in findings(before, list(looks), after)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"before": QUIET._replace(processes=(7,))}, Code.GPU_SHARED),
        ({"after": QUIET._replace(processes=(7,))}, Code.GPU_SHARED),
        ({"looks": [QUIET, QUIET._replace(throttled=("power cap",))]}, Code.GPU_THROTTLED),
        ({"looks": [QUIET, QUIET._replace(sm_mhz=1800)]}, Code.GPU_CLOCK_MOVED),
        ({"looks": [QUIET, QUIET._replace(memory_mhz=1600)]}, Code.GPU_CLOCK_MOVED),
        ({"after": QUIET._replace(ecc_errors=1)}, Code.GPU_ECC),
        ({"before": QUIET._replace(mig=True)}, Code.GPU_MIG),
    ],
)
def test_what_makes_a_gpus_times_doubtful_is_told(changes, code):
    assert codes(**changes) == [code]


def test_a_quiet_gpu_is_no_news():
    assert codes(looks=[QUIET, QUIET._replace(sm_mhz=1965, temperature_c=60)]) == []
    before = QUIET._replace(ecc_errors=4)
    assert codes(before=before, after=before) == []


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
