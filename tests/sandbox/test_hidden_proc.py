"""A container that hides parts of its /proc, as Podman's do: the kernel refuses a fresh /proc to its namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# A cover on a part of /proc, and a further user namespace, in which the cover cannot be taken off.
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount"]
_HIDE = f'mount -t tmpfs none /proc/bus && exec {" ".join(NAMESPACES)} "$@"'
SUBMISSION = (
    "import torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n"
    "    def forward(self, x):\n        return torch.relu(x)\n"
)


def in_container(command):
    return subprocess.run(
        [*NAMESPACES, "sh", "-c", _HIDE, "sh", *command], check=False, capture_output=True, text=True, timeout=600
    )


@pytest.fixture(autouse=True)
def _namespaces():
    done = in_container(["true"])
    if done.returncode:
        pytest.skip(f"no such container here: {done.stderr.strip()}")


def test_no_view_is_promised_without_a_proc_of_its_own():
    """A runner loads libraries through /proc/self/fd: in a view without /proc, each submission failed to build."""
    code = (
        "import json; from evaluator.sandbox.available_layers import examine; found = examine();"
        "print(json.dumps([found.namespaces, found.private_view, found.refused['private-file-view']]))"
    )
    done = in_container([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    namespaces, private_view, reason = json.loads(done.stdout)
    assert (namespaces, private_view) == ("none", False)
    assert "refuses a fresh /proc" in reason


@pytest.mark.slow
def test_a_right_submission_is_correct_there(tmp_path):
    (tmp_path / "right.py").write_text(SUBMISSION)
    main = "import sys; from evaluator.commands.main import run; sys.exit(run(sys.argv[1:]))"
    words = ["grade", "relu", str(tmp_path / "right.py"), "--device", "cpu", "--json", "--no-ready"]
    done = in_container([sys.executable, "-c", main, *words, "--output", str(tmp_path / "card.json")])
    card = json.loads(done.stdout)
    assert card["status"] == "correct", card["reason"]
    assert "private-file-view" in card["sandbox"]["missing"]
    assert Path(tmp_path / "card.json").is_file()
