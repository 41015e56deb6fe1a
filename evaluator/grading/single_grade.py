"""Preparation of a single grade during the import of PyTorch: GPU contexts and the submission's builds."""

import contextlib
from typing import TYPE_CHECKING

from evaluator.deadline import Deadline, Guard
from evaluator.devices.gpu import Gpu
from evaluator.judge.runners.fork_servers import light_fork_server_for
from evaluator.judge.setup.terms import Terms
from evaluator.sandbox import ForkServer

if TYPE_CHECKING:
    from evaluator.compile.device_builders import ExtensionBuilder
    from evaluator.compile.extension.builder import RunTool
    from evaluator.judge.backend.gpu_session import GpuSession
    from evaluator.judge.context.context_pool import ContextPool
    from evaluator.judge.runners.speculative_build import SpeculativeBuild

_CORES_FOR_EARLY = 4


def reach_for(gpu: Gpu, fork_server: ForkServer, own: contextlib.ExitStack) -> "GpuSession":
    """Start to create GPU contexts while torch is imported; `own` releases the GPU."""
    from evaluator.judge.backend.gpu_session import GpuSession

    gpu_session = own.enter_context(GpuSession(gpu, fork_server))
    own.callback(fork_server.give_up)  # A grade that ends early need not wait for the fork server's runners.
    gpu_session.reach()
    return gpu_session


def keeper_of(
    fork_server: ForkServer, speculative_build: "SpeculativeBuild | None", gpu_session: "GpuSession | None"
) -> "ContextPool":
    """Return a context pool for a single grade, with the prepared build and GPU session."""
    from evaluator.judge.context.context_pool import ContextPool

    return ContextPool(fork_server, lasting=False, speculative_build=speculative_build, gpu_session=gpu_session)


def may_begin_early(terms: Terms) -> bool:
    """Return whether builds may start before torch is imported. With few cores they would only delay the import.

    With `--strict`, no process reads the submission before every sandbox layer is confirmed.
    """
    return terms.threads >= _CORES_FOR_EARLY and not terms.options.strict


def begin_early(
    terms: Terms, source: str, own: contextlib.ExitStack, guard: Guard, deadline: Deadline
) -> "SpeculativeBuild":
    """Start speculative builds in a separate fork server; `own` ends both."""
    from evaluator.cache.build_cache import BuildCache, cache_folder
    from evaluator.compile.device_builders import builder
    from evaluator.judge.runners.sandboxed_tools import SandboxedTools
    from evaluator.judge.runners.speculative_build import SpeculativeBuild

    cache = BuildCache(cache_folder())
    fork_server = own.enter_context(light_fork_server_for(terms.device, terms.options.sandbox_mode))
    guard.kill_with(fork_server.condemn_all)

    def builder_of(run_tool: "RunTool") -> "ExtensionBuilder":
        return builder(
            terms.device,
            terms.gpu,
            run_tool,
            cache,
            terms.options.build_timeout_s,
            fork_server.spawn,
            source,
        )

    return own.enter_context(
        SpeculativeBuild(fork_server, SandboxedTools(fork_server, terms.device, lambda: deadline), builder_of, source)
    )
