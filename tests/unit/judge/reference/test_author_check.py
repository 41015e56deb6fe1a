"""A problem's own check: its messages, its errors, and answers that cannot change under it."""

import pytest
import torch
from msgspec.structs import replace

from evaluator.errors import ProblemError
from evaluator.judge.reference.author_check import refusal, refuses_wrong_answers, require_own_answer, with_tensors
from evaluator.judge.reference.reference import Reference
from evaluator.records import CheckRule, SizeName
from tests.unit.references import problem

POSITIVE = "return None if (outputs > 0).all() else 'an output is not positive'"


def checked(body, output="x.exp()", rule=CheckRule.INSTEAD):
    made = problem(output, check=rule)
    return Reference(
        replace(made, source=f"{made.source}\ndef check(inputs, outputs):\n    {body}\n"), SizeName.SMALL, 1
    )


def refused(body, outputs, **how):
    reference = checked(body, **how)
    return refusal(reference, reference.draw(1), outputs)


def test_none_accepts_and_a_message_refuses():
    assert refused(POSITIVE, torch.ones(3)) is None
    assert refused(POSITIVE, -torch.ones(3)) == "an output is not positive"


def test_the_check_has_the_inputs_as_get_inputs_returns_them():
    assert refused("return f'{type(inputs).__name__} of {len(inputs)}'", torch.ones(3)) == "list of 1"


def test_an_exception_on_values_of_a_submission_refuses():
    message = refused("torch.linalg.cholesky(outputs); return None", torch.full((2, 2), torch.nan))
    assert message.startswith("check raised _LinAlgError: ")


def test_a_long_message_of_many_lines_is_one_short_line():
    message = refused("return 'a\\n' * 10_000", torch.ones(3))
    assert "\n" not in message
    assert len(message) <= 400


@pytest.mark.parametrize("value", ["False", "True", "''", "' '", "0", "torch.ones(3)"])
def test_another_result_is_the_authors_mistake(value):
    with pytest.raises(ProblemError, match="check returned "):
        refused(f"return {value}", torch.ones(3))


def test_a_check_that_refuses_the_reference_is_the_authors_mistake():
    reference = checked("return 'never'")
    with pytest.raises(ProblemError, match="check refuses the answer of Model itself: never"):
        require_own_answer(reference, reference.draw(1), torch.ones(3))


def test_a_float_among_the_outputs_needs_the_comparison():
    reference = checked("return None")
    with pytest.raises(ProblemError, match=r"output\[1\] is a float"):
        require_own_answer(reference, reference.draw(1), [torch.ones(3), 1.5])
    beside = checked("return None", rule=CheckRule.BESIDE)
    require_own_answer(beside, beside.draw(1), [torch.ones(3), 1.5])


def test_outputs_are_copies_in_the_references_structure():
    shared = {"output.a": torch.ones(2), "output.b[1]": torch.zeros(3)}
    outputs = with_tensors({"a": torch.empty(2, device="meta"), "b": (4, torch.empty(3, device="meta"))}, shared)
    shared["output.a"].zero_()
    assert outputs["a"].tolist() == [1.0, 1.0]
    assert outputs["b"][0] == 4
    assert outputs["b"][1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("body", "refuses"),
    [
        ("return None if torch.allclose(outputs, inputs[0].exp()) else 'other'", True),
        ("return 'other' if (outputs - inputs[0].exp()).abs().max() > 1e-4 else None", False),
        ("return None", False),
        (POSITIVE, False),
        ("return None if outputs.shape == inputs[0].shape else 'shape'", False),
    ],
)
def test_a_check_without_power_accepts_other_answers_or_zeros(body, refuses):
    reference = checked(body)
    inputs, other = reference.draw(1), reference.draw(2)
    answer = reference.honest(other, 0, None).result.outputs
    assert refuses_wrong_answers(reference, inputs, answer) is refuses
