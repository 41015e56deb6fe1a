"""What the build services of a grade share: the submission's budget, builder and lines."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluator.compile.builder import BuildResult
from evaluator.judge.context.grade_context import BuildServices
from evaluator.protocol.frames import BuildRequest
from evaluator.records import BuildUnit, MachineCode


@pytest.fixture
def services():
    made = SimpleNamespace(builder_of=lambda source: f"builder of {source}")
    speculative = SimpleNamespace(in_front_of=lambda builder: f"early {builder}", end=lambda: ended.append(True))
    ended = []
    return SimpleNamespace(
        plain=BuildServices(made, "one", 60.0, None), early=BuildServices(made, "one", 60.0, speculative), ended=ended
    )


def test_the_runners_of_a_submission_share_one_budget(services):
    first, second = services.plain.for_submission(), services.plain.for_submission()
    assert first is not second
    assert first._build_budget is second._build_budget
    assert first._submission == "one"


def test_the_next_submission_has_a_budget_a_builder_and_lines_of_its_own(services):
    before = services.plain.for_submission()
    services.plain.turn_to("two")
    after = services.plain.for_submission()
    assert after._build_budget is not before._build_budget
    assert (after._builder, after._submission) == ("builder of two", "two")


@pytest.mark.parametrize("kind", ["for_source", "with_empty_kernels", "with_resource_usage"])
def test_other_builds_do_not_use_the_submissions_budget(services, kind):
    arguments = ["baseline"] if kind == "for_source" else []
    service = getattr(services.plain, kind)(*arguments)
    assert service._build_budget is not services.plain.for_submission()._build_budget


def test_only_the_submissions_builds_are_speculative(services):
    assert services.early.for_submission()._builder == "early builder of one"
    assert services.early.with_empty_kernels()._builder == "early builder of one"
    assert services.early.for_source("baseline")._builder == "builder of baseline"


def test_speculative_builds_are_ended_where_there_are_any(services):
    services.plain.end_speculative()
    assert services.ended == []
    services.early.end_speculative()
    assert services.ended == [True]


class Builder:
    """Builds the library that a request's name says, unless the name is `refused`."""

    def build(self, request):
        built = request.name != "refused"
        unit = BuildUnit(request.name, "0" * 64, ok=built, cached=False, wall_s=0.0, diagnostics=[], log="")
        return BuildResult(unit=unit, library=request.name.encode() if built else None, finding=None)


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
    for build_service in (
        services.for_submission(),
        services.for_submission(),
        services.for_source("baseline"),
        services.with_resource_usage(),
    ):
        name = "baseline" if build_service._submission == "baseline" else "mine"
        build_service.serve(BuildRequest(name=name, cpp_sources=["int f();"]))
    assert services.machine_code() == MachineCode(kernels=1)
    assert read == [b"mine"]
    services.turn_to("two")
    assert services.machine_code() == MachineCode()


def test_a_build_ahead_leaves_no_descriptor_and_nothing_of_the_submissions_budget(disassembled):
    services, read = disassembled
    before = len(list(Path("/proc/self/fd").iterdir()))
    services.build_ahead([BuildRequest(name=name, cpp_sources=["int f();"]) for name in ("one", "two", "refused")])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert services.for_submission()._build_budget.waited_s == 0.0
    services.machine_code()
    assert sorted(read) == [b"one", b"two"]


def test_a_device_without_machine_code_has_none(services):
    assert services.plain.machine_code() is None
    services.plain.close(lambda: None)
