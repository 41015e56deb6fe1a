"""References whose outputs depend on the mode of their modules."""

import pytest

from evaluator.judge.checked_calls import has_many_answers
from evaluator.judge.reference.dependence import depends_on_mode
from tests.unit.references import reference

NORM = "self.norm = nn.BatchNorm1d(64); self.norm.running_mean += 1"
CASES = {
    "batch norm": ("self.norm(x)", NORM, True),
    "dropout": ("F.dropout(x, 0.5, self.training)", "pass", True),
    "integers": ("(self.norm(x) > 0).int()", NORM, True),
    "another shape": ("x if self.training else x[:1]", "pass", True),
    "no modules": ("x + 1", "pass", False),
    "an unused module": ("x + 1", "self.unused = nn.Dropout()", False),
    "rounding": ("x + self.training * 1e-6", "pass", False),
    "already in evaluation": ("self.norm(x)", NORM + "; self.eval()", False),
    "an eval() that raises": ("self.norm(x)", NORM + "; self.eval = None", False),
}


@pytest.mark.parametrize(("output", "init", "depends"), CASES.values(), ids=CASES)
def test_outputs_after_eval_are_compared(output, init, depends):
    assert depends_on_mode(reference(output, init=init), 3) is depends


def test_each_module_keeps_its_mode():
    made = reference("self.norm(x)", init=NORM + "; self.other = nn.Dropout().eval()")
    assert depends_on_mode(made, 3)
    assert [module.training for module in made.model.modules()] == [True, True, False]


@pytest.mark.parametrize(
    ("output", "has_many"),
    [
        ("torch.linalg.qr(x)[0]", True),
        ("torch.linalg.eigh(x @ x.mT)[1]", True),
        ("torch.linalg.svd(x)[2]", True),
        ("torch.linalg.svdvals(x)", False),
        ("torch.linalg.eigvalsh(x @ x.mT)", False),
        ("torch.linalg.pinv(x)", False),
        ("x.relu()", False),
    ],
)
def test_only_vectors_with_free_signs_have_many_answers(output, has_many):
    assert has_many_answers(reference(output, "torch.rand(8, 8)")) is has_many
