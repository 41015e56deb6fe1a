"""Device `cuda`: weights change from call to call where the runner's model has them, in the judge's memory."""

import pytest
import torch

from evaluator.findings import Code
from evaluator.records import Status, WeightsGraded
from tests.grading.harness import Grader
from tests.grading.test_weights import FOLLOWS, HEAD
from tests.zoo.entries import ZOO

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
GRAPH = (
    HEAD
    + """
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.x = x.clone()
            super().forward(self.x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = super().forward(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()
"""
)
MADE_ON_THE_GPU = HEAD + "        self.cuda()\n"
HONEST = {
    "packed again": FOLLOWS["packed again when a version has changed"],
    "transposed": FOLLOWS["transposed, and biases as rows"],
    "a graph": GRAPH,
    "made on the GPU": MADE_ON_THE_GPU,
}


@pytest.fixture
def grade(tmp_path):
    grader = Grader(tmp_path / "cache", tmp_path)

    def run(source, *options):
        folder = tmp_path / "graded"
        folder.mkdir(exist_ok=True)
        options = ("--device", "cuda", "--size", "small", *options)
        return grader(folder, source, *options, problem=str(ZOO / "problems" / "two_linears"), timeout_s=30.0)

    return run


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST)
def test_what_follows_the_weights_is_correct_and_none_is_copied(grade, source):
    card = grade(source).assert_verdict(Status.CORRECT)
    assert (card.weights.graded, card.weights.changed, card.weights.copied) == (WeightsGraded.CHANGING, 4, 0)


def test_what_was_kept_is_wrong_and_correct_where_weights_are_frozen(grade):
    source = (ZOO / "weights-folded-once" / "cheat.py").read_text()
    grade(source).assert_verdict(Status.WRONG_RESULT, Code.STALE_WEIGHTS)
    assert grade(source, "--weights", "frozen").assert_verdict(Status.CORRECT).timing is not None
