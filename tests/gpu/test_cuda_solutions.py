"""Every shipped CUDA solution, built as PyTorch builds it and held against its reference on a real GPU."""

import gc
from pathlib import Path

import pytest
import torch

from evaluator.catalog import find_problem
from evaluator.judge.compare.limits import limit_of
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.tensors.number_formats import format_of
from evaluator.paths import data_dir
from evaluator.records import SizeName
from tests.naive import called, models, moved, reference_module, submission_class, tensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SOLUTIONS = sorted(data_dir("solutions").glob("*/cuda_*.py"))


def held_against(problem, actual, expected, wide):
    """Compare on the GPU with the judge's own comparison; `wide` is the reference in float64, or None."""
    is_single = isinstance(expected, torch.Tensor)
    for place, (got, honest) in enumerate(zip(tensors(actual), tensors(expected), strict=True)):
        assert got.shape == honest.shape
        assert got.dtype == honest.dtype
        exact = honest if wide is None else tensors(wide)[place]
        path = "output" if is_single else f"output[{place}]"
        limits = limit_of(problem, path, honest)
        exact = exact.to(honest.dtype) if limits is None else exact
        check = compare(path, Sides(got, exact, honest), limits)
        assert check.ok, check


@pytest.fixture(autouse=True)
def true_fp32():
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    gc.collect()
    torch.cuda.empty_cache()


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_solution_agrees_with_its_reference(path: Path):
    problem = find_problem(path.parent.name)
    model_new = submission_class(path)
    for size in (SizeName.SMALL, SizeName.AWKWARD, SizeName.FULL):
        if size not in problem.cases:
            continue
        reference = reference_module(problem, size)
        with torch.device("cuda"):
            torch.manual_seed(1)
            inputs = moved(reference.get_inputs(), "cuda")
        model, candidate = models(reference, model_new, "cuda")
        if problem.backward:
            check_gradients(problem, model, candidate, inputs)
            continue
        with torch.no_grad():
            expected = called(model, inputs)
            actual = called(candidate, inputs)
            wide = None
            if size is not SizeName.FULL:
                doubles = moved(inputs, torch.device("cuda"))
                doubles = widened(doubles)
                wide = called(model.double(), doubles)
        torch.cuda.synchronize()
        held_against(problem, actual, expected, wide)


def widened(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() and format_of(value.dtype) is None else value
    if isinstance(value, dict):
        return {key: widened(item) for key, item in value.items()}
    return [widened(item) for item in value]


def check_gradients(problem, model, candidate, inputs):
    results = []
    for side in (model, candidate):
        leaves = [leaf.detach().clone().requires_grad_() for leaf in tensors(inputs)]
        output = side(*leaves)
        torch.manual_seed(2)
        output.backward(torch.randn_like(output))
        results.append([output.detach(), *(leaf.grad for leaf in leaves)])
    held_against(problem, results[1], results[0], None)
