"""Preparation of a single grade during the import of PyTorch: GPU contexts and the submission's builds."""

import contextlib
from typing import TYPE_CHECKING

from evaluator.deadline import Deadline, Guard
from evaluator.devices.gpu import Gpu
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.runners.fork_servers import fork_server_for, light_fork_server_for
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.sandbox import ForkServer

if TYPE_CHECKING:
    from evaluator.compile.device_builders import ExtensionBuilder
    from evaluator.compile.extension.builder import RunTool
    from evaluator.judge.clock.gpu_session import GpuSession
    from evaluator.judge.runners.speculative_build import SpeculativeBuild

_CORES_FOR_SPECULATION = 4


def single_context_pool(
    terms: GradeTerms, source: str, stack: contextlib.ExitStack, guard: Guard, deadline: Deadline
) -> ContextPool:
    """Start the processes of a single grade, before the import of PyTorch; `stack` ends the processes."""
    uuid = None if terms.gpu is None else terms.gpu.uuid
    # Start the fork server first: its import of torch overlaps the judge's.
    fork_server = stack.enter_context(fork_server_for(terms.device, uuid, terms.options.sandbox_mode, terms.threads))
    guard.kill_with(fork_server.condemn_all)
    gpu_session = None if terms.gpu is None else _reach_for(terms.gpu, fork_server, stack)
    speculative_build = (
        start_speculative_build(terms, source, stack, guard, deadline) if _may_build_speculatively(terms) else None
    )
    return stack.enter_context(
        ContextPool(fork_server, lasting=False, speculative_build=speculative_build, gpu_session=gpu_session)
    )


def _reach_for(gpu: Gpu, fork_server: ForkServer, stack: contextlib.ExitStack) -> "GpuSession":
    """Start to create GPU contexts while torch is imported; `stack` releases the GPU."""
    from evaluator.judge.clock.gpu_session import GpuSession

    gpu_session = stack.enter_context(GpuSession(gpu, fork_server))
    stack.callback(fork_server.give_up)  # A grade that ends early need not wait for the fork server's runners.
    gpu_session.reach()
    return gpu_session


def _may_build_speculatively(terms: GradeTerms) -> bool:
    """Return whether builds may start before torch is imported. With few cores they would only delay the import.

    With `--strict`, no process reads the submission before every sandbox layer is confirmed.
    """
    return terms.threads >= _CORES_FOR_SPECULATION and not terms.options.strict


def start_speculative_build(
    terms: GradeTerms, source: str, stack: contextlib.ExitStack, guard: Guard, deadline: Deadline
) -> "SpeculativeBuild":
    """Start speculative builds in a separate fork server; `stack` ends both."""
    from evaluator.cache.build_cache import BuildCache
    from evaluator.compile.device_builders import builder
    from evaluator.judge.runners.fork_servers import SandboxedTools
    from evaluator.judge.runners.speculative_build import SpeculativeBuild
    from evaluator.paths import cache_folder

    cache = BuildCache(cache_folder())
    fork_server = stack.enter_context(light_fork_server_for(terms.device, terms.options.sandbox_mode))
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

    run_tool = SandboxedTools(fork_server, terms.device, lambda: deadline)
    return stack.enter_context(SpeculativeBuild(fork_server, run_tool, builder_of, source, terms.options.entries))
