"""Write published kernels and their problems in the form that `warpgrade batch` reads.

    python -m benchmarks.published.arrange leaderboard CLONE FOLDER [--only 1-23 --only 1-6] [--language triton]
        [--copies 20]
    warpgrade batch FOLDER/submissions.jsonl --run RUN --problems FOLDER/problems --device cuda
    python -m benchmarks.published.verdicts RUN

CLONE is the folder of the repository (`kernel_collections.py` names it). With `--copies`, each kernel is there several
times, with a comment of its own: a batch grades equal texts once.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from benchmarks.published.kernel_collections import Collection, Kernel, kernels_of


@click.command(help=__doc__)
@click.argument("collection", type=click.Choice([each.value for each in Collection]))
@click.argument("clone", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--only", multiple=True, metavar="LEVEL-NUMBER", help="The problems to keep; all without it.")
@click.option("--language", help="The start of the kernels' names: hzeng's begin with cuda, triton, tilelang or cute.")
@click.option("--copies", type=click.IntRange(1), default=1, show_default=True)
def main(collection: str, clone: Path, folder: Path, only: tuple[str, ...], language: str | None, copies: int) -> None:
    """Write FOLDER/submissions.jsonl and FOLDER/problems."""
    try:
        found = kernels_of(Collection(collection), clone)
    except FileNotFoundError as error:
        raise click.ClickException(str(error)) from error
    kept = list(selected(found, only, language))
    if not kept:
        raise click.ClickException(f"none of {len(found)} kernels has these problems and this language")
    write(kept, folder, copies)
    problems = len({kernel.problem_name for kernel in kept})
    click.echo(f"{len(kept)} kernels of {problems} problems, {copies} of each, in {folder}")


def selected(kernels: Iterable[Kernel], only: tuple[str, ...], language: str | None) -> Iterator[Kernel]:
    """Yield the kernels of the problems `only` (all if empty) whose names begin with `language`."""
    for kernel in kernels:
        if (not only or f"{kernel.level}-{kernel.number}" in only) and kernel.name.startswith(language or ""):
            yield kernel


def write(kernels: list[Kernel], folder: Path, copies: int) -> None:
    """Write the problems, and `copies` of each kernel with different texts."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "submissions.jsonl").open("w", encoding="utf-8") as lines:
        for kernel in kernels:
            path = folder / "problems" / f"{kernel.problem_name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(kernel.problem, encoding="utf-8")
            for copy in range(copies):
                name, source = kernel.name, kernel.source
                if copies > 1:
                    name, source = f"{name}.{copy}", f"{source}\n# copy {copy}\n"
                lines.write(json.dumps({"problem": kernel.problem_name, "sample": name, "source": source}) + "\n")


if __name__ == "__main__":
    main()
