"""Pictures of the HTML pages in docs/, taken by Chromium from three example runs.

    python -m benchmarks.pages.page_pictures [FOLDER]    pictures in FOLDER, by default docs/

The runs are examples: their problems and submissions are the shipped ones, but verdicts and times are invented, from a
fixed seed. Chromium is searched on the path; WARPGRADE_CHROMIUM names another.
"""

import argparse
import base64
import contextlib
import hashlib
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from evaluator.batch.runs.page_files import comparison_page_of, run_page_of, write_pieces
from evaluator.batch.runs.results import named_runs, read_run
from evaluator.batch.runs.run_folder import PlanFile, RunFolder, manifest_for
from evaluator.batch.runs.tasks import Task
from evaluator.catalog import list_problems
from evaluator.files.card_files import write_card, write_whole
from evaluator.grade_options import GradeOptions
from evaluator.records import ClockKind, DeviceFacts, DeviceKind, Problem, Samples, Scorecard, Timing
from evaluator.report.page.pages import runs_page
from evaluator.submission.read import Submission
from evaluator.timing import stats
from evaluator.timing.quote import quote
from tests import cards
from tests.batch.chromium import browser

TOP = Path(__file__).resolve().parents[2]

PROBLEMS = ("relu", "softmax", "layer_norm", "matmul", "attention", "cumsum", "cross_entropy", "gelu")
SAMPLES = 3
CALLS = 60
VERDICTS = ("correct",) * 6 + ("wrong", "uncompiled", "crashed")
MADE = {
    "correct": cards.card,
    "wrong": cards.wrong_card,
    "uncompiled": cards.uncompiled_card,
    "crashed": cards.crashed_card,
}
OPENED = "(() => { location.hash = 's/relu/sample_0'; return new Promise(done => setTimeout(done, 500)) })()"


def samples(side: str, middle_ms: float, chance: random.Random) -> Samples:
    """Return invented calls: a narrow spread, and few slow calls."""
    values_ms = [middle_ms * (chance.gauss(1, 0.004) + (chance.random() < 0.02) * 0.3) for _ in range(CALLS)]
    return replace(
        cards.samples(side, middle_ms, CALLS),
        samples_ms=values_ms,
        median_ms=stats.median(values_ms),
        iqr_ms=stats.interquartile_range(values_ms),
        outliers=len(stats.outliers(values_ms)),
    )


def timing(reference_ms: float, speedup: float, chance: random.Random) -> Timing:
    """Return the statistics of invented calls."""
    reference = [samples("reference", reference_ms, chance) for _ in range(2)]
    return quote(
        ClockKind.SEALED, reference[0], samples("submission", reference_ms / speedup, chance), reference[1]
    ).timing


def card(problem: Problem, source: str, number: int, chance: random.Random, changes: Sequence[float]) -> Scorecard:
    """Return an invented card of a shipped solution. One of `changes` multiplies the speedup; 0 breaks the answer."""
    alike = random.Random(f"{problem.name} {number}")
    verdict = "correct" if number == 0 else alike.choice(VERDICTS)
    change = chance.choice(changes)
    made = MADE["wrong" if verdict == "correct" and not change else verdict]()
    if made.timing is not None:
        reference_ms, speedup = alike.uniform(1.0, 9.0), alike.uniform(0.6, 3.2)
        made = replace(made, timing=timing(reference_ms, speedup * change, chance))
    digest = hashlib.sha256(source.encode()).hexdigest()
    return replace(
        made,
        problem=replace(made.problem, name=problem.name, level=problem.level, sha256=problem.sha256),
        submission=replace(made.submission, name=f"sample_{number}", source=source, sha256=digest),
        device=DeviceFacts(kind=DeviceKind.CUDA, name="a GPU of an example"),
        wall_s=chance.uniform(15, 40),
    )


def example_run(path: Path, seed: int, changes: Sequence[float]) -> None:
    """Write a run with `SAMPLES` submissions to each problem."""
    chance = random.Random(seed)
    folder = RunFolder(path)
    folder.logs.mkdir(parents=True)
    manifest = manifest_for(GradeOptions(device=DeviceKind.CUDA), "submissions")
    write_whole(folder.manifest, msgspec.json.encode(replace(manifest, host="example")))
    problems = {problem.name: problem for problem in list_problems().problems}
    with PlanFile(folder) as plan:
        for name in PROBLEMS:
            sources = sorted((TOP / "solutions" / name).glob("cuda_*.py"))
            for number in range(SAMPLES):
                source = f"# Sample {number}\n{sources[number % len(sources)].read_text()}"
                made = card(problems[name], source, number, chance, changes)
                submission = Submission(
                    name=made.submission.name,
                    origin="example",
                    sha256=made.submission.sha256 or "",
                    source=source,
                    extracted_from_answer=False,
                    line_offset=0,
                    findings=(),
                )
                task = Task(problems[name], made.submission.name, submission)
                plan.add(task)
                write_card(made, folder.cards / task.card, named=False)


@contextlib.contextmanager
def example_pages() -> Iterator[tuple[Path, Path, Path]]:
    """Make the page of a run, the page of the run and a second one, and the page of three runs."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "kernels-v1"), Path(folder, "kernels-v2")
        example_run(first, seed=1, changes=(1.0,))
        example_run(second, seed=2, changes=(1.0, 1.0, 1.0, 1.12, 1.3, 0.9, 0.0))
        runs = read_run(first), read_run(second)
        assert not runs[0].broken + runs[1].broken, runs[0].broken
        third = Path(folder, "kernels-v3")
        example_run(third, seed=3, changes=(1.4, 0.8, 1.2))
        pages = Path(folder, "run.html"), Path(folder, "compare.html"), Path(folder, "runs.html")
        write_pieces(pages[0], run_page_of(runs[0]))
        write_pieces(pages[1], comparison_page_of(*runs))
        write_pieces(pages[2], runs_page(named_runs([*runs, read_run(third)])))
        yield pages


def picture(page: Path, width: int, height: int, *, dark: bool = False, script: str = "") -> bytes:
    """Return the picture of a page in a window of this size, after a script."""
    with browser() as running, running.tab() as opened:
        size: dict[str, Any] = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 640}
        opened.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        opened.call("Emulation.setEmulatedMedia", features=[scheme])
        opened.open(page.as_uri())
        if script:
            opened.evaluate(script)
        return base64.b64decode(opened.call("Page.captureScreenshot", format="png")["data"])


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=TOP / "docs")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with example_pages() as (run, compared, several):
        pictures = {
            "page_run.png": picture(run, 1240, 1000),
            "page_submission.png": picture(run, 1240, 1000, script=OPENED),
            "page_phone.png": picture(run, 390, 844, dark=True),
            "page_runs.png": picture(several, 1240, 1000),
            "page_compare.png": picture(compared, 1240, 1000, dark=True),
        }
    for name, content in pictures.items():
        (folder / name).write_bytes(content)
        print(f"{folder / name}: {len(content) // 1000} kB")


if __name__ == "__main__":
    main()
