"""Scheduler of a batch session: grades every submission without a card until all are done or the user interrupts."""

import contextlib
import datetime
import io
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from evaluator.batch.runs.index import CardSummary, Index
from evaluator.batch.runs.inputs import Item
from evaluator.batch.runs.refusals import Refusals
from evaluator.batch.runs.run_folder import PlanFile, RunFolder, not_written
from evaluator.batch.runs.tasks import Planned, Refused, Task, UnchangedFile, renamed
from evaluator.batch.timeline import Timeline
from evaluator.batch.workers.messages import GradeFinished
from evaluator.batch.workers.queues import TaskStream
from evaluator.batch.workers.task_grader import infra_card
from evaluator.batch.workers.worker_handle import Hire, Slot
from evaluator.batch.workers.worker_pool import SlotDrained, TaskBegan, TaskEnded, WorkerPool
from evaluator.errors import CardError, ExitCode, InfraError
from evaluator.files.card_files import read_bytes, read_card, write_card
from evaluator.files.safe_open import open_to_append
from evaluator.grade_options import GradeOptions
from evaluator.records import Scorecard, Status
from evaluator.signatures.keys import SigningKey
from evaluator.signatures.signing import State, signature_of, signed
from evaluator.text import one_line

RETRIED = {
    None: frozenset[Status](),
    "infra": frozenset({Status.INFRA_ERROR}),
    "failed": frozenset(Status) - {Status.CORRECT},
}
"""Statuses of cards to grade again, by the value of `--retry`."""


class CardResult(NamedTuple):
    """Submission with a card. `how` is graded, copied (from an equal submission) or kept (from an earlier session)."""

    row: CardSummary
    how: str
    attempts: int = 0


class Display(Protocol):
    """Receiver of batch events."""

    def began(self, event: TaskBegan) -> None:
        """Show a slot at a stage of a task."""

    def result(self, result: CardResult) -> None:
        """Show the result of a submission."""

    def refused(self, refused: Refused) -> None:
        """Show a refused input."""


class RunTally:
    """Counts of all results of a batch."""

    def __init__(self) -> None:
        self.statuses: Counter[Status] = Counter()
        self.hows: Counter[str] = Counter()
        self.refused = 0

    def add(self, result: CardResult) -> None:
        """Count a result."""
        self.statuses[Status(result.row.status)] += 1
        self.hows[result.how] += 1

    def __str__(self) -> str:
        parts = [f"{count} {status.value}" for status, count in self.statuses.most_common()]
        if self.refused:
            parts.append(f"{self.refused} refused")
        return ", ".join(parts) or "nothing was handed in"

    @property
    def exit_code(self) -> ExitCode:
        """Exit code: infrastructure errors precede refused inputs, refused inputs precede incorrect submissions."""
        if self.statuses[Status.INFRA_ERROR]:
            return ExitCode.INFRASTRUCTURE
        if self.refused:
            return ExitCode.USAGE
        return ExitCode.CORRECT if set(+self.statuses) <= {Status.CORRECT} else ExitCode.NOT_CORRECT


class Scheduler:
    """Scheduler that grades `items` into `folder`.

    Threads of the worker pool take tasks (`_next`). The thread of `run` writes cards and index. One lock guards the
    state shared by both.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: PlanFile,
        refusals: Refusals,
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
        self._hire = hire
        self._key = key
        self._folder = folder
        self._plan = plan
        self._refusals = refusals
        self._items = items
        self._options = options
        self._slots = slots
        self._display = display
        self._retried = RETRIED[retry]
        self._fail_fast = fail_fast
        self._tally = RunTally()
        self._lock = threading.Lock()
        # By key of a submission that is graded or in progress: equal submissions, and the card.
        self._waiting: dict[str, list[Planned]] = {}
        self._graded: dict[str, str] = {}
        # From pool threads to the thread of `run`.
        self._asides: deque[CardResult | Refused | tuple[Planned, str]] = deque()

    def run(self) -> RunTally:
        """Grade all items.

        Raises:
            InfraError: a card could not be stored. Stored cards are complete; the same command resumes the run.
            KeyboardInterrupt: the user interrupted; the same command resumes the run.
        """
        try:
            return self._run()
        except OSError as error:
            raise not_written(self._folder.path, error) from error

    def _run(self) -> RunTally:
        with (
            Index(self._folder) as index,
            io.TextIOWrapper(open_to_append(self._folder.logs, "batch.log"), "utf-8", write_through=True) as log,
            contextlib.closing(Timeline(self._folder, self._slots, time.monotonic())) as timeline,
        ):
            self._index, self._log, self._timeline = index, log, timeline
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
                    TaskStream(self._next),
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
        open_slots = len(self._slots)
        while open_slots:
            event = worker_pool.events.get()
            self._tell_asides()
            match event:
                case TaskBegan(slot=slot, task=task, stage=stage, at_s=at_s):
                    self._timeline.stage(slot, (task.problem.name, task.name), stage, at_s)
                    self._display.began(event)
                case TaskEnded(slot=slot, at_s=at_s):
                    self._timeline.end(slot, at_s)
                    self._ended(event)
                case SlotDrained(error=error):
                    open_slots -= 1
                    if error is not None:
                        raise error
        self._tell_asides()

    # Below: called by threads of the worker pool, one at a time.

    def _next(self) -> Task | None:
        """Return the next submission to grade. Put kept, copied and refused submissions aside for the other thread."""
        for entry in self._items:
            if isinstance(entry, UnchangedFile) and self._is_kept(entry.planned):
                continue
            item = entry.read() if isinstance(entry, UnchangedFile) else entry
            if isinstance(item, Refused):
                self._refusals.add(item)
                self._asides.append(item)
                continue
            planned = item.planned
            self._plan.add(planned)
            self._refusals.accept(planned)
            with self._lock:
                if self._is_graded(planned):
                    continue
                if planned.key is not None:
                    self._waiting[planned.key] = []
            return item
        self._refusals.complete()
        return None

    def _is_graded(self, planned: Planned) -> bool:
        """Return whether a submission has a card, or gets a copy of an equal submission's card."""
        if self._has_card(planned):
            return True
        if (key := planned.key) in self._graded:
            self._asides.append((planned, self._graded[key]))
            return True
        if key in self._waiting:
            self._waiting[key].append(planned)
            return True
        return False

    def _is_kept(self, planned: Planned) -> bool:
        with self._lock:
            return self._has_card(planned)

    def _has_card(self, planned: Planned) -> bool:
        """Return whether a valid card of the same content exists, and report the card as kept."""
        row = self._index.rows.get(planned.card)
        if row is None or not row.is_of(planned) or row.contradiction is not None or not self._counts(row):
            return False
        self._asides.append(CardResult(row, "kept"))
        return True

    def _counts(self, row: CardSummary) -> bool:
        return Status(row.status) not in self._retried

    # Below: called by the thread of `run`.

    def _ended(self, event: TaskEnded) -> None:
        task = event.task
        if isinstance(event.result, GradeFinished):
            card = event.result.card
        else:
            card = infra_card(task, self._options, event.result.reason, self._slots[event.slot], event.result.hint)
        row = self._write(task.card, card)
        with self._lock:
            copies = self._waiting.pop(task.key, []) if task.key else []
            if task.key:
                self._graded[task.key] = task.card
        self._show(CardResult(row, "graded", event.attempts))
        for copy in copies:
            self._copy(copy, card)

    def _tell_asides(self) -> None:
        while self._asides:
            match self._asides.popleft():
                case Refused() as refused:
                    self._tally.refused += 1
                    self._note("refused", f"{refused.origin}: {refused.reason}")
                    self._display.refused(refused)
                case CardResult() as result:
                    self._tally.add(result)
                    self._display.result(result)
                case copy, card:
                    cards = self._folder.cards
                    if not self._may_be_copied(card):
                        raise InfraError(f"{cards / card} was changed during the batch")
                    self._copy(copy, read_card(cards / card, cards))

    def _copy(self, copy: Planned, card: Scorecard) -> None:
        """Store a copy of the card of an equal submission under the copy's name."""
        copied_card = renamed(card, copy.name, copy.origin)
        self._show(CardResult(self._write(copy.card, copied_card), "copied"))

    def _may_be_copied(self, card: str) -> bool:
        """Return whether a card of the run may be copied. With a signing key, only cards with its signature may."""
        if self._key is None:
            return True
        try:
            signature = signature_of(read_bytes(self._folder.cards / card, self._folder.cards))
        except (CardError, ValueError):
            return False
        return (
            signature.state is State.INTACT
            and signature.signer is not None
            and signature.signer.raw == self._key.public.raw
        )

    def _write(self, path: str, card: Scorecard) -> CardSummary:
        card = signed(card, self._key)
        write_card(card, self._folder.cards / path, named=False)
        with self._lock:
            return self._index.add(path, card)

    def _show(self, result: CardResult) -> None:
        self._tally.add(result)
        row = result.row
        self._note(result.how, f"{row.card} {row.status} {row.wall_s:.1f} s, attempt {result.attempts}")
        self._display.result(result)

    def _note(self, event: str, text: str) -> None:
        timestamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._log.write(f"{timestamp} {event} {one_line(text, 300)}\n")
        self._log.flush()
