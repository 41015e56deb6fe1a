"""One fork server for each module and for each kind of sandbox that the machine can provide."""

import tempfile
from pathlib import Path

import pytest
from confinement import hear, make_fork_server, tell, without_namespaces

from evaluator.records import SandboxMode
from evaluator.sandbox import visible_files

collect_ignore = ["hostile.py"]  # A submission, which may run only in a sandbox.


@pytest.fixture
def tmp_path():
    """A folder open to every user; pytest keeps closing the parents of its own `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="isolation-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module", params=["full", "landlock"])
def fork_server(request):
    with pytest.MonkeyPatch.context() as patch, make_fork_server() as made:
        if request.param == "full":
            if not made.machine.private_view:
                pytest.skip(f"no private view here: {made.machine.refused}")
        else:
            if made.machine.landlock_abi < 6:
                pytest.skip(f"Landlock ABI {made.machine.landlock_abi} here")
            # The interpreter of the tests may lie in root's home. The probes' imports are complete before.
            patch.setattr(visible_files, "unreachable_for_others", lambda: None)
            without_namespaces(made)
        yield made


@pytest.fixture(scope="module")
def full(fork_server):
    """A fork server with all layers of the sandbox."""
    if not fork_server.layers.private_view:
        pytest.skip("needs the private view")
    return fork_server


@pytest.fixture(scope="module")
def bare():
    with make_fork_server(mode=SandboxMode.NONE) as made:
        yield made


@pytest.fixture
def spawn():
    """Spawn a runner with a probe or `burdens:NAME`; the end of the test kills every runner."""
    children = []

    def start(fork_server, probe, **options):
        child = fork_server.spawn(probe if ":" in probe else f"probes:{probe}", **options)
        child.socket.settimeout(120)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()


@pytest.fixture
def ask(spawn):
    """Spawn a probe, send a question, return the answer."""

    def start(fork_server, probe, question=None, **options):
        child = spawn(fork_server, probe, **options)
        if question is not None:
            tell(child, question)
        return hear(child)

    return start
