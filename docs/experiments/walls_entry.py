"""Inside of a runner: does CUDA work behind these walls, with memory and words that the judge shares?"""

import array
import json
import mmap
import os
import socket
import time
import traceback
from pathlib import Path

import torch

from evaluator.devices import driver


def run(sock: socket.socket, private: Path) -> None:
    """Try one thing after the other, and tell the judge how far it went."""
    del private
    told: dict[str, object] = {}
    began = time.monotonic()
    try:
        message, ancillary, _, _ = sock.recvmsg(1024, 256)
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2])
        memory_at, page_at = descriptors[0], descriptors[1]
        sizes = json.loads(message)
        torch.zeros(1, device="cuda")
        told["cuda"] = f"context in {time.monotonic() - began:.2f} s"
        matrix = torch.randn(1024, 1024, device="cuda")
        told["cublas"] = bool(torch.isfinite(matrix @ matrix).all())
        mapping = driver.import_memory(0, memory_at, sizes["memory_bytes"])
        shared = torch.as_tensor(_Flat(mapping.address, mapping.size_bytes), device="cuda")
        told["imported memory"] = int(shared[0])
        shared[1] = 77
        page = mmap.mmap(page_at, sizes["page_bytes"])
        import ctypes

        address = driver.register_host(ctypes.addressof(ctypes.c_char.from_buffer(page)), sizes["page_bytes"])
        stream = torch.cuda.current_stream().cuda_stream
        driver.stream_wait(stream, address, 1)
        driver.stream_write(stream, address + 64, 5)
        sock.send(b"queued")
        torch.cuda.synchronize()
        told["stream words"] = page[64]
        told["devices seen"] = torch.cuda.device_count()
        told["nodes"] = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
        told["rss_mib"] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20
        told["virtual_gib"] = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 >> 30
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        told["failed"] = f"{type(error).__name__}: {error}"[:300]
        told["where"] = traceback.format_exc()[-300:]
    told["seconds"] = round(time.monotonic() - began, 2)
    sock.send(json.dumps(told).encode())
    os._exit(0)


class _Flat:
    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }
