"""Run a program that may write in its own folder only: a naive grader protects nothing, and cheats write files.

    python confine.py FOLDER PROGRAM ARGUMENT…

Landlock keeps it, and all that it starts, from writing anywhere else and, from Linux 6.12 on, from signalling processes
outside. The environment is taken from the variable CONFINED, as JSON. Without Landlock nothing is run (exit code 77).
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaluator.sandbox.kernel import landlock, syscalls

NO_LANDLOCK = 77


def main() -> None:
    """Restrict the process with Landlock, then execute the program."""
    folder, *command = sys.argv[1:]
    if landlock.abi() == 0:
        sys.exit(NO_LANDLOCK)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    devices = [(Path(name), landlock.DEVICE) for name in ("/dev/null", "/dev/urandom", "/dev/random")]
    if any(Path("/dev").glob("nvidia*")):  # CUDA writes thread names below /proc.
        devices += [(path, landlock.DEVICE) for path in Path("/dev").glob("nvidia*") if path.is_char_device()]
        devices += [(Path("/proc"), landlock.WRITE_IN_PLACE)]
    landlock.restrict([(Path("/"), landlock.READ), (Path(folder), landlock.EVERYTHING), *devices])
    os.execve(command[0], command, json.loads(os.environ["CONFINED"]))


if __name__ == "__main__":
    main()
