"""Pool of grade contexts: a new context for each grade, or one context for successive grades of the same problem.

On a GPU, successive problems share the judge's CUDA context and the GPU's lease: loading PyTorch's kernels anew takes
longer than most grades. No process and no memory of a problem outlives its context.

A pool needs no PyTorch before `make_room`, so that the pool of a single grade can be made during the import of PyTorch.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from evaluator.deadline import Deadline
from evaluator.errors import WarpgradeError
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import Scorecard
from evaluator.sandbox import ForkServer

if TYPE_CHECKING:
    from evaluator.judge.clock.gpu_session import GpuSession
    from evaluator.judge.context.grade_context import GradeContext
    from evaluator.judge.context.reference_timing import ReferenceTimer
    from evaluator.judge.context.torch_state import TorchState
    from evaluator.judge.runners.speculative_build import SpeculativeBuild


class ContextPool:
    """Source of grade contexts. A context manager: the exit ends the kept context."""

    def __init__(
        self,
        fork_server: ForkServer,
        *,
        lasting: bool,
        speculative_build: "SpeculativeBuild | None" = None,
        gpu_session: "GpuSession | None" = None,
    ) -> None:
        """Create contexts with runners of `fork_server`. `lasting` keeps a context for grades with the same terms.

        For a single grade, pass the speculative build and the GPU session that were started during the import of torch.
        """
        self._fork_server = fork_server
        self._lasting = lasting
        self._speculative_build = speculative_build
        self._gpu_session = gpu_session
        self._kept: tuple[GradeContext, ReferenceTimer] | None = None
        self._leaving = contextlib.ExitStack()
        self._lasting_session: GpuSession | None = None
        self._torch_state: TorchState | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_all()

    def must_end(self, terms: GradeTerms) -> bool:
        """Return whether a grade on `terms` needs a new process: for another problem, if another grade awaits the GPU.

        Also if the code of the last problem has changed PyTorch.
        """
        if self._kept is None or self._kept[0].terms == terms:
            return False
        from evaluator.judge.context.torch_state import TorchState

        changed = self._torch_state is not None and not TorchState.now().is_as(self._torch_state)
        return self.is_in_the_way or changed

    def make_room(self, terms: GradeTerms, *, plans_memory: bool) -> None:
        """End a context with other terms.

        With `plans_memory`, raises UsageError if a grade on the new terms would exceed the memory.
        """
        if self._kept is not None and self._kept[0].terms == terms:
            return
        self._drop()
        if plans_memory:
            from evaluator.judge.setup.memory_plan import refuse_what_does_not_fit

            for case in terms.cases:
                refuse_what_does_not_fit(terms.problem, case, terms.gpu)

    @contextlib.contextmanager
    def context_for(
        self, terms: GradeTerms, source: str, card: Scorecard | None, deadline: Deadline | None = None
    ) -> "Iterator[tuple[GradeContext, ReferenceTimer]]":
        """Yield the grade context and the reference timer for one submission, until its `deadline`.

        A replay uses the seeds of `card`. An exception inside the context ends the grade context.
        """
        from evaluator.judge.context.grade_context import GradeContext
        from evaluator.judge.context.reference_timing import ReferenceTimer
        from evaluator.judge.context.torch_state import TorchState
        from evaluator.judge.runners.fork_servers import prepare_for
        from evaluator.judge.setup.seed_book import SeedBook

        if not self._lasting:
            with (
                GradeContext(
                    terms,
                    source,
                    SeedBook(card),
                    fork_server=self._fork_server,
                    speculative_build=self._speculative_build,
                    gpu_session=self._gpu_session,
                    deadline=deadline,
                ) as context,
                ReferenceTimer(context) as timer,
            ):
                yield context, timer
            return
        prepare_for(source, terms.device, self._fork_server)
        if self._torch_state is None and terms.gpu is not None:
            gc.freeze()  # The collection after a problem takes 0.2 s less without PyTorch's own objects.
        if self._kept is None:
            context = GradeContext(
                terms,
                source,
                SeedBook(card),
                fork_server=self._fork_server,
                lasting=True,
                gpu_session=self._session_for(terms),
                deadline=deadline,
            )
            self._torch_state = self._torch_state or TorchState.now()
            self._kept = (
                self._leaving.enter_context(context),
                self._leaving.enter_context(ReferenceTimer(context, lasting=True)),
            )
        else:
            context, _ = self._kept
            context.turn_to(source, SeedBook(card, weight=context.seeds.weight), deadline)
        try:
            yield self._kept
        except BaseException:
            self._drop_all()
            raise

    def _session_for(self, terms: GradeTerms) -> "GpuSession | None":
        """Return the session of the grade's GPU, kept from the problem before or new; None without a GPU."""
        from evaluator.judge.clock.gpu_session import GpuSession
        from evaluator.judge.runners.runner_pool import GPU_RUNNERS

        if terms.gpu is None:
            return None
        if self._lasting_session is None:
            self._lasting_session = GpuSession(terms.gpu, self._fork_server, runner_pool=GPU_RUNNERS, lasting=True)
        else:
            self._lasting_session.renew()
        return self._lasting_session

    def refill(self) -> None:
        """Start the processes that the next grade in the kept context takes. A failure ends the context."""
        if self._kept is None:
            return
        try:
            self._kept[0].refill()
        except (WarpgradeError, OSError):  # The next grade makes a new context, and reports a lasting failure.
            self._drop_all()

    @property
    def is_in_the_way(self) -> bool:
        """Whether the pool holds a GPU for which another grade waits."""
        return self._lasting_session is not None and self._lasting_session.is_in_the_way

    def kill_all(self) -> None:
        """Begin to kill all processes of the current grade. May be called from another thread."""
        self._fork_server.condemn_all()

    def _drop(self) -> None:
        """End the kept context. Its runners release their GPU contexts in parallel."""
        kept, self._kept = self._kept, None
        try:
            if kept is not None and self._lasting_session is None:
                kept[0].runners.pool.condemn()
        finally:
            self._leaving.__exit__(*sys.exc_info())
        if self._lasting_session is not None:
            del kept
            gc.collect()  # The reference's tensors on the GPU.

    def _drop_all(self) -> None:
        """End the kept context, and release the GPU."""
        session, self._lasting_session = self._lasting_session, None
        with contextlib.ExitStack() as leaving:
            if session is not None:
                leaving.callback(session.close)
            self._drop()
