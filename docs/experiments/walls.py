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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch

from evaluator.devices import driver, gpu
from evaluator.records import SandboxMode
from evaluator.sandbox import ForkServer, Limits, fork_server_client
from evaluator.sandbox.kernel.namespaces import Namespaces
from evaluator.sandbox.kernel.process_group import ProcessGroup

_PAGE_BYTES = 4096
_LIMITS = Limits(memory_bytes=1 << 46)
_ANSWER_S = 40.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path)
    target = parser.parse_args().target
    judge = Judge()
    rows = []
    tools = Path("/dev/nvidia-uvm-tools")
    nodes = [*gpu.choose(None).nodes, *([tools] if tools.exists() else [])]
    choose = fork_server_client.choose_layers
    with ForkServer(extra_sys_path=[Path(__file__).parent], preload=["torch", "walls_entry"]) as fork_server:
        print(fork_server.machine, file=sys.stderr)
        full = choose(SandboxMode.FULL, fork_server.machine)
        variants = {
            "every wall": (full, nodes),
            "no Landlock": (msgspec.structs.replace(full, landlock=False), nodes),
            "no seccomp": (msgspec.structs.replace(full, seccomp=False), nodes),
            "no file view": (msgspec.structs.replace(full, private_view=False), nodes),
            "no namespaces, Landlock and own user": (
                msgspec.structs.replace(
                    full, namespaces=Namespaces.NONE, private_view=False, process_group=ProcessGroup.OWN_USER
                ),
                nodes,
            ),
            "user namespace": (msgspec.structs.replace(full, namespaces=Namespaces.USER), nodes),
            "no walls": (choose(SandboxMode.NONE, fork_server.machine), nodes),
        }
        for left_out in nodes:
            variants[f"every wall, without {left_out}"] = (full, [node for node in nodes if node != left_out])
        for name, (walls, devices) in variants.items():
            fork_server_client.choose_layers = lambda *_, walls=walls: walls
            row = {"walls": name, **judge.asked(lambda: Walled(fork_server, devices))}  # noqa: B023 - called at once
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    text = json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, indent=1)
    if target:
        target.write_text(text)
    else:
        print(text)


class Runner(Protocol):
    """A process with walls_entry.py in it, at the other end of `socket`."""

    socket: socket.socket

    def said(self) -> str:
        """Kill it, and give what it printed last."""


class Walled:
    """A runner of the product's own."""

    def __init__(self, fork_server: ForkServer, devices: list[Path]) -> None:
        self._child = fork_server.spawn("walls_entry:run", limits=_LIMITS, devices=devices)
        self.socket = self._child.socket

    def said(self) -> str:
        self._child.kill()
        return self._child.output().text[-300:]


class Judge:
    """The judge's side: memory and a page that a runner is given, and the word that it waits for."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        self._memory = driver.create_memory(0, 64 << 20)
        self._page_at = os.memfd_create("page")
        os.ftruncate(self._page_at, _PAGE_BYTES)
        self._page = mmap.mmap(self._page_at, _PAGE_BYTES)
        self._register = driver.register_host(ctypes.addressof(ctypes.c_char.from_buffer(self._page)), _PAGE_BYTES)
        self._shared = torch.as_tensor(_Flat(self._memory.address, self._memory.size_bytes), device="cuda")

    def asked(self, make: Callable[[], Runner]) -> dict[str, Any]:
        """Make a runner, have it try everything, and say how far it came; `written back` is 77 where it wrote."""
        self._shared[0], self._shared[1] = 42, 0
        torch.cuda.synchronize()
        self._page[:128] = bytes(128)
        try:
            runner = make()
        except Exception as error:  # noqa: BLE001 - it is the answer
            return {"failed": f"not started: {error}"[:300]}
        return {**self._told(runner), "written back": int(self._shared[1])}

    def _told(self, runner: Runner) -> dict[str, Any]:
        exported = driver.export_memory(self._memory)
        failed, answer = None, b""
        try:
            sizes = json.dumps({"memory_bytes": self._memory.size_bytes, "page_bytes": _PAGE_BYTES}).encode()
            socket.send_fds(runner.socket, [sizes], [exported, self._page_at])
            runner.socket.settimeout(_ANSWER_S)
            answer = runner.socket.recv(65536)
            if answer.startswith(b"queued"):
                time.sleep(0.05)
                driver.stream_write(torch.cuda.current_stream().cuda_stream, self._register, 1)
                torch.cuda.synchronize()
                answer = runner.socket.recv(65536) if answer == b"queued" else answer[6:]
        except Exception as error:  # noqa: BLE001 - it is the answer
            failed = f"{type(error).__name__}: {error}"[:300]
        finally:
            os.close(exported)
        said = runner.said()
        return json.loads(answer) if answer and failed is None else {"failed": failed or "no answer", "said": said}


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
