"""Deaths of a runner: the next step fits the signal and the device."""

import pytest

from evaluator.findings import ENTRIES, Code
from evaluator.findings.running import HOST_READS_GPU
from evaluator.judge.faults.runner_faults import Stage, death
from evaluator.records import DeviceKind, Status
from evaluator.sandbox import ExitInfo

USUAL = ENTRIES[Code.RUNNER_DIED].next_step


@pytest.mark.parametrize(
    ("signal", "device", "step"),
    [
        ("SIGSEGV", DeviceKind.CUDA, HOST_READS_GPU),
        ("SIGABRT", DeviceKind.CUDA, USUAL),
        ("SIGSEGV", DeviceKind.EMULATED, USUAL),
        ("SIGSEGV", DeviceKind.CPU, USUAL),
        (None, DeviceKind.CUDA, USUAL),
    ],
)
def test_a_segmentation_fault_on_a_gpu_is_of_host_code(signal, device, step):
    info = ExitInfo(exit_code=None if signal else 1, signal=signal, out_of_memory=False, by_judge=False)
    fault = death(info, Stage.CALL, device, "")
    assert (fault.status, fault.finding.code) == (Status.RUNTIME_ERROR, Code.RUNNER_DIED.value)
    assert fault.finding.next_step == step
