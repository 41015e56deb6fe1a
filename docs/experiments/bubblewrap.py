"""Does CUDA work inside of bubblewrap, with memory passed as a descriptor and words that streams write and wait for?

    python docs/experiments/bubblewrap.py [FILE.json] [--bwrap PROGRAM]

The judge's side and the runner's are those of walls.py; only who builds the walls is another. Needs root, to be an
ordinary user too.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from walls import Judge

from evaluator.devices import gpu

_HERE = Path(__file__).parent
_NOBODY = 65534
_TIMEOUT_S = 60.0
_ENTRY = """
import sys, socket
sys.path[:0] = ["/src", "/src/experiments"]
from pathlib import Path
import walls_entry
walls_entry.run(socket.socket(fileno=int(sys.argv[1])), Path("/tmp"))
"""
_VIEW = [
    *("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"),
    *("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
    *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"),
]
_VARIANTS = {
    "bubblewrap, root": (0, []),
    "bubblewrap, root, no capabilities": (0, ["--cap-drop", "ALL"]),
    "bubblewrap, ordinary user": (_NOBODY, []),
    "bubblewrap, ordinary user, --disable-userns": (_NOBODY, ["--unshare-user", "--disable-userns"]),
    "bubblewrap, ordinary user, --disable-userns, /sys": (
        _NOBODY,
        ["--unshare-user", "--disable-userns", "--ro-bind", "/sys", "/sys"],
    ),
    "bubblewrap, ordinary user, --disable-userns, without /dev/nvidia-uvm": (
        _NOBODY,
        ["--unshare-user", "--disable-userns", "--tmpfs", "/nothing"],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path)
    parser.add_argument("--bwrap", default=shutil.which("bwrap"))
    options = parser.parse_args()
    if options.bwrap is None:
        raise SystemExit("there is no bwrap on the PATH")
    version = subprocess.run([options.bwrap, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    judge, all_nodes = Judge(), list(map(str, gpu.choose(None).nodes))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder)
        sources.chmod(0o755)
        shutil.copytree(_HERE.parents[1] / "evaluator", sources / "evaluator")
        shutil.copytree(_HERE, sources / "experiments")
        for name, (user, more) in _VARIANTS.items():
            nodes = [node for node in all_nodes if not name.endswith(f"without {node}")]
            row = {"walls": name, **judge.asked(lambda: Wrapped(options.bwrap, sources, user, [*more], nodes))}  # noqa: B023 - called at once
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    text = json.dumps({"bubblewrap": version, "rows": rows}, indent=1)
    if options.target:
        options.target.write_text(text)
    else:
        print(text)


class Wrapped:
    """A runner that bubblewrap made."""

    def __init__(self, bwrap: str, sources: Path, user: int, more: list[str], nodes: list[str]) -> None:
        self.socket, its_end = socket.socketpair()
        devices = [word for node in nodes for word in ("--dev-bind", node, node)]
        python = [sys.executable, "-B", "-W", "ignore", "-c", _ENTRY, str(its_end.fileno())]
        view = [*_VIEW, *devices, *more, "--ro-bind", str(sources), "/src"]
        # Where Python is not below /usr, its own folders too.
        for prefix in {sys.prefix, sys.base_prefix}:
            if not Path(prefix).is_relative_to("/usr"):
                view += ["--ro-bind", prefix, prefix]
        with its_end:
            self._process = subprocess.Popen(
                [bwrap, *view, "--", *python],
                env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(its_end.fileno(),),
                user=user,
                group=user,
                extra_groups=[],
            )

    def said(self) -> str:
        """Kill it, and give what it printed last."""
        self._process.kill()
        output, _ = self._process.communicate(timeout=_TIMEOUT_S)
        return output.decode(errors="replace")[-300:]


if __name__ == "__main__":
    main()
