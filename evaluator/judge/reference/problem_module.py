"""The author's file, executed at a size: it constructs the model and draws inputs."""

import sys
from types import ModuleType

import torch

from evaluator.catalog import sized_source
from evaluator.errors import ProblemError
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.problem_code import CudaMeans, author_code, refuse_other_layouts
from evaluator.protocol.model_call import seed_all
from evaluator.protocol.pytree import mapped
from evaluator.records import CaseName, Mode, Problem


class ProblemModule:
    """Functions of a problem's file.

    `source` is the text at the size, `namespace` what its execution defined, `init` the arguments of `Model`.
    """

    def __init__(self, problem: Problem, size: CaseName) -> None:
        """Execute the file."""
        self._problem = problem
        self.source = sized_source(problem, size)
        module = ModuleType("model")
        self.namespace = module.__dict__
        # dataclasses and torch.jit look up a class's module by name.
        sys.modules["model"] = module
        with author_code(problem.path, "reading it"):
            exec(compile(self.source, problem.path, "exec"), self.namespace)  # noqa: S102 - the author's own code
        self.init = self._arguments("get_init_inputs")

    def construct(self, weight_seed: int) -> torch.nn.Module:
        """Construct `Model` under `weight_seed` on the CPU, in the problem's mode."""
        with author_code(self._problem.path, "Model(...)"):
            seed_all(weight_seed)
            model: torch.nn.Module = self.namespace["Model"](*self.init.args, **self.init.kwargs)
            if self._problem.mode is Mode.EVAL:
                model.eval()  # The result may be None: an own train() may return nothing.
            return model

    def draw(self, seed: int, device: torch.device) -> Arguments:
        """Return the values of `get_inputs` under `seed` on `device`, detached from the graph of their construction."""
        seed_all(seed)
        # The author's code names no device, or a GPU that the grade may not have.
        with device, CudaMeans(device):
            inputs = self._arguments("get_inputs")

        refuse_other_layouts(self._problem.name, [*inputs], "get_inputs()")

        def own(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.detach().to(device)

        return Arguments(mapped(inputs.args, own), mapped(inputs.kwargs, own))

    def _arguments(self, function: str) -> Arguments:
        with author_code(self._problem.path, f"{function}()"):
            value = self.namespace[function]()
        if isinstance(value, dict):
            return Arguments([], {str(key): item for key, item in value.items()})
        if isinstance(value, list | tuple):
            return Arguments(list(value), {})
        raise ProblemError(
            f"{self._problem.name}: {function}() returns a {type(value).__name__}",
            hint="return a list of positional arguments, or a dict of keyword arguments",
        )
