"""Memory of a judge between two tensors."""

import subprocess
import sys

FAULTS = """
import ctypes, resource, sys
from evaluator.grading.request import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for number in range(20):
    tensors = [libc.malloc(4 << 20) for _ in range(8)]
    for tensor in tensors:
        libc.memset(tensor, 1, 4 << 20)
    for tensor in tensors:
        libc.free(tensor)
    if number == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how):
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_judge_keeps_the_memory_of_freed_tensors():
    assert page_faults("keep") < 1000
    assert page_faults("return") > 10_000
