"""Grade the corpus of `tests/corpus` on the emulated device, and hold it against what a real GPU made of it.

    python -m benchmarks.emulator.corpus_on_emulator emulated.json [--workers N]
    python -m benchmarks.emulator.corpus_on_emulator emulated.json --gpu benchmarks/emulator/corpus_h200.json

`benchmarks/emulator/corpus_on_gpu.py` writes the file for `--gpu`; `benchmarks/emulator/corpus_h200.json` has the
outcomes on an H200. Without `--gpu`, the command line grades each entry of the corpus in a process of its own. With
`--gpu`, the two files become the tables of docs/emulator_against_gpu.md, and nothing is graded. The notes on that page
are written by hand.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.corpus.entries import Entry, entries

TOP = Path(__file__).resolve().parents[2]

_LIMIT_S = 600
_GOOD = "correct"


def graded(entry: Entry) -> dict[str, Any]:
    """Grade one entry; what comes back is the part of its card that the table needs."""
    expected = entry.expected
    problem = expected.problem or str((entry.folder / expected.reference).resolve().parent)
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "grade",
            problem,
            str(entry.submission(Path(folder))),
            "--device",
            "emulated",
            "--json",
            "--timeout",
            "60",
        ]
        done = subprocess.run(
            [sys.executable, str(TOP / "cli.py"), *words, "--quiet", "--output", f"{folder}/card.json"],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    if not done.stdout:
        return {"status": "no card", "code": "", "detail": done.stderr[-500:], "seconds": 0.0}
    card = json.loads(done.stdout)
    reason = card["reason"] or {"code": "", "message": ""}
    return {
        "status": card["status"],
        "code": reason["code"],
        "detail": reason["message"][:300],
        "seconds": round(card["wall_s"], 1),
    }


def table(emulated: dict[str, Any], gpu: dict[str, Any]) -> str:
    """Write the two-by-two table, and a line for each entry where the two devices do not agree."""
    both = sorted(emulated.keys() & gpu.keys())
    counts = Counter((_class(emulated[name]["status"]), _class(gpu[name]["status"])) for name in both)
    columns = ["correct", "not correct"]
    lines = [
        "# The emulator against a GPU",
        "",
        f"{len(both)} CUDA submissions of `tests/corpus`, at small sizes. Rows: the status on `--device emulated`.",
        "Columns: the outcome on an NVIDIA H200, through PyTorch's own builder.",
        "",
        "| emulated \\ H200 | correct | not correct |",
        "|---|---|---|",
    ]
    lines += [
        f"| {row} | " + " | ".join(str(counts[row, column]) for column in columns) + " |"
        for row in ("correct", "not correct", "inconclusive")
    ]
    lines += ["", "Submissions with different outcomes, or without a verdict of the emulator:", ""]
    lines += ["| submission | emulated | H200 | why |", "|---|---|---|---|"]
    for name in both:
        mine, theirs = emulated[name], gpu[name]
        if _class(mine["status"]) != _class(theirs["status"]):
            why = f"{mine['code']} {mine['detail'] or theirs['detail']}".replace("|", "\\|").replace("\n", " ")[:160]
            lines.append(f"| {name} | {mine['status']} | {theirs['status']} | {why} |")
    return "\n".join(lines) + "\n"


def _class(status: str) -> str:
    return status if status in (_GOOD, "inconclusive") else "not correct"


def main() -> int:
    """Grade, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the JSON file of the emulated verdicts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpu", type=Path, help="the JSON file of a GPU's outcomes")
    parser.add_argument("--table", type=Path, help="where the table is written")
    options = parser.parse_args()
    if options.gpu is not None:
        text = table(json.loads(options.results.read_text()), json.loads(options.gpu.read_text()))
        (options.table or Path("/dev/stdout")).write_text(text)
        return 0
    everything = entries()
    with ThreadPoolExecutor(options.workers) as pool:
        found = dict(zip((entry.name for entry in everything), pool.map(graded, everything), strict=True))
    options.results.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    wrong = [entry.name for entry in everything if found[entry.name]["status"] != entry.expected.status.value]
    print(f"{len(everything) - len(wrong)} of {len(everything)} as expected; not: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
