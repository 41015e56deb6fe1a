"""A problem's own check: its messages, its errors, and answers that cannot change under it."""

import pytest
import torch
from msgspec.structs import replace

from evaluator.errors import ProblemError
from evaluator.judge.reference.author_check import refusal, refuses_wrong_answers, require_own_answer, with_answers
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


@pytest.mark.parametrize("value", ["False", "True", "''", "' '", "0", "outputs"])
def test_another_result_than_none_refuses(value):
    assert refused(f"return {value}", torch.ones(3)).startswith("check returned a")


def test_an_exit_refuses():
    assert refused("raise SystemExit(0)", torch.ones(3)) == "check raised SystemExit: 0"


def test_a_lack_of_memory_for_hostile_values_refuses():
    assert refused("torch.bincount(outputs)", torch.tensor([1 << 45])) == "check ran out of memory"


def test_the_check_cannot_change_what_is_compared_later():
    reference, outputs = checked("inputs[0].zero_(); outputs.zero_()"), torch.ones(3)
    inputs = reference.draw(1)
    assert refusal(reference, inputs, outputs) is None
    assert inputs.args[0].any()
    assert outputs.all()


def test_a_check_that_refuses_the_reference_is_the_authors_mistake():
    reference = checked("return 'never'")
    with pytest.raises(ProblemError, match="check refuses the answer of Model itself: never"):
        require_own_answer(reference.author_check, "own", reference.draw(1), torch.ones(3))


def test_an_answer_has_the_references_structure():
    answers = {"output.a": torch.ones(2), "output.b[1]": torch.zeros(3), "output.c": torch.tensor(2.5)}
    outputs = {"a": torch.empty(2, device="meta"), "b": (4, torch.empty(3, device="meta")), "c": 1.5}
    answered = with_answers(outputs, answers)
    assert answered["a"].tolist() == [1.0, 1.0]
    assert (answered["b"][0], answered["c"]) == (4, 2.5)
    assert answered["b"][1].tolist() == [0.0, 0.0, 0.0]


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
def test_a_check_without_power_accepts_other_answers_zeros_or_nan(body, refuses):
    reference = checked(body)
    inputs = reference.draw(1)
    right, other = (reference.honest(each, 0, None).result.outputs for each in (inputs, reference.draw(2)))
    assert refuses_wrong_answers(reference, inputs, right, other) is refuses


@pytest.mark.parametrize(
    ("body", "refuses"),
    [
        ("return None if torch.equal(torch.cat(outputs), torch.cat([inputs[0] * 2, inputs[0] * 3])) else 'no'", True),
        ("return None if torch.equal(outputs[0], inputs[0] * 2) else 'the first alone'", False),
    ],
)
def test_each_output_needs_its_own_evidence(body, refuses):
    reference = checked(body, output="(x * 2, x * 3)")
    inputs = reference.draw(1)
    right, other = (reference.honest(each, 0, None).result.outputs for each in (inputs, reference.draw(2)))
    assert refuses_wrong_answers(reference, inputs, right, other) is refuses
