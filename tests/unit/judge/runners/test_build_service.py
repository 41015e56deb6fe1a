"""What a build service answers and keeps, and what all build services of a grade may take.

The limit is of the time that a runner waited: builds begun ahead, side by side, take more than that."""

import os

import msgspec

from evaluator.compile.builder import BuildResult
from evaluator.findings import Code, finding
from evaluator.judge.runners.build_service import BuildBudget, BuildService
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.records import BuildUnit, Diagnostic

REQUEST = BuildRequest(name="mine", cpp_sources=["int f();"])


class Builder:
    """A builder that takes `each_s` of a fake clock for each request, and reports `wall_s` for the build."""

    def __init__(self, each_s=0.0, wall_s=0.0, library=None, log="", diagnostics=()):
        self.each_s, self.wall_s, self.library, self.log = each_s, wall_s, library, log
        self.diagnostics = list(diagnostics)
        self.asked = 0

    def now_s(self):
        return self.asked * self.each_s

    def build(self, request):
        self.asked += 1
        unit = BuildUnit(
            name=request.name,
            key=str(self.asked),
            ok=self.library is not None,
            cached=False,
            wall_s=self.wall_s,
            diagnostics=self.diagnostics,
            log=self.log,
        )
        return BuildResult(unit, self.library, None if unit.ok else finding(Code.FLAG_REFUSED, "no"))


def test_who_waited_too_long_gets_nothing_more_and_is_told_once():
    builder = Builder(each_s=0.31)
    build_service = BuildService(builder, BuildBudget(0.6, builder.now_s))
    replies = [build_service.serve(REQUEST)[0].ok for _ in range(10)]
    assert (replies, builder.asked) == ([False] * 10, 2)
    told = [failure.code for failure in build_service.failures]
    assert told == [*[Code.FLAG_REFUSED.value] * 2, Code.COMPILER_TIMED_OUT.value]


def test_what_was_begun_ahead_counts_as_long_as_it_was_waited_for():
    builder = Builder(wall_s=40.0)
    build_service = BuildService(builder, BuildBudget(60.0, builder.now_s))
    for _ in range(3):
        build_service.serve(REQUEST)
    assert builder.asked == 3


def large(number, kib=2 << 10):
    return BuildRequest(name=f"x{number}", files=[SourceFile(f"{number}.cpp", "a" * (kib << 10))])


def test_nothing_is_kept_of_a_refused_request():
    """J5: texts were kept before anything was refused: 63 requests of 14 MiB, 5 GB."""
    build_service = BuildService(Builder(), BuildBudget(60.0))
    for number in range(31):
        build_service.serve(large(number))
    assert len(build_service.failures) == 31
    assert (build_service.texts, build_service.built_from) == ({}, [])
    assert len(msgspec.msgpack.encode([build_service.units, build_service.failures])) < 31 * 2000


def test_what_is_too_much_reaches_no_builder():
    builder = Builder()
    build_service = BuildService(builder, BuildBudget(60.0))
    for request in (
        BuildRequest(name="x", cpp_sources=["a" * (2 << 20)] * 3),
        BuildRequest(name="x", extra_cflags=["-D" + "x" * 4000] * 9),
    ):
        reply, descriptor = build_service.serve(request)
        assert (reply.ok, descriptor) == (False, None)
    assert builder.asked == 0
    assert [failure.code for failure in build_service.failures] == [Code.BUILD_REQUEST_REFUSED.value] * 2
    assert (build_service.texts, build_service.units) == ({}, [])


def test_texts_of_what_was_built_are_kept_up_to_a_limit():
    build_service = BuildService(Builder(library=b"\x7fELF"), BuildBudget(60.0))
    for number in range(12):
        _, descriptor = build_service.serve(large(number))
        os.close(descriptor)
    assert len(build_service.device_code) == 12
    assert (
        sum(map(len, build_service.texts.values()))
        == sum(len(file.text) for file in build_service.built_from)
        == 16 << 20
    )


def test_thirty_extensions_of_a_whole_submission_are_kept():
    build_service = BuildService(Builder(library=b"\x7fELF", log="x" * 60_000), BuildBudget(60.0))
    for number in range(30):
        _, descriptor = build_service.serve(large(number, kib=30))
        os.close(descriptor)
    assert len(build_service.texts) == 30
    assert all(unit.log == "x" * 60_000 for unit in build_service.units)


def test_the_time_of_all_builds_of_a_grade_is_one():
    """J6: each runner had a limit of its own."""
    builder = Builder(each_s=25.0)
    build_budget = BuildBudget(60.0, builder.now_s)
    for _ in range(8):
        build_service = BuildService(builder, build_budget)
        for _ in range(4):
            build_service.serve(REQUEST)
    assert builder.asked == 3


def test_the_requests_and_texts_of_a_grade_are_counted_over_all_of_its_runners():
    builder = Builder()
    build_budget = BuildBudget(1e9)
    for _ in range(20):
        build_service = BuildService(builder, build_budget)
        for _ in range(64):
            build_service.serve(REQUEST)
    assert builder.asked == 512
    assert build_service.failures[-1].code == Code.TOO_MANY_BUILDS.value
    builder, build_budget = Builder(), BuildBudget(1e9)
    for number in range(40):
        BuildService(builder, build_budget).serve(large(number))
    assert builder.asked == 31  # 64 MiB, names included.


def test_a_card_has_room_for_what_many_builds_say():
    said = Diagnostic(
        severity="error", message="m" * 2000, file="f", line=1, column=1, submission_line=1, source_line="s" * 500
    )
    build_service = BuildService(Builder(log="x" * (64 << 10), diagnostics=[said] * 50), BuildBudget(60.0))
    for _ in range(64):
        build_service.serve(REQUEST)
    assert len(build_service.units) == 64
    assert len(msgspec.json.encode(build_service.units)) < 4 << 20
    assert build_service.units[0].log == "x" * (64 << 10)
    assert len(build_service.units[0].diagnostics) == 50
    assert build_service.units[-1].diagnostics == [said] * 3
