"""Inputs of a batch: folders of submissions, a KernelBench run folder, or JSON lines.

Submissions are read one at a time and not kept, so a batch may exceed the memory.
"""

import hashlib
import io
import os
import shlex
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from evaluator.batch.runs.problem_texts import ProblemText, RecentProblems
from evaluator.batch.runs.tasks import Planned, Refused, Seen, Stamp, Task
from evaluator.catalog import Origin, list_problems, names_of, nearest_names, not_found
from evaluator.catalog.kernelbench import WHERE, looks_like_one
from evaluator.catalog.kernelbench import read_text as read_problem_text
from evaluator.catalog.text import MAX_FILE_BYTES, did_you_mean
from evaluator.errors import ProblemError, SubmissionUnreadable, UsageError
from evaluator.files.safe_open import kind, open_named
from evaluator.grading.request import Unread
from evaluator.records import Problem, SizeName
from evaluator.sandbox.filesystem.visible_files import refuse_readable
from evaluator.sizes.found_sizes import NO_SMALL, with_sizes
from evaluator.submission.candidates import SUFFIXES, Meant, names_in, runs_of_kernelbench, spelled, submission_files
from evaluator.submission.folder import is_submission_folder
from evaluator.submission.read import MAX_ANSWER_BYTES, Submission, read_submission
from evaluator.text import one_line

# JSON escapes one byte of text as up to six bytes.
_MAX_LINE_BYTES = 6 * (MAX_ANSWER_BYTES + MAX_FILE_BYTES) + (1 << 16)
_LONGEST_NAME = 200
_CONTROL = "its name has control characters"

Item = Task | Seen | Refused


class LineProblem(msgspec.Struct, frozen=True):
    """A problem as text in KernelBench's form. `name` names the problem on cards."""

    name: str
    source: str


class Line(msgspec.Struct, frozen=True):
    """One submission in a JSONL file, with the name or the text of its problem. Other keys are ignored."""

    problem: str | LineProblem
    sample: str | int
    source: str


class Problems:
    """Problems that submissions may name. A name from a stream of submissions is never used as a path."""

    def __init__(
        self, folder: Path | None, sizes: Sequence[SizeName], only: Sequence[str] = (), entry: str | None = None
    ) -> None:
        """Read the problems in `folder`, or the shipped problems.

        `only` has patterns of names, as for a shell: submissions to other problems are not wanted. `entry` names the
        class that submissions define; None for ModelNew, else Model.

        Raises:
            ProblemError: the folder does not exist.
            UsageError: a pattern matches no problem, or submissions can read the folder.
        """
        if folder is not None:
            refuse_readable(folder, "the problem folder")
        self._sizes = sizes
        self.entry = entry
        self._shipped = folder is None
        self._tried: dict[str, Problem | str] = {}
        self._texts = RecentProblems()
        listing = list_problems(folder)
        self._broken = [broken.message for broken in listing.broken]
        self._exact = {problem.name: problem for problem in listing.problems}
        self._only = tuple(only)
        for pattern in only:
            if not any(fnmatchcase(name, pattern) for name in self._exact):
                hint = did_you_mean(pattern, self._exact) or "`warpgrade problems list` has all names"
                raise UsageError(f"--only {pattern} matches no problem", hint=hint)
        self._meant: dict[str, list[Problem]] = {}
        for problem in listing.problems:
            for name in names_of(problem):
                self._meant.setdefault(name, []).append(problem)

    @property
    def level_sizes(self) -> dict[int, int]:
        """The number of KernelBench's files in each level."""
        files = (problem for problem in self._exact.values() if problem.origin == Origin.KERNELBENCH)
        return dict(sorted(Counter(problem.level for problem in files if problem.level).items()))

    @property
    def asked(self) -> str:
        """The patterns, for messages; empty without any."""
        return " or ".join(self._only)

    def wants(self, name: str) -> bool:
        """Return whether a pattern matches the problem with the given name. An unknown name counts as it stands."""
        if not self._only:
            return True
        found = self.named(name)
        real = name if isinstance(found, str) else found.name
        return any(fnmatchcase(real, pattern) for pattern in self._only)

    def has(self, name: str, sha256: str) -> bool:
        """Return whether a problem with exactly the given name, content and size exists."""
        problem = self._exact.get(name)
        return problem is not None and problem.sha256 == sha256 and self._sizes[0] in problem.sizes

    def find(self, name: str) -> Problem | str:
        """Return the problem with the given name, or the reason why none can be graded."""
        named = self.named(name)
        return named if isinstance(named, str) else self._sized(named)

    def named(self, name: str) -> Problem | str:
        """Return the problem with the given name, maybe without the graded size, or the reason why none has the name.

        No code of a problem runs.
        """
        meant = [self._exact[name]] if name in self._exact else self._meant.get(name, [])
        if len(meant) == 1:
            return meant[0]
        if meant:
            return f"{one_line(name, 80)!r} may mean {' or '.join(problem.name for problem in meant[:3])}"
        elsewhere = f"; {WHERE}" if self._shipped and looks_like_one(name) else ""
        broken = f"; {len(self._broken)} are broken, as `warpgrade problems list` says" if self._broken else ""
        return f"there is no problem named {one_line(name, 80)!r}{elsewhere or broken}"

    def refusal_of(self, name: str) -> UsageError | None:
        """Return the error of a name that means no problem, or several; None for any other name."""
        if "\n" in name:
            return UsageError("a problem's text is no name", hint="hand in ProblemText(source, name)")
        named, shown = self.named(name), one_line(name, 80)
        if not isinstance(named, str) or self._broken or self._meant.get(name):
            return UsageError(named) if isinstance(named, str) else None
        return not_found(shown, nearest_names(shown, self._exact.values()), shipped=self._shipped)

    def read(self, text: ProblemText) -> Problem | str:
        """Return the problem of a text, or the reason why the text cannot be graded at the size of the grades.

        Raises:
            ProblemError: the text is no problem.
        """
        return self._texts.get(text, lambda: self._checked(read_problem_text(text.source, text.name)))

    def _sized(self, problem: Problem) -> Problem | str:
        """Return the problem with the graded sizes, or an error message. The search for sizes runs once."""
        if problem.name not in self._tried:
            self._tried[problem.name] = checked = self._checked(problem)
            if isinstance(checked, Problem):
                self._exact[problem.name] = checked
        return self._tried[problem.name]

    def _checked(self, problem: Problem) -> Problem | str:
        try:
            sized = with_sizes(problem, self._sizes)
        except ProblemError as error:
            return error.message
        if self._sizes[0] in sized.sizes:
            return sized
        return f"{problem.name} has no size {self._sizes[0].value}; {NO_SMALL}"


def read_folder(folder: Path, problems: Problems, known: Mapping[str, Planned] | None = None) -> Iterator[Item]:
    """Read submissions below `folder`: `PROBLEM/NAME.py`, answers (.txt, .md), and files with KernelBench's names.

    A folder `PROBLEM/NAME` with a submission.toml is one submission.
    A file in `known` (by path) with an unchanged stamp is not read. Only regular files are read, and links are not
    followed. Links and special files with the name of a submission, and links to folders, are refused.

    Raises:
        UsageError: the folder does not exist or cannot be listed.
    """
    known = known or {}
    for path, mode in submission_files(folder):
        origin = spelled(path)
        if problems.asked and not problems.wants(names_in(Path(path), folder).problem):
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            reason = f"it is {kind(mode)}; what lies in a folder is read only where it is a regular file"
            yield _refused(origin, reason, names_in(Path(path), folder), problems)
            continue
        before = known.get(origin)
        # The stamp of a folder says nothing about its files, so a folder is always read.
        if before is not None and stat.S_ISREG(mode) and _is_unchanged(before, path, problems):
            yield Seen(before, partial(_read_file, path, folder, problems))
        else:
            yield _read_file(path, folder, problems)


def _is_unchanged(before: Planned, path: str, problems: Problems) -> bool:
    return before.stamp == _stamp(path) and problems.has(before.problem, before.problem_sha256)


def expected(folder: Path, problems: Problems) -> int:
    """Count the wanted submissions in `folder`.

    Raises:
        UsageError: `folder` has no wanted submissions, cannot be listed, is a submission, or has the submissions of a
            single problem without the problem's name, or the submissions of several runs of KernelBench.
    """
    if is_submission_folder(folder):
        hint = f"grade the folder with `warpgrade grade PROBLEM {folder}`"
        raise UsageError(f"{folder} is a single submission, not a folder of submissions", hint=hint)
    found = submission_files(folder)
    if not found:
        raise UsageError(f"{folder} contains no submissions", hint="expected files are PROBLEM/NAME.py, .txt or .md")
    if several := runs_of_kernelbench(path for path, _ in found):
        raise _several_runs(folder, several)
    if all(names_in(Path(path), folder).problem == "." for path, _ in found):
        raise _problemless(folder, problems)
    count = (
        sum(problems.wants(names_in(Path(path), folder).problem) for path, _ in found) if problems.asked else len(found)
    )
    if not count:
        raise UsageError(f"{folder} contains no submissions to {problems.asked}", hint="change --only")
    return count


def _several_runs(folder: Path, several: list[Path]) -> UsageError:
    """Return the error for a folder with two runs of KernelBench: their submissions have the same names."""
    first, second = (shlex.quote(spelled(each)) for each in several)
    names = [shlex.quote(spelled(each.name)) for each in several]
    hint = (
        f"one --run for each: warpgrade batch {first} --run {names[0]}, and warpgrade batch {second} --run {names[1]}; "
        f"warpgrade report {' '.join(names)} puts both into one table"
    )
    return UsageError(f"{folder} contains several runs of KernelBench, with submissions of the same names", hint=hint)


def _problemless(folder: Path, problems: Problems) -> UsageError:
    """Return the error for a folder with submissions outside of problems' folders."""
    whole = folder.resolve()
    for above in whole.parents[:2]:
        name = whole.relative_to(above).as_posix()
        found = problems.named(name)
        if not isinstance(found, str):
            only, top = shlex.quote(found.name), shlex.quote(spelled(above))
            hint = f"name the folder above: warpgrade batch {top} --only {only} --run RUN"
            message = f"{folder} contains submissions to the problem {found.name}, not folders of problems"
            return UsageError(message, hint=hint)
    hint = f"move each file to {folder}/PROBLEM/NAME.py (or .md, .txt); `warpgrade problems list` names all problems"
    return UsageError(f"the submissions in {folder} lie in no problem's folder", hint=hint)


def open_lines(path: Path) -> BinaryIO:
    """Open a file of JSON lines. Raises UsageError for an unreadable file, or for a single submission."""
    if path.suffix.lower() in SUFFIXES and path.is_file():
        hint = f"grade the file with `warpgrade grade PROBLEM {path}`"
        raise UsageError(f"{path} is a single submission, not a folder", hint=hint)
    try:
        return open_named(path)
    except OSError as error:
        hint = "name a folder of submissions, a file of JSON lines, or - for stdin"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def _stamp(path: str) -> Stamp | None:
    try:
        facts = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - as above
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns


def _read_file(found: str, folder: Path, problems: Problems) -> Task | Refused:
    path = Path(found)
    meant = names_in(path, folder)
    if meant.problem == ".":
        return Refused(spelled(path), "it lies in no problem's folder: PROBLEM/NAME.py", name=meant.name)
    problem = problems.find(meant.problem)
    if isinstance(problem, str):
        return _refused(spelled(path), problem, meant, problems)
    if _has_control(meant.name):
        return _refused(spelled(path), _CONTROL, meant, problems)
    return _from_file(path, folder, problem, meant.name, problems.entry)


def _has_control(name: str) -> bool:
    """Return whether a name has control characters, which no table and no log shows as part of the name."""
    return any(unicodedata.category(character) == "Cc" for character in name)


def _refused(origin: str, reason: str, meant: Meant, problems: Problems, sha256: str | None = None) -> Refused:
    """Refuse an input, for the problem with the meant name, if known."""
    found = problems.named(meant.problem)
    name = one_line(meant.name, _LONGEST_NAME)
    if isinstance(found, str):
        said = "" if meant.problem == "." else one_line(meant.problem, _LONGEST_NAME)
        return Refused(origin, reason, said, name, sha256=sha256)
    return Refused(origin, reason, found.name, name, found.level, sha256)


def _from_file(path: Path, folder: Path, problem: Problem, name: str, entry: str | None) -> Task | Refused:
    stamp = _stamp(str(path))  # before the read: the next session reads a file that changed meanwhile again
    try:
        read = read_submission(path, found_in=folder, entry=entry)
    except SubmissionUnreadable as error:
        return Refused(spelled(path), error.message, problem.name, name, problem.level)
    if isinstance(read, Submission):
        return Task(problem, name, msgspec.structs.replace(read, name=name), stamp)
    return Task(problem, name, Unread(name=name, origin=spelled(path), finding=read), stamp)


def read_lines(
    stream: BinaryIO, origin: str, problems: Problems, *, allows_problem_text: bool = False
) -> Iterator[Item]:
    """Read `{"problem": …, "sample": …, "source": …}` from each line of `stream` as soon as the line arrives.

    A problem is a name, or with `allows_problem_text` `{"name": …, "source": …}`: the judge runs the code of the text.
    """
    texts: dict[str, str] = {}
    decoder = msgspec.json.Decoder(Line)
    for number, line in enumerate(_lines(stream), start=1):
        place = f"{origin}:{number}"
        if not line.strip():
            continue
        if len(line) > _MAX_LINE_BYTES:
            yield Refused(place, f"the line is longer than {_MAX_LINE_BYTES >> 20} MiB", sha256=_sha256(line))
            continue
        try:
            given = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            yield Refused(place, f"the line is not a submission: {one_line(str(error), 120)}", sha256=_sha256(line))
            continue
        meant, name = given.problem if isinstance(given.problem, str) else given.problem.name, str(given.sample)
        if not problems.wants(meant):
            continue
        problem: Problem | str
        if _has_control(name):
            problem = _CONTROL
        elif isinstance(given.problem, str):
            problem = problems.find(given.problem)
        elif allows_problem_text:
            problem = _of_text(given.problem, problems, texts)
        else:
            problem = "it has a problem as text, whose code the judge would run: --allow-problem-text accepts it"
        if isinstance(problem, str):
            yield _refused(place, problem, Meant(meant, name), problems, _sha256(line))
        else:
            yield from_text(given.source, name, place, problem, problems.entry)


def _of_text(given: LineProblem, problems: Problems, texts: dict[str, str]) -> Problem | str:
    """Return the problem of a text, or the reason why the text is refused. `texts` has the hashes by name.

    A name stands for one problem: reports and cards name problems only.
    """
    try:
        problem = problems.read(ProblemText(given.source, given.name))
    except UsageError as error:
        return error.message
    if isinstance(problem, str):
        return problem
    listed = problems.named(given.name)
    other = texts.setdefault(given.name, problem.sha256) if isinstance(listed, str) else listed.sha256
    if other != problem.sha256:
        return f"another problem is named {one_line(given.name, 80)!r}"
    return problem


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def from_text(source: str, name: str, origin: str, problem: Problem, entry: str | None = None) -> Task:
    """Return a task for Python text, or for a model's answer with Python text."""
    return Task(problem, name, read_text(source, name, origin, entry))


def read_text(source: str, name: str, origin: str, entry: str | None = None) -> Submission | Unread:
    """Read a submission given as text, by the rules for standard input."""
    # A lone surrogate is invalid text: its bytes are refused, as in a file.
    read = read_submission("-", io.BytesIO(source.encode("utf-8", "surrogatepass")), entry=entry)
    if isinstance(read, Submission):
        return msgspec.structs.replace(read, name=name, origin=origin)
    return Unread(name=name, origin=origin, finding=read)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines, each cut one byte above the limit; the rest of a long line is skipped."""
    while line := stream.readline(_MAX_LINE_BYTES + 1):
        yield line
        while len(line) > _MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(_MAX_LINE_BYTES + 1)
            if not line:
                return


def named_once(items: Iterable[Item]) -> Iterator[Item]:
    """Refuse a second submission under a used name, unless the content is the same."""
    seen: dict[str, str | None] = {}
    for item in items:
        if isinstance(item, Refused):
            yield item
            continue
        card, sha256 = item.card, item.submission_sha256
        if card not in seen:
            seen[card] = sha256
            yield item
        elif seen[card] != sha256:
            yield _handed_in_before(item)


def _handed_in_before(item: Task | Seen) -> Refused:
    problem, level, name = (
        (item.problem.name, item.problem.level, item.name)
        if isinstance(item, Task)
        else (item.planned.problem, item.planned.level, item.planned.name)
    )
    reason = f"{item.card.removesuffix('.json')} was handed in before, with other content"
    return Refused(item.origin, reason, problem, one_line(name, _LONGEST_NAME), level, item.submission_sha256)
