"""Kill a batch, judges, runners and compilers at random, fill the disk once, and examine the remains.

    python -m benchmarks.batch.batch_chaos /tmp/chaos --submissions 200 --kills 20

It makes submissions of known outcome for the emulator, starts `warpgrade batch` on them as often as it is killed, and
kills random processes below it meanwhile. The folder of the run and the temporary folder lie on a small file system,
which is full for the time of one more start. Counted is what happened: a batch that ended before it was killed is
started once more, and a disk counts as full where the batch gave up on it. At the end the batch must have been killed
as often as was asked for and have given up once, there must be a card for each submission, each with its verdict, no
card may have been made twice, and nothing may be left in the temporary folder. Exit status 1 where that is not so.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status
from evaluator.sandbox.scratch_folders import remove_abandoned

TOP = Path(__file__).parents[2]
_LONGEST_S = 3600.0
_SLOWEST_S = 150.0
"""Time after which a session is killed, even with too few cards."""
_GIVING_UP_S = 600.0
"""On a full disk each grade is tried three times, builds included, before writing the card fails."""
_DISK = "512m"
_GAVE_UP = 3
"""Exit code of a batch on a full disk."""
_ALL_GRADED = (0, 1)

_HEAD = """import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
"""
_KERNEL = """
source = r'''
#include <torch/extension.h>
__global__ void relu_kernel(const float* in, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = {expression};
}}
torch::Tensor relu(torch::Tensor x) {{
    auto out = torch::empty_like(x);
    int n = x.numel();
    relu_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
'''
extension = load_inline("chaos_{name}", cpp_sources="torch::Tensor relu(torch::Tensor x);", cuda_sources=source,
                        functions=["relu"])
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
"""
_PLAIN = """
class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
KINDS = {
    "right": (_KERNEL.format(expression="in[i] > 0 ? in[i] : 0", name="right"), Status.CORRECT),
    "wrong": (_KERNEL.format(expression="in[i] > 0 ? in[i] : 1", name="wrong"), Status.WRONG_RESULT),
    "past_the_end": (_KERNEL.format(expression="in[i + n] > 0", name="past"), Status.RUNTIME_ERROR),
    "not_compiling": (_KERNEL.format(expression="in[i] +", name="broken"), Status.BUILD_ERROR),
    "plain": (_PLAIN.format(body="return torch.relu(x)"), Status.CORRECT),
    "plain_wrong": (_PLAIN.format(body="return torch.relu(x) + 1"), Status.WRONG_RESULT),
    "crashing": (_PLAIN.format(body="import os; os.abort()"), Status.RUNTIME_ERROR),
    "killing_itself": (_PLAIN.format(body="import os; os.kill(os.getpid(), 9)"), Status.RUNTIME_ERROR),
    "hanging": (_PLAIN.format(body="import time; time.sleep(600)"), Status.TIMEOUT),
    "not_python": ("class ModelNew(:\n", Status.BUILD_ERROR),
}
_RARE = {"hanging": 25, "not_compiling": 10}
"""Slow kinds: one submission in fifty, at the given positions."""


class Wish(NamedTuple):
    """Options of the command line."""

    folder: Path
    submissions: int
    kills: int
    jobs: int
    seed: int
    every: float


def main() -> int:
    """Run the sessions and print the result."""
    wish = _parsed()
    chance = random.Random(wish.seed)
    expected = _hand_in(wish)
    with _small_disk(wish.folder / "disk") as disk:
        story = _story(wish, chance, disk, expected)
    (wish.folder / "story.json").write_text(json.dumps(story, indent=1) + "\n")
    print(json.dumps({key: value for key, value in story.items() if key != "sessions"}, indent=1))
    return 1 if story["faults"] else 0


def _parsed() -> Wish:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder for all that is made")
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20, help="of the batch itself")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--every", type=float, default=10.0, help="mean time between kills of other processes, in s")
    wish = Wish(**vars(parser.parse_args()))
    wish.folder.mkdir(parents=True, mode=0o755)
    return wish


def _hand_in(wish: Wish) -> dict[str, Status]:
    """Write distinct submissions of all kinds; return the expected status of each."""
    folder = wish.folder / "submissions/relu"
    folder.mkdir(parents=True)
    common = [kind for kind in KINDS if kind not in _RARE]
    expected = {}
    for number in range(wish.submissions):
        rare = (kind for kind, place in _RARE.items() if number % 50 == place)
        kind = next(rare, common[number % len(common)])
        name = f"{number:03}_{kind}"
        source, expected[name] = KINDS[kind]
        (folder / f"{name}.py").write_text(f"{_HEAD}{source}# {number}\n")
    return expected


@contextlib.contextmanager
def _small_disk(place: Path) -> Iterator[Path]:
    """Mount a small file system. Needs root."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=711", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _story(wish: Wish, chance: random.Random, disk: Path, expected: dict[str, Status]) -> dict[str, object]:
    began_s = time.monotonic()
    temporary = disk / "tmp"
    temporary.mkdir(mode=0o711)
    seen: dict[str, str] = {}
    faults: list[str] = []
    sessions: list[dict[str, object]] = []
    full_at = wish.kills // 2
    batch_killed = disk_full = 0
    for number in range(2 * wish.kills + 1):  # Spare sessions: a batch may end before the kill.
        full = number == full_at
        session = _session(wish, chance, disk, full=full)
        sessions.append(session)
        batch_killed += not full and session["exit"] == -signal.SIGKILL
        disk_full += full and session["exit"] == _GAVE_UP
        now = _made(disk)
        lost = sorted(seen.keys() - now.keys())
        twice = sorted(name for name in seen.keys() & now.keys() if now[name] != seen[name])
        faults += [f"session {number}: {name} was lost" for name in lost]
        faults += [f"session {number}: {name} was graded twice" for name in twice]
        seen = now
        print(f"session {number}: {len(now)} cards, {session}", file=sys.stderr, flush=True)
        if session["exit"] in _ALL_GRADED or (batch_killed >= wish.kills and number >= full_at):
            break
    if batch_killed != wish.kills:
        faults.append(f"the batch was killed {batch_killed} times, not {wish.kills}: give it more submissions")
    if disk_full != 1:
        faults.append(f"the batch gave up on a full disk {disk_full} times, not once")
    process = _start(wish, disk, "--retry", "infra")
    _, said = process.communicate(timeout=_LONGEST_S)
    cards = _cards(disk)
    for name, status in expected.items():
        if name not in cards:
            faults.append(f"{name} has no card")
        elif cards[name].status is not status:
            reason = cards[name].reason
            faults.append(f"{name} is {cards[name].status}, not {status}: {reason.message if reason else ''}"[:300])
            shutil.copy(disk / f"run/cards/relu/{name}.json", wish.folder)
    remove_abandoned(temporary)
    left = sorted(path.name for path in temporary.glob("warpgrade*"))
    faults += [f"{name} is left in the temporary folder" for name in left]
    return {
        "submissions": len(expected),
        "cards": len(cards),
        "batch_killed": batch_killed,
        "disk_full": disk_full,
        "others_killed": sum(int(str(session["killed"])) for session in sessions),
        "last_exit": process.returncode,
        "said": said.decode(errors="replace").splitlines()[-1:],
        "wall_s": round(time.monotonic() - began_s),
        "faults": faults,
        "sessions": sessions,
    }


def _session(wish: Wish, chance: random.Random, disk: Path, *, full: bool) -> dict[str, object]:
    """Start the batch, kill descendants for a while, then the batch; with a full disk, wait for its failure."""
    filler = disk / "filler"
    process = _start(wish, disk)
    killed = 0
    before = _count(disk)
    until_s = time.monotonic() + _SLOWEST_S
    if full:
        time.sleep(chance.uniform(6, 10))
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        until_s = time.monotonic() + _GIVING_UP_S
    some = chance.randrange(12)
    next_kill_s = time.monotonic() + chance.expovariate(1 / wish.every)
    while time.monotonic() < until_s and process.poll() is None:
        time.sleep(chance.uniform(0.1, 1.0))
        if _count(disk) - before >= some and not full:
            until_s = min(until_s, time.monotonic() + chance.uniform(0, 3))
        if not full and time.monotonic() > next_kill_s:
            killed += _kill_one(process, chance)
            next_kill_s = time.monotonic() + chance.expovariate(1 / wish.every)
    process.kill()
    process.communicate()
    filler.unlink(missing_ok=True)
    return {"killed": killed, "exit": process.returncode, "full": full}


def _kill_one(process: "subprocess.Popen[bytes]", chance: random.Random) -> int:
    """Kill a random process below the batch: a worker, a judge, a starter, a warden, a runner, a compiler."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
        if below:
            chance.choice(below).send_signal(signal.SIGKILL)
            return 1
    return 0


def _start(wish: Wish, disk: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(TOP / "cli.py"), "batch", str(wish.folder / "submissions"), "--run", "run"]
    terms = ["--device", "emulated", "--size", "awkward", "--timeout", "10", "--jobs", str(wish.jobs)]
    return subprocess.Popen(
        [*command, *terms, *options],
        cwd=disk,
        env={**os.environ, "TMPDIR": str(disk / "tmp"), "WARPGRADE_CACHE": str(wish.folder / "cache")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _count(disk: Path) -> int:
    return len(list((disk / "run/cards/relu").glob("*.json")))


def _cards(disk: Path) -> dict[str, Scorecard]:
    return {path.stem: read_card(path) for path in (disk / "run/cards/relu").glob("*.json")}


def _made(disk: Path) -> dict[str, str]:
    return {name: card.graded_at for name, card in _cards(disk).items() if card.status is not Status.INFRA_ERROR}


if __name__ == "__main__":
    sys.exit(main())
