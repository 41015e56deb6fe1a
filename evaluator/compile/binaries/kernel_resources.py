"""Parser for kernel resource usage in the output of `ptxas -v`."""

import re

from evaluator.cuda_source.kernel_names import plain_name
from evaluator.records import KernelResources

VERBOSE = "-Xptxas=-v"
_MOST = 64
_ENTRY = re.compile(r"ptxas info\s+: Compiling entry function '([^']{1,4096})'")
_STACK = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
_USED = re.compile(r"ptxas info\s+: Used (\d{1,9}) registers(.*)")
_SHARED = re.compile(r"(\d{1,9})(?:\+\d{1,9})? bytes smem")


def kernel_resources(log: str) -> list[KernelResources]:
    r"""Parse the kernels of a build log, most registers first.

    The log may contain submission text. A forged ptxas line misdescribes a kernel, without any advantage. Dynamic
    shared memory is not included.

    >>> kernel_resources("ptxas info    : Compiling entry function '_Z4reluPf' for 'sm_90a'\n"
    ...     "ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem\n")[0].shared_bytes
    1024
    """
    kernels: dict[str, KernelResources] = {}
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if (entry := _ENTRY.search(line)) is not None:
            name, stack = entry[1], (0, 0, 0)
        elif (frame := _STACK.search(line)) is not None and name:
            stack = int(frame[1]), int(frame[2]), int(frame[3])
        elif (used := _USED.search(line)) is not None and name:
            shared = _SHARED.search(used[2])
            kernels[name] = KernelResources(plain_name(name), int(used[1]), int(shared[1]) if shared else 0, *stack)
            name = ""
    return sorted(kernels.values(), key=lambda kernel: (-kernel.registers, kernel.name))[:_MOST]
