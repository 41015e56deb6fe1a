"""`warpgrade problems validate`: weak problems are named with what to change."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import torch

from evaluator.admission import admission
from evaluator.admission.validation import validate
from evaluator.commands import main as cli
from evaluator.records import DeviceKind
from evaluator.report.problems import details_text

TOP = Path(__file__).parents[2]
WEAK = """\
import torch
from torch import nn

rows = 16

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x, unused):
        return self.scale * torch.softmax(x, dim=1).mean(dim=1, keepdim=True)

def get_inputs():
    return [torch.rand(rows, 32), torch.rand(rows, 32)]

def get_init_inputs():
    return []
"""
TOML = 'title = "Mine"\nlevel = 1\ndescription = "Mine."\n[sizes.full]\nrows = 16\n[sizes.small]\nrows = 16\n'


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))

    def make(name, reference=WEAK, toml=TOML):
        folder = tmp_path / "problems" / name
        folder.mkdir(parents=True)
        (folder / "reference.py").write_text(reference)
        (folder / "problem.toml").write_text(toml)
        return folder

    return make


def run(capsys, *arguments):
    code = cli.run(["problems", "validate", *map(str, arguments)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def test_a_weak_problem_is_named_with_what_gets_away_and_what_to_change(own, capsys):
    folder = own("mine")
    code, out, _ = run(capsys, "mine", "--problems", folder.parent)
    assert code == 1
    assert "weak" in out
    for control in ("ignores input 0", "ignores input 1"):
        assert f"  {control}: passes every call\n      " in out
    for control in ("answers zeros", "answers with another call's output", "ignores weight scale"):
        assert control not in out  # The scale changes with each call.
    assert "  not near_one: " in out


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError("1 TiB")])
def test_what_does_not_fit_into_memory_is_said_without_a_traceback(own, capsys, monkeypatch, error):
    def admit(*_):
        raise error

    monkeypatch.setattr(admission, "admit", admit)
    code, out, err = run(capsys, own("mine"))
    assert (code, out) == (2, "")
    assert "mine at size small does not fit into the memory of this machine" in err
    assert "--size small" in err


def test_json_says_on_which_profiles(own, capsys):
    folder = own("mine")
    code, out, _ = run(capsys, folder, "--json")
    (admission,) = json.loads(out)
    controls = {each["control"]: each for each in admission["controls"]}
    assert code == 1
    unused = controls["ignores input 1"]
    assert (unused["gets_away"], unused["passes_on"][0], unused["caught_on"]) == (True, "as_given", None)
    scale = controls["ignores weight scale"]
    assert (scale["gets_away"], scale["passes_kernelbench"], scale["caught_on"]) == (False, True, "as_given")


def test_inputs_that_are_never_negative_are_made_up_for_by_profiles(own, capsys):
    reference = (TOP / "tests/zoo/problems/positive_relu/reference.py").read_text()
    toml = (TOP / "tests/zoo/problems/positive_relu/problem.toml").read_text()
    folder = own("positive", reference, toml)
    shown = run(capsys, folder)[1]
    assert "hands an input back: passes on as_given, fails on signed_normal" in shown
    code, out, _ = run(capsys, folder, "--json")
    (admission,) = json.loads(out)
    identity = next(each for each in admission["controls"] if each["control"] == "hands an input back")
    assert code == 0
    assert "as_given" in identity["passes_on"]
    assert identity["passes_kernelbench"]
    assert identity["caught_on"] == "signed_normal"


LEFT_OUT = '[profiles]\nmixed_magnitudes = "a test"\noutliers = "a test"\nrelated = "a test"\n'


def test_fewer_bits_that_one_number_hides_are_caught_by_their_rounding(own):
    weak = TOP / "tests/zoo/problems/mean_distance"
    folder = own("distance", (weak / "reference.py").read_text(), (weak / "problem.toml").read_text() + LEFT_OUT)
    (admission,) = validate(("distance",), folder.parent, None, DeviceKind.CPU)
    assert "computes in fp16: within the tolerance, but its rounding errors reveal it" in details_text(admission)
    assert admission.admitted
    admission = msgspec.to_builtins(admission)
    (fp16,) = [each for each in admission["controls"] if each["control"] == "computes in fp16"]
    assert (fp16["caught_by_rounding"], fp16["gets_away"], fp16["caught_on"]) == (True, False, None)
    assert "as_given" in fp16["passes_on"]
    assert not any(each["caught_by_rounding"] for each in admission["controls"] if "fp16" not in each["control"])


def test_what_cannot_be_done_is_refused(own, capsys):
    folder = own("mine")
    assert run(capsys, folder, "--size", "awkward")[0] == 2
    assert run(capsys, "nothing")[0] == 2


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('[profiles]\nlarg = "x"\n', "did you mean large"),
        ("[profiles]\nlarge = false\n", "a reason to exclude it"),
        ('layouts = ["gap"]\n', "gap"),
    ],
)
def test_what_an_author_writes_about_profiles_is_checked(own, capsys, line, complaint):
    toml = TOML.replace("[sizes.full]", line + "[sizes.full]")
    code, _, err = run(capsys, own("mine", toml=toml))
    assert code == 2
    assert complaint in err


@pytest.mark.parametrize("name", ["relu", "argmax"])
def test_shipped_problems_are_admitted(own, capsys, tmp_path, name):
    """Two of them; `warpgrade problems validate` looks at all."""
    folder = tmp_path / "problems" / name
    shutil.copytree(TOP / "problems" / name, folder)
    code, out, _ = run(capsys, folder, "--size", "small")
    assert (code, "ok" in out) == (0, True)


NORMED = """\
import torch
from torch import nn

rows = 16

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.linear(x))

def get_inputs():
    return [torch.randn(rows, 32)]

def get_init_inputs():
    return []
"""


def test_a_bias_that_a_norm_takes_off_is_no_weakness(own, capsys):
    folder = own("normed", NORMED)
    code, out, _ = run(capsys, folder, "--json")
    controls = {each["control"]: each for each in json.loads(out)[0]["controls"]}
    assert not controls["ignores weight linear.bias"]["gets_away"]
    assert controls["ignores weight linear.bias"]["caught_on"] is None
    assert controls["ignores weight linear.weight"]["caught_on"] == "as_given"
    assert controls["ignores weight norm.bias"]["caught_on"] == "as_given"
    assert code == 0, [name for name, each in controls.items() if each["gets_away"]]
