"""Answers of language models through the whole grade: the graded block and the feedback text."""

import pytest

from evaluator.findings import Code
from evaluator.findings.submission import ONE_BLOCK
from evaluator.records import Status
from tests.grading.harness import CHECK, module

RIGHT = module(forward=["return torch.relu(x)"])


def fenced(code):
    return f"```python\n{code}```\n"


def test_a_name_of_another_block_that_is_missing_in_the_import_is_explained(grade):
    card = grade(fenced("SOURCE = 1\n") + fenced(f"print(SOURCE)\n{RIGHT}"), name="mine.md")
    card = card.assert_verdict(Status.BUILD_ERROR, Code.IMPORT_FAILED)
    assert "NameError: name 'SOURCE' is not defined" in card.reason.message
    assert "left out: the block from line 2 (python)" in card.reason.message
    assert card.reason.next_step == ONE_BLOCK


def test_a_class_model_is_graded_with_a_finding(grade):
    run = grade(RIGHT.replace("ModelNew", "Model"), *CHECK)
    run.assert_verdict(Status.CORRECT)
    assert Code.OTHER_ENTRY in run.findings


@pytest.mark.parametrize("text", ["from model import Model\n", "from model import *\nclass ModelNw(Model): pass\n"])
def test_the_references_own_class_is_no_submission(grade, text):
    grade(text).assert_verdict(Status.BUILD_ERROR, Code.NO_MODEL_NEW)


def test_an_option_names_the_class(grade):
    text = f"{fenced(RIGHT.replace('ModelNew', 'Kernel'))}{fenced(module(forward=['return x']))}"
    run = grade(text, *CHECK, "--entry", "Kernel", name="mine.md")
    assert run.assert_verdict(Status.CORRECT).entry == "Kernel"
    replayed = grade(None, "--replay", run.folder / "card.json", problem="relu")
    assert replayed.assert_verdict(Status.CORRECT).entry == "Kernel"
    assert Code.OTHER_ENTRY not in run.findings


def test_modelnew_does_not_count_where_an_option_names_another_class(grade):
    card = grade(RIGHT, "--entry", "Kernel").assert_verdict(Status.BUILD_ERROR, Code.NO_MODEL_NEW)
    assert card.reason.message == "the submission defines no class Kernel, but ModelNew"
