"""What the build services of a grade share: the submission's budget, builder and lines."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluator.compile.builder import BuildResult
from evaluator.judge.context.grade_context import BuildServices
from evaluator.judge.runners import build_service as build_service_module
from evaluator.protocol.frames import BuildRequest
from evaluator.records import BuildUnit, MachineCode


def request(name="mine"):
    return BuildRequest(name=name, cpp_sources=["int f();"])


class Builder:
    """Builds the library that a request's name says, unless the name is `refused`, and notes the builder's own name."""

    def __init__(self, name="", asked=()):
        self.name, self._asked = name, asked

    def build(self, request):
        if self.name:
            self._asked.append(self.name)
        built = request.name != "refused"
        unit = BuildUnit(request.name, "0" * 64, ok=built, cached=False, wall_s=0.0, diagnostics=[], log="")
        return BuildResult(unit=unit, library=request.name.encode() if built else None, finding=None)


class Services(BuildServices):
    """Build services whose budget is spent by the first build. The names of the builders used are `asked`."""

    def __init__(self, *, speculative=False):
        self.asked, self.ended = [], []
        early = SimpleNamespace(
            in_front_of=lambda builder: Builder(f"early {builder.name}", self.asked),
            end=lambda: self.ended.append(True),
        )
        builders = SimpleNamespace(builder_of=lambda source: Builder(source, self.asked))
        super().__init__(builders, "one", 1e-9, early if speculative else None)


def serves(build_service):
    """Ask for a build, and return whether it was not refused."""
    reply, descriptor = build_service.serve(request())
    if descriptor is not None:
        os.close(descriptor)
    return reply.ok


def test_the_runners_of_a_submission_share_one_budget_and_the_next_has_its_own():
    services = Services()
    assert [serves(services.for_submission()) for _ in range(2)] == [True, False]
    services.turn_to("two")
    assert [serves(services.for_submission()) for _ in range(2)] == [True, False]
    assert services.asked == ["one", "two"]


@pytest.mark.parametrize("speculative", [False, True])
def test_other_builds_have_budgets_of_their_own_and_only_the_submissions_are_speculative(speculative):
    services = Services(speculative=speculative)
    for build_service in (
        services.for_submission(),
        services.with_empty_kernels(),
        services.with_resource_usage(),
        services.for_source("baseline"),
    ):
        assert serves(build_service)
    own = "early one" if speculative else "one"
    assert services.asked == [own, own, own, "baseline"]
    services.end_speculative()
    assert services.ended == [True] * speculative


@pytest.fixture
def disassembled():
    """Services of a device with machine code, and the libraries that were disassembled."""
    read = []

    def disassemble(library, *, timeout_s):
        read.append(library)
        return MachineCode(kernels=1)

    services = BuildServices(SimpleNamespace(builder_of=lambda _: Builder()), "one", 60.0, None, disassemble)
    yield services, read
    services.close(lambda: None)


def test_the_machine_code_is_of_what_the_submissions_own_runners_asked_for(disassembled):
    services, read = disassembled
    for build_service in (services.for_submission(), services.for_submission(), services.with_resource_usage()):
        build_service.serve(request())
    services.for_source("baseline").serve(request("baseline"))
    assert services.machine_code() == MachineCode(kernels=1)
    assert read == [b"mine"]
    services.turn_to("two")
    assert services.machine_code() == MachineCode()


def test_a_build_ahead_leaves_no_descriptor_and_takes_nothing_of_the_submissions_budget(disassembled, monkeypatch):
    services, read = disassembled
    monkeypatch.setattr(build_service_module, "MOST_REQUESTS", 3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    services.build_ahead([request(name) for name in ("one", "two", "refused")])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert serves(services.for_submission())
    services.machine_code()
    assert sorted(read) == [b"mine", b"one", b"two"]


def test_a_device_without_machine_code_has_none():
    services = Services()
    assert services.machine_code() is None
    services.close(lambda: None)
