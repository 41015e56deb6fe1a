"""Does an arena of the judge's under PyTorch's allocator hold what submissions allocate as they like?

    python docs/experiments/arena.py [FILE.json]

One process: memory made as the judge makes it, handed out by the runner's allocator through torch.cuda.MemPool.
"""

import argparse
import contextlib
import ctypes
import json
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import torch

from evaluator.devices import driver

_SOURCE = Path(__file__).parents[2] / "evaluator" / "runner" / "native" / "device_arena.cpp"
_ARENA_BYTES = 2 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path)
    target = parser.parse_args().target
    told: dict[str, object] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "arena.so")
        subprocess.run(["g++", "-O2", "-fPIC", "-shared", _SOURCE, "-o", library, "-ldl"], check=True)
        torch.zeros(1, device="cuda")
        memory = driver.create_memory(0, _ARENA_BYTES)
        ctypes.CDLL(str(library)).warpgrade_device_arena_install(
            ctypes.c_uint64(memory.address), ctypes.c_uint64(memory.size_bytes)
        )
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            str(library), "warpgrade_device_allocate", "warpgrade_device_free"
        )
        pool = torch.cuda.MemPool(allocator.allocator())
        for way in ("all threads", "this thread"):
            begin = {
                "all threads": torch._C._cuda_beginAllocateToPool,
                "this thread": torch._C._cuda_beginAllocateCurrentThreadToPool,
            }[way]
            begin(0, pool.id)
            try:
                told[way] = cases(memory)
            finally:
                torch._C._cuda_endAllocateToPool(0, pool.id)
        told["relu of 4 KiB in the pool, us"] = small_ops(pool)
        told["relu of 4 KiB outside, us"] = small_ops(None)
    text = json.dumps(told, indent=1)
    if target:
        target.write_text(text)
    print(text)


def cases(memory: driver.Mapping) -> dict[str, object]:
    def inside(tensor: torch.Tensor) -> bool:
        return memory.address <= tensor.data_ptr() < memory.address + memory.size_bytes

    x = torch.randn(1024, 1024, device="cuda")
    found: dict[str, object] = {"empty": inside(x), "relu": inside(torch.relu(x)), "item": inside(x.sum())}
    found["linear"] = inside(torch.nn.Linear(1024, 512).cuda()(x))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        found["other stream"] = inside(torch.relu(x))
    torch.cuda.synchronize()
    held = []
    thread = threading.Thread(target=lambda: held.append(torch.relu(x)))
    thread.start()
    thread.join()
    found["other thread"] = inside(held[0])
    weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    (x @ weight).sum().backward()
    found["gradient"] = inside(weight.grad)
    try:
        static, graph = torch.randn(1024, 1024, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            first = static * 2
            second = first + 1
            del first
            out = second * 3
        found["graph output"] = inside(out)
        other = [torch.randn(1024, 1024, device="cuda") for _ in range(50)]
        before = [each.clone() for each in other]
        graph.replay()
        torch.cuda.synchronize()
        found["graph right"] = bool(torch.allclose(out, (static * 2 + 1) * 3))
        found["graph harmed others"] = not all(torch.equal(a, b) for a, b in zip(other, before, strict=True))
    except Exception as error:  # noqa: BLE001 - it is the answer
        found["graph"] = f"{type(error).__name__}: {error}"[:300]
    return found


def small_ops(pool: torch.cuda.MemPool | None) -> float:
    with contextlib.nullcontext() if pool is None else torch.cuda.use_mem_pool(pool):
        x = torch.randn(1024, device="cuda")
        for _ in range(100):
            torch.relu(x)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10_000):
            torch.relu(x)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / 10_000 * 1e6


if __name__ == "__main__":
    main()
