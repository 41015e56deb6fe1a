"""Which walls let CUDA work, with memory passed as a descriptor and words that streams write and wait for?

    python docs/experiments/walls.py [FILE.json]

Every row is one runner, started by the product's own starter with some walls left out, or with some paths withheld.
"""

import argparse
import ctypes
import json
import mmap
import os
import socket
import sys
import time
from pathlib import Path

import msgspec
import torch

from evaluator.devices import driver
from evaluator.isolation import Limits, SandboxMode, Starter, supervision
from evaluator.isolation.cage import Cage
from evaluator.isolation.namespaces import Namespaces

_PAGE_BYTES = 4096
_LIMITS = Limits(memory_bytes=1 << 46)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path)
    target = parser.parse_args().target
    torch.zeros(1, device="cuda")
    memory = driver.create_memory(0, 64 << 20)
    page_at = os.memfd_create("page")
    os.ftruncate(page_at, _PAGE_BYTES)
    page = mmap.mmap(page_at, _PAGE_BYTES)
    register = driver.register_host(ctypes.addressof(ctypes.c_char.from_buffer(page)), _PAGE_BYTES)
    shared = torch.as_tensor(_Flat(memory.address, memory.size_bytes), device="cuda")
    rows = []
    everything = sorted(Path("/dev").glob("nvidia*"))
    nodes = [path for path in everything if not path.is_dir()]
    choose = supervision.choose_walls
    with Starter(extra_sys_path=[Path(__file__).parent], preload=["torch", "walls_entry"]) as starter:
        print(starter.machine, file=sys.stderr)
        full = choose(SandboxMode.FULL, starter.machine)
        variants = {
            "every wall": (full, nodes),
            "no Landlock": (msgspec.structs.replace(full, landlock=False), nodes),
            "no seccomp": (msgspec.structs.replace(full, seccomp=False), nodes),
            "no file view": (msgspec.structs.replace(full, private_view=False), nodes),
            "no namespaces, Landlock and own user": (
                msgspec.structs.replace(full, namespaces=Namespaces.NONE, private_view=False, cage=Cage.OWN_USER),
                nodes,
            ),
            "user namespace": (msgspec.structs.replace(full, namespaces=Namespaces.USER), nodes),
            "no walls": (choose(SandboxMode.NONE, starter.machine), nodes),
        }
        for left_out in nodes:
            variants[f"every wall, without {left_out}"] = (full, [node for node in nodes if node != left_out])
        for name, (walls, devices) in variants.items():
            supervision.choose_walls = lambda *_, walls=walls: walls
            shared[0], shared[1] = 42, 0
            torch.cuda.synchronize()
            page[:128] = bytes(128)
            row = {"walls": name, **one(starter, devices, memory, page_at, register), "written back": int(shared[1])}
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    text = json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, indent=1)
    if target:
        target.write_text(text)
    else:
        print(text)


def one(starter: Starter, devices: list[Path], memory: driver.Mapping, page_at: int, register: int) -> dict:
    try:
        child = starter.spawn("walls_entry:run", limits=_LIMITS, devices=devices)
    except Exception as error:  # noqa: BLE001 - it is the answer
        return {"failed": f"not started: {error}"[:300]}
    exported = driver.export_memory(memory)
    try:
        sizes = json.dumps({"memory_bytes": memory.size_bytes, "page_bytes": _PAGE_BYTES}).encode()
        socket.send_fds(child.socket, [sizes], [exported, page_at])
        child.socket.settimeout(40)
        answer = child.socket.recv(65536)
        if answer.startswith(b"queued"):
            time.sleep(0.05)
            driver.stream_write(torch.cuda.current_stream().cuda_stream, register, 1)
            torch.cuda.synchronize()
            answer = child.socket.recv(65536) if answer == b"queued" else answer[6:]
        return json.loads(answer)
    except Exception as error:  # noqa: BLE001 - it is the answer
        return {"failed": f"{type(error).__name__}: {error}"[:300], "said": child.output().text[-300:]}
    finally:
        os.close(exported)
        child.kill()


class _Flat:
    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


if __name__ == "__main__":
    main()
