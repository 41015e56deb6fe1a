"""Outputs that are the reference's own to the bit."""

import pytest
import torch

from evaluator.judge.answer import output_checks as answers_module
from evaluator.judge.answer.output_checks import follows, same_as
from evaluator.judge.reference.reference import Honest
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.protocol import model_call

X = torch.arange(24.0).view(6, 4)


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU, where comparisons are queued and read later."""

    is_cuda = True


@pytest.fixture(params=[torch.Tensor, OnGpu], autouse=True)
def kind(request, monkeypatch):
    monkeypatch.setitem(globals(), "KIND", request.param)


KIND: type[torch.Tensor] = torch.Tensor


def shot(tensor: torch.Tensor) -> list[OutputViews]:
    tensor = tensor.as_subclass(KIND)
    return [OutputViews("output", tensor, tensor, None)]


def answers(*blocks: torch.Tensor, borrowed: frozenset[str] = frozenset()) -> list[Honest]:
    return [Honest(model_call.Result(block, None), borrowed) for block in blocks]


@pytest.mark.parametrize("blocks", [(X,), X.split(2), X.split(4)])
def test_equal_outputs_are_the_same_whole_or_in_blocks(blocks):
    assert same_as(answers(*blocks), shot(X.clone())) == frozenset()


@pytest.mark.parametrize("at", [0, 23])
@pytest.mark.parametrize("blocks", [(X,), X.split(4)])
def test_one_unit_in_the_last_place_is_a_difference(at, blocks):
    other = X.clone()
    other.view(-1)[at] = torch.nextafter(X.view(-1)[at], torch.tensor(1e9))
    assert same_as(answers(*blocks), shot(other)) is None


def test_not_a_number_is_left_to_the_comparison():
    other = X.clone()
    other[0, 0] = torch.nan
    assert same_as(answers(other.clone()), shot(other)) is None


def test_rows_that_no_block_covers_are_not_taken_for_compared():
    assert same_as(answers(X[:4]), shot(X)) is None
    assert same_as([], shot(X)) is None


def test_nothing_is_computed_after_a_first_block_that_differs():
    def blocks():
        yield from answers(X[:2] + 1)
        raise AssertionError

    assert same_as(blocks(), shot(X)) is None


@pytest.mark.parametrize("at", range(40))
def test_a_difference_in_any_of_many_blocks_is_seen(at):
    wanted = torch.arange(80.0).view(40, 2)
    other = wanted.clone()
    other[at, 1] += 1
    assert same_as(answers(*wanted.split(1)), shot(other)) is None
    assert same_as(answers(*wanted.split(1)), shot(wanted)) == frozenset()


def test_what_is_of_another_dtype_or_shape_is_not_the_same():
    assert same_as(answers(X.double()), shot(X)) is None
    assert same_as(answers(X[:, :1]), shot(X[:, :1].expand(6, 4).clone())) is None
    assert same_as(answers(X, X[:1]), shot(X)) is None


def test_a_gpu_is_waited_for_after_the_first_block_and_then_seldom(monkeypatch):
    waits = []
    monkeypatch.setattr(answers_module, "_all_true", lambda found: waits.append(len(found)) or True)
    wanted = torch.arange(80.0).view(40, 2)
    assert same_as(answers(*wanted.split(1)), shot(wanted)) == frozenset()
    assert [count for count in waits if count] == ([1, 16, 16, 7] if KIND is OnGpu else [])


def test_what_is_borrowed_in_any_block_is_told():
    several = [*answers(X[:2]), *answers(X[2:], borrowed=frozenset({"output"}))]
    assert same_as(several, shot(X)) == {"output"}


def test_a_gradient_is_compared_like_an_output():
    honest = [Honest(model_call.Result(X, {"x": X * 2}), frozenset())]
    other = [*shot(X), OutputViews("gradient of x", X, X * 3, None)]
    assert same_as(honest, other) is None
    right = [*shot(X), OutputViews("gradient of x", X, X * 2, None)]
    assert same_as(honest, right) == frozenset()


@pytest.mark.parametrize(
    ("honest", "answer", "is_proven"),
    [(X, X, True), (X, X + 1, False), (torch.ones(6, 4), torch.ones(6, 4), False), (X[:, :0], X[:, :0], False)],
)
def test_bits_of_the_reference_prove_an_answer_unless_it_is_constant(honest, answer, is_proven):
    assert follows(answers(honest), shot(answer.clone())[0]) is is_proven
