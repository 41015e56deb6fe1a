"""What a grade on its own begins while PyTorch is imported: contexts on the GPU, and the submission's builds."""

import contextlib
from typing import TYPE_CHECKING

from evaluator.deadline import Deadline, Guard
from evaluator.devices.gpu import Gpu
from evaluator.isolation import Starter
from evaluator.judge.starting import light_starter_for
from evaluator.judge.terms import Terms

if TYPE_CHECKING:
    from evaluator.build.builder import RunTool
    from evaluator.build.equipment import ExtensionBuilder
    from evaluator.judge.early import Early
    from evaluator.judge.foothold import Foothold
    from evaluator.judge.keeper import Keeper

_CORES_FOR_EARLY = 4


def reach_for(gpu: Gpu, starter: Starter, own: contextlib.ExitStack) -> "Foothold":
    """Have contexts made on the GPU while torch is imported; `own` gives it back."""
    from evaluator.judge.foothold import Foothold

    foothold = own.enter_context(Foothold(gpu, starter))
    own.callback(starter.give_up)  # A grade that ends before the starter is ready need not wait for its runners.
    foothold.reach()
    return foothold


def keeper_of(starter: Starter, early: "Early | None", foothold: "Foothold | None") -> "Keeper":
    """Return a keeper for this grade alone, with what was begun."""
    from evaluator.judge.keeper import Keeper

    return Keeper(starter, lasting=False, early=early, foothold=foothold)


def may_begin_early(terms: Terms) -> bool:
    """Say whether builds may begin before torch is there. With few cores they would only take turns with its import.

    Where every wall is asked for, nobody looks at the submission before they are known to stand.
    """
    return terms.threads >= _CORES_FOR_EARLY and not terms.options.strict


def begin_early(terms: Terms, source: str, own: contextlib.ExitStack, guard: Guard, deadline: Deadline) -> "Early":
    """Begin builds in a starter of its own; `own` ends both."""
    from evaluator.build.cache import BuildCache, cache_folder
    from evaluator.build.equipment import builder
    from evaluator.judge.early import Early
    from evaluator.judge.tools import Tools

    cache = BuildCache(cache_folder())
    starter = own.enter_context(light_starter_for(terms.device, terms.options.sandbox_mode))
    guard.kill_with(starter.condemn_all)

    def builder_of(run_tool: "RunTool") -> "ExtensionBuilder":
        return builder(
            terms.device,
            terms.gpu,
            run_tool,
            cache,
            terms.options.build_timeout_s,
            lambda entry, limits: starter.spawn(entry, limits=limits),
            source,
        )

    return own.enter_context(Early(starter, Tools(starter, terms.device, lambda: deadline), builder_of, source))
