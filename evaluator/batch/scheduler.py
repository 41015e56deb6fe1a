"""One sitting of a batch: whatever has no card yet is graded, until all is done or somebody interrupts."""

import datetime
import io
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from evaluator.batch.runs.index import Index, Row
from evaluator.batch.runs.inputs import Item
from evaluator.batch.runs.run_folder import Plan, RunFolder, not_written
from evaluator.batch.runs.tasks import Planned, Refused, Seen, Task
from evaluator.batch.workers.infra_card import infra_card
from evaluator.batch.workers.messages import Graded
from evaluator.batch.workers.worker_handle import Hire, Slot
from evaluator.batch.workers.worker_pool import Began, Drained, Ended, WorkerPool
from evaluator.errors import CardError, ExitCode, InfraError
from evaluator.files.card_files import read_bytes, read_card, write_card
from evaluator.files.safe_open import open_to_append
from evaluator.grade_options import GradeOptions
from evaluator.records import Scorecard, Status
from evaluator.report.layout.text import one_line
from evaluator.signatures.keys import SigningKey
from evaluator.signatures.signing import State, signature_of, signed

RETRIED = {
    None: frozenset[Status](),
    "infra": frozenset({Status.INFRA_ERROR}),
    "failed": frozenset(Status) - {Status.CORRECT},
}
"""Which cards are made again, by what was asked for."""


class Copy(NamedTuple):
    """A submission whose content was graded already, or is being graded, under another name."""

    card: str
    name: str
    origin: str


class Result(NamedTuple):
    """A submission that has its card now. `how` is graded, copied (from an equal one), or kept (from before)."""

    row: Row
    how: str
    attempts: int = 0


class Display(Protocol):
    """Whoever shows what happens."""

    def began(self, event: Began) -> None:
        """Say that a slot is at a stage of a task."""

    def result(self, result: Result) -> None:
        """Say what came of a submission."""

    def refused(self, refused: Refused) -> None:
        """Say that something cannot be graded."""


class Tally:
    """What came of everything that was handed in."""

    def __init__(self) -> None:
        self.statuses: Counter[Status] = Counter()
        self.hows: Counter[str] = Counter()
        self.refused = 0

    def add(self, result: Result) -> None:
        """Count one in."""
        self.statuses[Status(result.row.status)] += 1
        self.hows[result.how] += 1

    def __str__(self) -> str:
        parts = [f"{count} {status.value}" for status, count in self.statuses.most_common()]
        if self.refused:
            parts.append(f"{self.refused} refused")
        return ", ".join(parts) or "nothing was handed in"

    @property
    def exit_code(self) -> ExitCode:
        """Say it to the shell: incomplete results weigh most, then inputs that are wrong, then wrong submissions."""
        if self.statuses[Status.INFRA_ERROR]:
            return ExitCode.INFRASTRUCTURE
        if self.refused:
            return ExitCode.USAGE
        return ExitCode.CORRECT if set(+self.statuses) <= {Status.CORRECT} else ExitCode.NOT_CORRECT


class Scheduler:
    """Grades `items` into `folder`.

    The threads of the crew take tasks (`_next`); this object's own thread writes cards and index. What both need is
    behind one lock.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        items: Iterator[Item],
        options: GradeOptions,
        slots: Sequence[Slot],
        display: Display,
        *,
        retry: str | None = None,
        fail_fast: bool = False,
        hire: Hire | None = None,
        key: SigningKey | None = None,
    ) -> None:
        """Keep what is wanted; `run` does it."""
        self._hire = hire
        self._key = key
        self._folder = folder
        self._plan = plan
        self._items = items
        self._options = options
        self._slots = slots
        self._display = display
        self._retried = RETRIED[retry]
        self._fail_fast = fail_fast
        self._tally = Tally()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Copy]] = {}
        self._graded: dict[str, str] = {}
        self._asides: deque[Result | Refused | tuple[Copy, str]] = deque()  # between the threads

    def run(self) -> Tally:
        """Do it.

        Raises:
            InfraError: a card could not be stored; what is there is whole, and the same command goes on.
            KeyboardInterrupt: somebody interrupted; likewise.
        """
        try:
            return self._run()
        except OSError as error:
            raise not_written(self._folder.path, error) from error

    def _run(self) -> Tally:
        with (
            Index(self._folder) as index,
            io.TextIOWrapper(open_to_append(self._folder.logs, "batch.log"), "utf-8", write_through=True) as log,
        ):
            self._index, self._log = index, log
            self._note("begin", f"{len(index.rows)} cards are there")
            for broken in index.broken:
                self._note("not read", broken.message)
            for row in index.rows.values():
                if row.key and row.contradiction is None and self._counts(row) and self._may_be_copied(row.card):
                    self._graded[row.key] = row.card
            try:
                with WorkerPool(
                    self._slots,
                    self._options,
                    self._next,
                    logs=self._folder.logs,
                    fail_fast=self._fail_fast,
                    hire=self._hire,
                ) as worker_pool:
                    self._listen(worker_pool)
            except KeyboardInterrupt:
                self._note("interrupted", "")
                raise
            self._note("end", f"{sum(self._tally.statuses.values())} have a card")
        return self._tally

    def _listen(self, worker_pool: WorkerPool) -> None:
        left = len(self._slots)
        while left:
            event = worker_pool.events.get()
            self._tell_asides()
            match event:
                case Began():
                    self._display.began(event)
                case Ended():
                    self._ended(event)
                case Drained(error=error):
                    left -= 1
                    if error is not None:
                        raise error
        self._tell_asides()

    # What follows is called by the crew's threads, one at a time.

    def _next(self) -> Task | None:
        """Give the next submission that must be graded; what need not be is set aside for the other thread."""
        for given in self._items:
            if isinstance(given, Seen) and self._is_kept(given.planned):
                continue
            item = given.read() if isinstance(given, Seen) else given
            if isinstance(item, Refused):
                self._asides.append(item)
                continue
            self._plan.add(item)
            with self._lock:
                if self._is_graded(item):
                    continue
                if item.key is not None:
                    self._waiting[item.key] = []
            return item
        return None

    def _is_graded(self, task: Task) -> bool:
        """Say whether there is, or will be, a card for `task` without grading it."""
        if self._has_card(task.card, task.problem.sha256, task.submission_sha256):
            return True
        if task.key is None:
            return False
        copy = Copy(task.card, task.name, task.submission.origin)
        if task.key in self._graded:
            self._asides.append((copy, self._graded[task.key]))
            return True
        if task.key in self._waiting:
            self._waiting[task.key].append(copy)
            return True
        return False

    def _is_kept(self, planned: Planned) -> bool:
        with self._lock:
            return self._has_card(planned.card, planned.problem_sha256, planned.submission_sha256)

    def _has_card(self, card: str, problem_sha256: str, submission_sha256: str | None) -> bool:
        """Say whether there is a card of just that; if so, count it."""
        row = self._index.rows.get(card)
        if row is None or (row.problem_sha256, row.submission_sha256) != (problem_sha256, submission_sha256):
            return False
        if row.contradiction is not None or not self._counts(row):
            return False
        self._asides.append(Result(row, "kept"))
        return True

    def _counts(self, row: Row) -> bool:
        return Status(row.status) not in self._retried

    # What follows is called by this object's own thread.

    def _ended(self, event: Ended) -> None:
        task = event.task
        if isinstance(event.result, Graded):
            card = event.result.card
        else:
            card = infra_card(task, self._options, event.result.reason, self._slots[event.slot])
        row = self._write(task.card, card)
        with self._lock:
            copies = self._waiting.pop(task.key, []) if task.key else []
            if task.key:
                self._graded[task.key] = task.card
        self._show(Result(row, "graded", event.attempts))
        for copy in copies:
            self._copy(copy, card)

    def _tell_asides(self) -> None:
        while self._asides:
            match self._asides.popleft():
                case Refused() as refused:
                    self._tally.refused += 1
                    self._note("refused", f"{refused.origin}: {refused.reason}")
                    self._display.refused(refused)
                case Result() as kept:
                    self._tally.add(kept)
                    self._display.result(kept)
                case copy, card:
                    cards = self._folder.cards
                    if not self._may_be_copied(card):
                        raise InfraError(f"{cards / card} was changed during the batch")
                    self._copy(copy, read_card(cards / card, cards))

    def _copy(self, copy: Copy, card: Scorecard) -> None:
        """Report a grade for an equal submission under its own name."""
        named = replace(card, submission=replace(card.submission, name=copy.name, origin=copy.origin))
        self._show(Result(self._write(copy.card, named), "copied"))

    def _may_be_copied(self, card: str) -> bool:
        """Say whether a card of the run may stand for an equal submission: who signs copies what it signed itself."""
        if self._key is None:
            return True
        try:
            seen = signature_of(read_bytes(self._folder.cards / card, self._folder.cards))
        except (CardError, ValueError):
            return False
        return seen.state is State.INTACT and seen.signer is not None and seen.signer.raw == self._key.public.raw

    def _write(self, place: str, card: Scorecard) -> Row:
        card = signed(card, self._key)
        write_card(card, self._folder.cards / place, named=False)
        with self._lock:
            return self._index.add(place, card)

    def _show(self, result: Result) -> None:
        self._tally.add(result)
        row = result.row
        self._note(result.how, f"{row.card} {row.status} {row.wall_s:.1f} s, attempt {result.attempts}")
        self._display.result(result)

    def _note(self, what: str, text: str) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._log.write(f"{now} {what} {one_line(text, 300)}\n")
        self._log.flush()
