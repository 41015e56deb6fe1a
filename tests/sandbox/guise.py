"""Start a program as an ordinary user, or with the rights that a container engine leaves to root or to a user.

    python guise.py '{"user": 51234, "contained": true, "landlock": true, "open": ["/root/python"]}' PROGRAM ...

Runs as a program of its own, because nothing of this can be undone. As root, `open` lists folders that an ordinary
user must reach though they lie in a closed one (a Python in root's home): they are shown again on an empty cover of
that one, in a mount namespace that ends with the program.
"""

import errno
import json
import os
import platform
import stat
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaluator.sandbox.kernel import privileges, seccomp, syscalls

# Capabilities that Docker's default profile leaves to root: chown, dac_override, fowner, fsetid, kill, setgid, setuid,
# setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write and setfcap.
_CONTAINER_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
# System calls that the same profile refuses, among those the sandbox is built with.
_REFUSED = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "mount_setattr", "move_mount", "open_tree"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "bpf", "keyctl", "perf_event_open", "userfaultfd"),
)
_LANDLOCK = (
    syscalls.SYS_LANDLOCK_CREATE_RULESET,
    syscalls.SYS_LANDLOCK_ADD_RULE,
    syscalls.SYS_LANDLOCK_RESTRICT_SELF,
)
_SHARED_MEMORY = "size=64m,mode=1777"


def closed_above(path):
    """Return the topmost folder on the way to `path` without the execute bit for other users, if any."""
    return next((at for at in (*reversed(path.parents), path) if not at.stat().st_mode & stat.S_IXOTH), None)


def open_the_way_to(paths):
    covered = {}
    for path in dict.fromkeys(Path(path).resolve() for path in paths):
        cover = closed_above(path)
        if cover == path:
            sys.exit(f"{path} itself is closed to other users")
        if cover is not None:
            covered.setdefault(cover, []).append((path, os.open(path, os.O_PATH)))
    for cover, places in covered.items():
        syscalls.mount("tmpfs", cover, "tmpfs", 0, "size=1m,mode=755")
        for path, descriptor in places:
            path.mkdir(parents=True, exist_ok=True)
            syscalls.mount(f"/proc/self/fd/{descriptor}", path, flags=syscalls.MS_BIND | syscalls.MS_REC)


def refuse_what_a_container_refuses(landlock):
    machine = platform.machine()

    def number(numbers):
        return numbers.x86_64 if machine == "x86_64" else numbers.aarch64

    def refused(numbers, error):
        return [line for each in numbers for line in seccomp._on_call(each, [seccomp._return(seccomp._ERRNO | error)])]

    lines = [
        seccomp._instruction(seccomp._LOAD, seccomp._NUMBER),
        *refused([number(seccomp._CLONE3)], errno.ENOSYS),
        *seccomp._on_call(number(seccomp._CLONE), seccomp._clone_rule()),
        *refused((number(seccomp._REFUSED[name]) for name in _REFUSED), errno.EPERM),
        *refused(() if landlock else _LANDLOCK, errno.ENOSYS),
        seccomp._return(seccomp._ALLOW),
    ]
    seccomp.load(lines)


def keep_only(capabilities):
    for capability in set(range(64)) - set(capabilities):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    syscalls.set_capabilities(*capabilities)


def main(guise, argv):
    root = os.geteuid() == 0
    if root:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        open_the_way_to(guise["open"])
        if guise["contained"]:
            syscalls.mount("tmpfs", "/dev/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, _SHARED_MEMORY)
    elif guise["contained"]:
        # An ordinary user may install a seccomp filter only after PR_SET_NO_NEW_PRIVS.
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if guise["contained"]:
        refuse_what_a_container_refuses(guise["landlock"])
    if guise["user"] != os.geteuid():
        privileges.become(guise["user"])
    elif root:
        keep_only(_CONTAINER_CAPABILITIES)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
