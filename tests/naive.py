"""A deliberately naive grader: one process, PyTorch's own load_inline, torch.allclose. What ours is held against."""

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType

import torch

from evaluator.catalog import sized_source
from evaluator.records import Problem, SizeName


def reference_module(problem: Problem, size: SizeName) -> ModuleType:
    module = ModuleType("model")
    exec(compile(sized_source(problem, size), problem.path, "exec"), module.__dict__)
    sys.modules["model"] = module
    return module


def submission_class(path: Path) -> type:
    spec = importlib.util.spec_from_file_location(f"submission_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def called(target, arguments):
    return target(**arguments) if isinstance(arguments, dict) else target(*arguments)


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [leaf for item in items for leaf in tensors(item)]


def models(reference: ModuleType, model_new: type, device: str):
    """Construct both sides under one seed, and copy the weights over."""
    init = reference.get_init_inputs()
    torch.manual_seed(0)
    model = called(reference.Model, init)
    torch.manual_seed(0)
    candidate = called(model_new, init)
    candidate.load_state_dict(model.state_dict())
    return model.to(device), candidate.to(device)


def gpu_grade(problem: Problem, path: Path, size: SizeName) -> dict[str, object]:
    """Grade as graders of this kind usually do: compile, five trials, 3 + 100 timed calls, all in this process.

    Inputs are drawn on the CPU and copied over, both sides are timed by events around each call, and the L2 cache is
    overwritten between calls.
    """
    reference = reference_module(problem, size)
    model, candidate = models(reference, submission_class(path), "cuda")
    correct = True
    for trial in range(5):
        torch.manual_seed(trial)
        inputs = moved(reference.get_inputs(), "cuda")
        with torch.no_grad():
            expected, answer = called(model, inputs), called(candidate, inputs)
        correct &= all(
            torch.allclose(one, other, atol=1e-4, rtol=1e-4)
            for one, other in zip(tensors(expected), tensors(answer), strict=True)
        )
        del expected, answer
    inputs = moved(reference.get_inputs(), "cuda")
    return {
        "correct": correct,
        "submission_ms": _median_ms(candidate, inputs),
        "reference_ms": _median_ms(model, inputs),
    }


def _median_ms(model: torch.nn.Module, inputs) -> float:
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times_ms = []
    with torch.no_grad():
        for call in range(103):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            start.record()
            called(model, inputs)
            end.record()
            torch.cuda.synchronize()
            if call >= 3:
                times_ms.append(start.elapsed_time(end))
    return statistics.median(times_ms)
