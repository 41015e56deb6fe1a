"""The axis of a sweep: its values, and the cases of the problem."""

import msgspec
import pytest

from evaluator.catalog import find_problem
from evaluator.errors import UsageError
from evaluator.records import CaseName, SizeName
from evaluator.sizes.cases import MOST_VALUES, SweptAxis, swept_axis, with_swept_cases


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("n=1024:65536:x4", (1024, 4096, 16384, 65536)),
        ("n=0:10:+4", (0, 4, 8)),
        ("n=7,1,7", (1, 7)),
    ],
)
def test_values_ascend_once_each(text, values):
    assert swept_axis(text) == SweptAxis("n", values)


@pytest.mark.parametrize(
    "text",
    [
        "n",
        "n=",
        "=1:2:x2",
        "n=1:2",
        "n=1:8:x1",
        "n=0:8:x2",
        "n=8:1:x2",
        "n=1:8:+0",
        "n=1,a",
        "n=-1",
        "n=1:8:*2",
        "n m=1",
        "n=1e3",
    ],
)
def test_an_axis_in_another_form_is_refused_with_the_form(text):
    with pytest.raises(UsageError) as caught:
        swept_axis(text)
    assert "START" in caught.value.hint


def test_a_sweep_has_an_end():
    with pytest.raises(UsageError, match=f"more than {MOST_VALUES} values"):
        swept_axis("n=0:999999999999:+1")
    with pytest.raises(UsageError, match=f"more than {MOST_VALUES} values"):
        swept_axis("n=" + ",".join(map(str, range(MOST_VALUES + 1))))


def test_each_value_is_a_case_with_the_other_constants_of_the_base():
    problem, names = with_swept_cases(find_problem("relu"), SizeName.SMALL, SweptAxis("dim", (3, 5)))
    assert names == ("dim-3", "dim-5")
    assert msgspec.convert(names, tuple[CaseName, ...]) == names, "a card with the cases can be read"
    base = problem.cases[SizeName.SMALL].axes
    assert [problem.cases[name].axes for name in names] == [{**base, "dim": 3}, {**base, "dim": 5}]


def test_an_unknown_constant_is_named_with_the_known_ones():
    with pytest.raises(UsageError, match=r"no constant dims; .*batch_size") as caught:
        with_swept_cases(find_problem("relu"), SizeName.SMALL, SweptAxis("dims", (3,)))
    assert "did you mean dim?" in caught.value.hint
