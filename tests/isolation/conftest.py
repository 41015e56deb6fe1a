"""One starter for a module and for each kind of wall that this machine can stand in for."""

import tempfile
from pathlib import Path

import pytest
from confinement import hear, make_starter, tell, without_namespaces

from evaluator.isolation import files
from evaluator.records import SandboxMode

collect_ignore = ["hostile.py"]  # A submission: it runs behind walls or not at all.


@pytest.fixture
def tmp_path():
    """A folder that every user may pass through; those on the way to pytest's are closed, again and again."""
    with tempfile.TemporaryDirectory(prefix="isolation-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


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
    """Spawn a runner with a probe, or `burdens:NAME`; all are killed at the end of the test."""
    children = []

    def start(starter, probe, **options):
        child = starter.spawn(probe if ":" in probe else f"probes:{probe}", **options)
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
