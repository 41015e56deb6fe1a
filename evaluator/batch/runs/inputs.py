"""Inputs of a batch: folders of submissions, a KernelBench run folder, or JSON lines.

Submissions are read one at a time and not kept, so a batch may exceed the memory.
"""

import hashlib
import io
import os
import shlex
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from evaluator.batch.runs.problems import Problems, ProblemText
from evaluator.batch.runs.tasks import Planned, Refused, Stamp, Task, UnchangedFile
from evaluator.catalog.text import MAX_FILE_BYTES
from evaluator.errors import SubmissionUnreadable, UsageError
from evaluator.files.safe_open import kind, open_named
from evaluator.grading.request import Unread
from evaluator.records import Problem
from evaluator.submission.folder import (
    ANSWER_SUFFIXES,
    SubmissionNames,
    is_submission_folder,
    names_in,
    runs_of_kernelbench,
    spelled,
    submission_files,
)
from evaluator.submission.read import MAX_ANSWER_BYTES, Submission, read_submission
from evaluator.text import one_line

# JSON escapes one byte of text as up to six bytes.
_MAX_LINE_BYTES = 6 * (MAX_ANSWER_BYTES + MAX_FILE_BYTES) + (1 << 16)
_LONGEST_NAME = 200
_CONTROL = "its name has control characters"

Item = Task | UnchangedFile | Refused


class LineProblem(msgspec.Struct, frozen=True):
    """A problem as text in KernelBench's form. `name` names the problem on cards."""

    name: str
    source: str


class SubmissionLine(msgspec.Struct, frozen=True):
    """One submission in a JSONL file, with the name or the text of its problem. Other keys are ignored."""

    problem: str | LineProblem
    sample: str | int
    source: str


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
        if problems.patterns and not problems.wants(names_in(Path(path), folder).problem):
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            reason = f"it is {kind(mode)}; what lies in a folder is read only where it is a regular file"
            yield _refused(origin, reason, names_in(Path(path), folder), problems)
            continue
        before = known.get(origin)
        # The stamp of a folder says nothing about the files, and a folder is always read.
        is_known = before is not None and stat.S_ISREG(mode) and before.stamp == _stamp(path)
        if before is not None and is_known and problems.has(before.problem, before.problem_sha256):
            yield UnchangedFile(before, partial(_read_file, path, folder, problems))
        else:
            yield _read_file(path, folder, problems)


def expected(folder: Path, problems: Problems) -> int:
    """Count the wanted submissions in `folder`.

    Raises:
        UsageError: `folder` has no wanted submissions, cannot be listed, is a submission, or has the submissions of a
            single problem without the problem's name, or the submissions of several runs of KernelBench.
    """
    if is_submission_folder(folder):
        hint = f"grade the folder with `warpgrade grade PROBLEM {folder}`"
        raise UsageError(f"{folder} is a single submission, not a folder of submissions", hint=hint)
    files = submission_files(folder)
    if not files:
        raise UsageError(f"{folder} contains no submissions", hint="expected files are PROBLEM/NAME.py, .txt or .md")
    if several := runs_of_kernelbench(path for path, _ in files):
        raise _several_runs(folder, several)
    if all(names_in(Path(path), folder).problem == "." for path, _ in files):
        raise _problemless(folder, problems)
    count = (
        sum(problems.wants(names_in(Path(path), folder).problem) for path, _ in files)
        if problems.patterns
        else len(files)
    )
    if not count:
        raise UsageError(f"{folder} contains no submissions to {problems.patterns}", hint="change --only")
    return count


def _several_runs(folder: Path, several: list[Path]) -> UsageError:
    """Return the error for a folder with two runs of KernelBench: their submissions have the same names."""
    first, second = (shlex.quote(spelled(run_path)) for run_path in several)
    names = [shlex.quote(spelled(run_path.name)) for run_path in several]
    hint = (
        f"one --run for each: warpgrade batch {first} --run {names[0]}, and warpgrade batch {second} --run {names[1]}; "
        f"warpgrade report {' '.join(names)} puts both into one table"
    )
    return UsageError(f"{folder} contains several runs of KernelBench, with submissions of the same names", hint=hint)


def _problemless(folder: Path, problems: Problems) -> UsageError:
    """Return the error for a folder with submissions outside of problems' folders."""
    absolute = folder.resolve()
    for above in absolute.parents[:2]:
        name = absolute.relative_to(above).as_posix()
        problem = problems.named(name)
        if not isinstance(problem, str):
            only, top = shlex.quote(problem.name), shlex.quote(spelled(above))
            hint = f"name the folder above: warpgrade batch {top} --only {only} --run RUN"
            message = f"{folder} contains submissions to the problem {problem.name}, not folders of problems"
            return UsageError(message, hint=hint)
    hint = f"move each file to {folder}/PROBLEM/NAME.py (or .md, .txt); `warpgrade problems list` names all problems"
    return UsageError(f"the submissions in {folder} lie in no problem's folder", hint=hint)


def open_lines(path: Path) -> BinaryIO:
    """Open a file of JSON lines. Raises UsageError for an unreadable file, or for a single submission."""
    if path.suffix.lower() in ANSWER_SUFFIXES and path.is_file():
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


def _read_file(file: str, folder: Path, problems: Problems) -> Task | Refused:
    path = Path(file)
    names = names_in(path, folder)
    if names.problem == ".":
        return Refused(spelled(path), "it lies in no problem's folder: PROBLEM/NAME.py", name=names.name)
    problem = problems.find(names.problem)
    if isinstance(problem, str):
        return _refused(spelled(path), problem, names, problems)
    if _has_control(names.name):
        return _refused(spelled(path), _CONTROL, names, problems)
    return _from_file(path, folder, problem, names.name, problems.entry)


def _has_control(name: str) -> bool:
    """Return whether a name has control characters, which no table and no log shows as part of the name."""
    return any(unicodedata.category(character) == "Cc" for character in name)


def _refused(
    origin: str, reason: str, names: SubmissionNames, problems: Problems, sha256: str | None = None
) -> Refused:
    """Refuse an input, under the problem of `names` if known."""
    problem = problems.named(names.problem)
    name = one_line(names.name, _LONGEST_NAME)
    if isinstance(problem, str):
        problem_name = "" if names.problem == "." else one_line(names.problem, _LONGEST_NAME)
        return Refused(origin, reason, problem_name, name, sha256=sha256)
    return Refused(origin, reason, problem.name, name, problem.level, sha256)


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
    decoder = msgspec.json.Decoder(SubmissionLine)
    for number, line in enumerate(_lines(stream), start=1):
        line_name = f"{origin}:{number}"
        if not line.strip():
            continue
        if len(line) > _MAX_LINE_BYTES:
            yield Refused(line_name, f"the line is longer than {_MAX_LINE_BYTES >> 20} MiB", sha256=_sha256(line))
            continue
        try:
            submission = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            yield Refused(line_name, f"the line is not a submission: {one_line(str(error), 120)}", sha256=_sha256(line))
            continue
        problem_name = submission.problem if isinstance(submission.problem, str) else submission.problem.name
        name = str(submission.sample)
        if not problems.wants(problem_name):
            continue
        problem: Problem | str
        if _has_control(name):
            problem = _CONTROL
        elif isinstance(submission.problem, str):
            problem = problems.find(submission.problem)
        elif allows_problem_text:
            problem = _of_text(submission.problem, problems, texts)
        else:
            problem = "it has a problem as text, whose code the judge would run: --allow-problem-text accepts it"
        if isinstance(problem, str):
            yield _refused(line_name, problem, SubmissionNames(problem_name, name), problems, _sha256(line))
        else:
            yield from_text(submission.source, name, line_name, problem, problems.entry)


def _of_text(line_problem: LineProblem, problems: Problems, texts: dict[str, str]) -> Problem | str:
    """Return the problem of a text, or the reason why the text is refused. `texts` has the hashes by name.

    A name stands for one problem: reports and cards name problems only.
    """
    try:
        problem = problems.read(ProblemText(line_problem.source, line_problem.name))
    except UsageError as error:
        return error.message
    if isinstance(problem, str):
        return problem
    listed = problems.named(line_problem.name)
    used_sha256 = texts.setdefault(line_problem.name, problem.sha256) if isinstance(listed, str) else listed.sha256
    if used_sha256 != problem.sha256:
        return f"another problem is named {one_line(line_problem.name, 80)!r}"
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
    sha256_by_card: dict[str, str | None] = {}
    for item in items:
        if isinstance(item, Refused):
            yield item
            continue
        planned = item.planned
        sha256 = planned.submission_sha256
        if planned.card not in sha256_by_card:
            sha256_by_card[planned.card] = sha256
            yield item
        elif sha256_by_card[planned.card] != sha256:
            reason = f"{planned.card.removesuffix('.json')} was handed in before, with other content"
            name = one_line(planned.name, _LONGEST_NAME)
            yield Refused(planned.origin, reason, planned.problem, name, planned.level, sha256)
