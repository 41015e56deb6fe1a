"""One starter for a module and for each kind of wall that this machine can stand in for."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from evaluator.isolation import Limits, SandboxMode, Starter, files
from evaluator.isolation.namespaces import Namespaces

HERE = Path(__file__).parent
SMALL = Limits(processes=50)


def make_starter(**options):
    options.setdefault("environment", {"OMP_NUM_THREADS": "2"})
    options.setdefault("preload", ("torch", "probes"))
    return Starter(extra_sys_path=[HERE], **options)


def without_namespaces(starter):
    """Make a starter believe that this machine refuses namespaces, as most containers do."""
    starter._machine = msgspec.structs.replace(
        starter.machine, namespaces=Namespaces.NONE, private_view=False, own_proc=False
    )


@pytest.fixture(scope="module", params=["full", "landlock"])
def starter(request):
    with pytest.MonkeyPatch.context() as patch, make_starter() as made:
        if request.param == "full":
            if not made.machine.private_view:
                pytest.skip(f"no private view here: {made.machine.refused}")
        else:
            if made.machine.landlock_abi < 6:
                pytest.skip(f"Landlock ABI {made.machine.landlock_abi} here")
            # The interpreter of the tests may lie in root's home; what the probes need is imported before.
            patch.setattr(files, "unreachable_for_others", lambda: None)
            without_namespaces(made)
        yield made


@pytest.fixture(scope="module")
def full(starter):
    """Only with all walls."""
    if not starter.walls.private_view:
        pytest.skip("needs the private view")
    return starter


@pytest.fixture(scope="module")
def with_proc(starter):
    """Only where a runner has a /proc to look at, its own or the machine's."""
    if starter.walls.private_view and not starter.machine.own_proc:
        pytest.skip("the kernel refuses a fresh /proc here")
    return starter


@pytest.fixture(scope="module")
def bare():
    with make_starter(mode=SandboxMode.NONE) as made:
        yield made


@pytest.fixture
def spawn():
    """Spawn a runner with a probe; all are killed at the end of the test."""
    children = []

    def start(starter, probe, **options):
        child = starter.spawn(f"probes:{probe}", **options)
        child.socket.settimeout(30)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()


@pytest.fixture
def ask(spawn):
    """Spawn a probe, put a question to it, give its answer."""

    def start(starter, probe, question=None, **options):
        child = spawn(starter, probe, **options)
        if question is not None:
            tell(child, question)
        return hear(child)

    return start


def tell(child, value):
    child.socket.sendall(json.dumps(value).encode() + b"\n")


def hear(child):
    line = b""
    while not line.endswith(b"\n"):
        piece = child.socket.recv(65536)
        assert piece, f"the probe ended: {child.wait_exit(5)} {child.output().text}"
        line += piece
    return json.loads(line)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
