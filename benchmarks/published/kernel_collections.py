"""Kernels that others published with their problems, read from clones of their repositories.

None of these kernels is kept here: most of the repositories have no licence. A clone of any commit serves;
docs/measured.md names the commits of its figures.
"""

import json
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, assert_never


class Collection(StrEnum):
    """A repository of published kernels."""

    LEADERBOARD = "leaderboard"
    """anneouyang/KernelBenchLeaderboard: CUDA, with the problems of an older edition of KernelBench."""
    CUDA_L1 = "cuda-l1"
    """deepreinforce-ai/CUDA-L1: the answers for the H100, of which a third contain CUDA and the others call PyTorch."""
    HZENG = "hzeng"
    """hzeng2000/KernelBench: level 2 by grok-code-fast-1, in CUDA, Triton, TileLang and CuTe."""
    ADAEXPLORE = "adaexplore"
    """StigLidu/AdaExplore: Triton, for levels 2 and 3."""


class Kernel(NamedTuple):
    """A submission for problem `number` of KernelBench's `level`, with the text of the problem.

    `name` is unique among the kernels of the problem.
    """

    level: int
    number: int
    name: str
    source: str
    problem: str

    @property
    def problem_name(self) -> str:
        """Name of the problem in a batch."""
        return f"level{self.level}/{self.number}_problem"


def kernels_of(collection: Collection, clone: Path) -> list[Kernel]:
    """Return the kernels of a collection by level, number and name. `clone` is the folder of the repository.

    Raises:
        FileNotFoundError: the folder holds no such repository.
    """
    found = sorted(_reader(collection)(clone), key=lambda kernel: kernel[:3])
    if not found:
        raise FileNotFoundError(f"{clone} holds no kernels: it must be a clone of the repository, with its files")
    return found


def _reader(collection: Collection) -> Callable[[Path], Iterator[Kernel]]:
    match collection:
        case Collection.LEADERBOARD:
            return _leaderboard
        case Collection.CUDA_L1:
            return _cuda_l1
        case Collection.HZENG:
            return _hzeng
        case Collection.ADAEXPLORE:
            return _adaexplore
    assert_never(collection)


_TITLE = re.compile(r"Level (\d+): (\d+)_")


def _leaderboard(clone: Path) -> Iterator[Kernel]:
    """Yield the kernels that the leaderboard lists; the repository holds others too."""
    assets = clone / "docs" / "assets"
    for title, entries in json.loads((assets / "data.json").read_text()).items():
        if (place := _TITLE.match(title)) is None:
            raise ValueError(f"{title!r} is no title of a problem: expected 'Level 1: 19_ReLU'")
        level, number = int(place[1]), int(place[2])
        problem = (assets / "problems" / f"l{level}_p{number}.py").read_text()
        for place_on_board, entry in enumerate(entries):
            source = (assets / "solutions" / f"{entry['file']}.py").read_text()
            yield Kernel(level, number, str(place_on_board), source, problem)


_NO_ANSWER = (None, "None")


def _cuda_l1(clone: Path) -> Iterator[Kernel]:
    for line in (clone / "optimized_cuda_code" / "h100.json").read_text().splitlines():
        entry = json.loads(line)
        if (source := entry["custom_code"]) not in _NO_ANSWER:
            yield Kernel(int(entry["level_id"]), int(entry["task_id"]), "cuda-l1", source, entry["ref_code"])


_RUN = re.compile(r"level_(\d+)_backend_(\w+?)_model_grok-code-fast-1")
_ANSWER = re.compile(r"level_\d+_problem_(\d+)_sample_(\d+)_kernel")


def _hzeng(clone: Path) -> Iterator[Kernel]:
    for run in sorted((clone / "runs").iterdir()):
        if (made := _RUN.fullmatch(run.name)) is None:
            continue
        problems = _problems(clone / "KernelBench" / f"level{made[1]}")
        for path in run.glob("*.py"):
            if (answer := _ANSWER.fullmatch(path.stem)) is not None:
                number = int(answer[1])
                yield Kernel(int(made[1]), number, f"{made[2]}-{answer[2]}", path.read_text(), problems[number])


def _adaexplore(clone: Path) -> Iterator[Kernel]:
    for folder in sorted((clone / "results" / "saved_kernels" / "kernelbench").glob("level*")):
        problems = _problems(clone / "datasets" / "KernelBench" / folder.name)
        for path in folder.glob("*.py"):
            number = int(path.stem)
            yield Kernel(
                int(folder.name.removeprefix("level")), number, "adaexplore", path.read_text(), problems[number]
            )


def _problems(folder: Path) -> dict[int, str]:
    """Return the texts of one level of KernelBench, by number. Raises FileNotFoundError if the folder has none."""
    found = {int(path.stem.partition("_")[0]): path.read_text() for path in folder.glob("[0-9]*.py")}
    if not found:
        raise FileNotFoundError(f"{folder} holds no problems: the clone must have all its files")
    return found
