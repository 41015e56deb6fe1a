"""The same submissions graded one by one, and by a batch with one job: time, verdicts, speedups with their intervals.

    python -m benchmarks.batch.batch_against_single --device cpu --size small

Exit status 1 where the batch is slower, a verdict differs, or two intervals of a speedup do not overlap.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evaluator.files.card_files import read_card
from evaluator.paths import data_dir
from evaluator.records import Scorecard

_CLI = [sys.executable, str(Path(__file__).parents[2] / "cli.py")]
_PLAIN = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {body}


# {number}
"""


def main() -> int:
    """Do it, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="small")
    arguments = parser.parse_args()
    terms = ["--device", arguments.device, "--size", arguments.size]
    with tempfile.TemporaryDirectory(prefix="batch-single-") as folder:
        top = Path(folder)
        top.chmod(0o711)
        files = _hand_in(top, arguments.device)
        for file in files:  # what is built is built for both
            _grade(file, top / "first", terms)
        began_s = time.monotonic()
        singles = [_grade(file, top / "single", terms) for file in files]
        single_s = time.monotonic() - began_s
        began_s = time.monotonic()
        command = [*_CLI, "batch", str(top / "submissions"), "--run", str(top / "run"), "--jobs", "1", *terms]
        subprocess.run(command, check=False, capture_output=True, env=_environment(top))
        batch_s = time.monotonic() - began_s
        batched = [read_card(top / f"run/cards/relu/{file.stem}.json") for file in files]
    faults = [fault for pair in zip(singles, batched, strict=True) for fault in _faults(*pair)]
    print(f"{len(files)} submissions: one by one {single_s:.1f} s, in a batch with one job {batch_s:.1f} s")
    print(*faults, sep="\n")
    return 1 if faults or batch_s > single_s else 0


def _hand_in(top: Path, device: str) -> list[Path]:
    folder = top / "submissions/relu"
    folder.mkdir(parents=True)
    language = "cpp" if device == "cpu" else "cuda"
    solutions = {path.stem: path.read_text() for path in data_dir("solutions").glob(f"relu/{language}_*.py")}
    bodies = ["torch.relu(x)", "torch.relu(x) + 1", "torch.clamp(x, min=0.0)", "x.missing()"]
    solutions |= {f"plain_{n}": _PLAIN.format(body=body, number=n) for n, body in enumerate(bodies)}
    for name, source in solutions.items():
        (folder / f"{name}.py").write_text(source)
    return sorted(folder.iterdir())


def _grade(file: Path, target: Path, terms: list[str]) -> Scorecard:
    path = target / f"{file.stem}.json"
    command = [*_CLI, "grade", "relu", str(file), "--output", str(path), *terms]
    subprocess.run(command, check=False, capture_output=True, env=_environment(file.parents[2]))
    return read_card(path)


def _environment(top: Path) -> dict[str, str]:
    return {**os.environ, "WARPGRADE_CACHE": str(top / "cache")}


def _faults(single: Scorecard, batched: Scorecard) -> list[str]:
    name = single.submission.name
    if single.status is not batched.status:
        return [f"{name}: {single.status.value} alone, {batched.status.value} in the batch"]
    if single.timing is None or batched.timing is None:
        return []
    (low, high), (other_low, other_high) = (
        (timing.speedup_low or 0.0, timing.speedup_high or float("inf")) for timing in (single.timing, batched.timing)
    )
    spelled = f"{low:.3g} to {high:.3g} alone, {other_low:.3g} to {other_high:.3g} in the batch"
    return [] if low <= other_high and other_low <= high else [f"{name}: speedup {spelled}"]


if __name__ == "__main__":
    sys.exit(main())
