"""The desk's limit is of the time that a runner waited: builds begun ahead, side by side, take more than that."""

import time

from evaluator.build.built import Built
from evaluator.findings import Code
from evaluator.frames import BuildRequest
from evaluator.judge.desk import BuildDesk
from evaluator.records import BuildUnit

REQUEST = BuildRequest(name="mine", cpp_sources=["int f();"])


class Slow:
    """A builder that fails, after `waited_s`, what took `wall_s`."""

    def __init__(self, waited_s, wall_s):
        self.waited_s, self.wall_s = waited_s, wall_s
        self.asked = 0

    def build(self, request):
        self.asked += 1
        time.sleep(self.waited_s)
        unit = BuildUnit(
            name=request.name, key="key", ok=False, cached=False, wall_s=self.wall_s, diagnostics=[], log=""
        )
        return Built(unit=unit, library=None, finding=None)


def test_who_waited_too_long_gets_nothing_more():
    builder = Slow(waited_s=0.1, wall_s=0.0)
    desk = BuildDesk(builder, limit_s=0.05)
    desk.serve(REQUEST)
    reply, _ = desk.serve(REQUEST)
    assert (reply.ok, builder.asked) == (False, 1)
    assert [failure.code for failure in desk.failures] == [Code.COMPILER_TIMED_OUT.value]


def test_what_was_begun_ahead_counts_as_long_as_it_was_waited_for():
    builder = Slow(waited_s=0.0, wall_s=40.0)
    desk = BuildDesk(builder, limit_s=60.0)
    for _ in range(3):
        desk.serve(REQUEST)
    assert builder.asked == 3
    assert desk.failures == []
