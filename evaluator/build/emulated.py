"""Build inline CUDA for the emulator: the front end's ladder of steps, each compiled in the sandbox."""

from evaluator.build.builder import Builder, Built
from evaluator.frames import BuildRequest


class EmulatedBuilder(Builder):
    """PLACEHOLDER until the front end lands."""

    def build(self, request: BuildRequest) -> Built:
        return super().build(request)
