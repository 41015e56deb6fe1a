"""How a runner reads a submission in: the text that the judge read runs, with any declared encoding."""

import copy
import dataclasses
import inspect
import linecache
import pickle
import sys

import pytest
import torch
from torch.utils import cpp_extension

from evaluator.protocol.frames import RefusedKernel
from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.submission_files import SINGLE_FILE, joined, place_of
from evaluator.runner import submission_module
from evaluator.runner.extensions import ExtensionLoader

HIDDEN = """# -*- coding: utf-7 -*-
class ModelNew:
    kind = "as written" # +AAo-    kind = "as decoded"
"""
LATIN = """# -*- coding: latin-1 -*-
class ModelNew:
    kind = "\u00e4\u20ac"
"""
ORDINARY = '''"""A submission."""
from __future__ import annotations
import dataclasses
import torch
from model import Model

@dataclasses.dataclass
class Shape:
    rows: int

@torch.jit.script
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

class ModelNew(Model):
    shape = Shape(3)

    def forward(self, x):
        return twice(x)

    def fail(self):
        raise ValueError("here")
'''
MODEL = "class Model: pass\n"

SCRIPTED = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture
def read_in(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    yield lambda text, entries=("ModelNew", "Model"): submission_module.read_in(tmp_path, text, MODEL, entries)
    for name in ("submission", "model", "main", "helper", "own", "own.net", "own.parts"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("text", "kind"), [(HIDDEN, "as written"), (LATIN, "\u00e4\u20ac")], ids=["utf-7", "latin-1"])
def test_the_text_that_the_judge_read_runs_and_is_what_inspect_gives(read_in, text, kind):
    model_new = read_in(text)
    assert model_new.kind == kind
    assert inspect.getsource(sys.modules["submission"]) == text
    assert inspect.getsource(model_new) == text.partition("\n")[2]


def test_nobody_reads_another_text_from_the_file_either(read_in):
    read_in(HIDDEN)
    path = sys.modules["submission"].__file__
    linecache.clearcache()
    assert "as decoded" not in "".join(linecache.getlines(path))


def test_an_encoding_that_does_not_exist_is_a_comment(read_in):
    assert read_in("# coding: no-such\nclass ModelNew: pass\n").__name__ == "ModelNew"


@SCRIPTED
def test_what_honest_submissions_need_of_their_module(read_in, tmp_path):
    model_new = read_in(ORDINARY)
    assert torch.equal(model_new().forward(torch.ones(2)), torch.full((2,), 2.0))
    assert model_new.__module__ == "submission"
    shape = model_new.shape
    assert pickle.loads(pickle.dumps(shape)) == copy.deepcopy(shape) == dataclasses.replace(shape)
    assert sys.modules["submission"].__doc__ == "A submission."
    assert (tmp_path / SINGLE_FILE).read_text() == ORDINARY


@SCRIPTED
def test_an_error_has_the_line_of_the_text(read_in, tmp_path):
    model_new = read_in(ORDINARY)
    with pytest.raises(ValueError, match="here") as raised:
        model_new().fail()
    line = ORDINARY[: ORDINARY.index("raise ValueError")].count("\n") + 1
    assert submission_module.describe(raised.value).lines == [(line, 'raise ValueError("here")')]


def test_a_syntax_error_has_the_line_of_the_text(read_in, tmp_path):
    with pytest.raises(SyntaxError) as raised:
        read_in("# coding: utf-7\nx = (\n")
    assert submission_module.describe(raised.value).lines == [(2, "x = (")]


def test_ends_of_lines_are_as_python_reads_them(read_in):
    model_new = read_in("class ModelNew:\r\n    kind = 1\r\n    other = 2")
    assert (model_new.kind, model_new.other) == (1, 2)
    assert inspect.getsource(model_new) == "class ModelNew:\n    kind = 1\n    other = 2\n"


def several(entry="main.py", **files):
    texts = {"submission.toml": f'entry = "{entry}"\n'}
    texts |= {name.replace("__", "/").replace("_py", ".py"): text for name, text in files.items()}
    return joined(texts.items())


def test_other_files_import_the_entry_by_its_own_name(read_in):
    """As the module `submission`, the entry hid the file submission.py, and ran again for another file's import."""
    model_new = read_in(
        several(
            main_py="import helper, submission\nclass ModelNew:\n    found = helper.ENTRY, submission.kind\n",
            helper_py="import main\nENTRY = main\n",
            submission_py="kind = 'a helper'\n",
        )
    )
    assert model_new.found == (sys.modules["main"], "a helper")
    assert model_new.__module__ == "main"


def test_an_entry_takes_the_place_of_no_module(read_in):
    assert read_in(several("torch.py", torch_py="class ModelNew: pass\n")).__module__ == "submission"
    assert sys.modules["torch"] is torch


def test_an_entry_in_a_folder_imports_its_neighbours(read_in):
    net = "from .parts import kind\nclass ModelNew:\n    kind = kind\n"
    assert read_in(several("own/net.py", own__net_py=net, own__parts_py="kind = 1\n")).kind == 1


class Asked(Exception):
    """Ends an import at its first build."""


class Listening:
    """A channel that hears the first request."""

    def send(self, frame):
        raise Asked(frame)


def test_what_is_built_is_what_the_text_shows(read_in, tmp_path, monkeypatch):
    """The texts, the names and the flags of an extension are those of the card, byte by byte."""
    monkeypatch.setattr(cpp_extension, "load", ExtensionLoader(Listening(), tmp_path / "extensions").load)
    manifest = 'entry = "main.py"\n[extension]\nname = "ext"\nextra_cflags = ["-O2"]\n'
    files = [
        ("submission.toml", manifest),
        ("main.py", "class ModelNew: pass\n"),
        ("csrc/k.cu", "int k;\r\n// \u00e9\r\n"),
        ("b.cpp", "int b;\n"),
        ("csrc/tile.cuh", "int t;\r\n"),
        ("stdio.h", "int s;\n"),
    ]
    with pytest.raises(Asked) as asked:
        read_in(joined(files))
    (request,) = asked.value.args
    assert [(file.name, file.text) for file in request.files] == files[2:4]
    assert [(file.name, file.text) for file in request.headers] == files[4:]
    assert (request.name, request.extra_cflags, request.with_cuda) == ("ext", ["-O2"], True)


@pytest.mark.parametrize(
    ("include", "headers"),
    [
        ('#include "tile.cuh"', ["csrc/tile.cuh", "stdio.h"]),
        ("  #  include <csrc/tile.cuh>", ["csrc/tile.cuh", "stdio.h"]),
        ('#define T "tile.cuh"\n#include T', ["csrc/tile.cuh", "stdio.h"]),
        ("#include <cuda_fp16.h>\n// tile.cuh", []),  # the key of a build without own headers stays
    ],
)
def test_strings_of_load_inline_include_headers_of_the_folder(read_in, tmp_path, monkeypatch, include, headers):
    loader = ExtensionLoader(Listening(), tmp_path / "extensions")
    monkeypatch.setattr(cpp_extension, "load_inline", loader.load_inline)
    main = (
        "import os\nfrom torch.utils.cpp_extension import load_inline\nHERE = os.path.dirname(__file__)\n"
        f"load_inline('ext', 'int f();', {include!r}, "
        "extra_include_paths=[os.path.join(HERE, 'csrc'), HERE, '/usr/include'])\nclass ModelNew: pass\n"
    )
    files = [("submission.toml", 'entry = "main.py"\n'), ("main.py", main)]
    files += [("csrc/tile.cuh", "int t;\r\n"), ("stdio.h", "int s;\n"), ("b.cpp", "int b;\n")]
    with pytest.raises(Asked) as asked:
        read_in(joined(files))
    (request,) = asked.value.args
    assert [header.name for header in request.headers] == headers
    assert request.files == []
    if headers:
        assert request.extra_include_paths == ["csrc", ".", "/usr/include"]  # the judge refuses the last one
        assert request.headers[0].text == "int t;\r\n"


def test_an_error_in_another_file_has_the_line_of_the_whole_text(read_in):
    text = several(main_py="import helper\nclass ModelNew: pass\n", helper_py="x = 1\nraise ValueError('here')\n")
    with pytest.raises(ValueError, match="here") as raised:
        read_in(text)
    line = submission_module.describe(raised.value).lines[-1][0]
    assert place_of(text, line).label == "helper.py, line 2"


@pytest.mark.parametrize("resolved", [False, True])
@pytest.mark.usefixtures("read_in")
def test_a_message_names_files_without_the_runners_folder(tmp_path, resolved):
    """A compiler of kernels quotes the file that it was given: CuTe DSL with a caret, TileLang in TVM's messages."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    with pytest.raises(ValueError, match="see /") as raised:
        submission_module.read_in(link, 'raise ValueError(f"see {__file__}:21:9")\n', MODEL, ["ModelNew"])
    assert submission_module.describe(raised.value).message == "see submission.py:21:9"
    where = link.resolve() if resolved else link
    text = several(main_py="class ModelNew: pass\n", kernels__own_py="pass\n")
    submission_module.read_in(link, text, MODEL, ["ModelNew"])
    said = ValueError(f"--> {where}/files/kernels/own.py:1:1 and {where}/model.py")
    assert submission_module.describe(said).message == "--> kernels/own.py:1:1 and model.py"


def test_a_refused_kernels_reason_names_files_without_the_runners_folder(read_in, tmp_path, monkeypatch):
    read_in("class ModelNew: pass\n")
    refused = RefusedKernel(kernel="relu", reason=f"{tmp_path}/submission.py:1: error", line=0, column=0)
    monkeypatch.setattr(submission_module, "refused_source", lambda _: refused)
    assert submission_module.describe(ValueError()).refused.reason == "submission.py:1: error"


@pytest.mark.parametrize(("mode", "training"), [("train", True), ("eval", False), ("as_constructed", None)])
@pytest.mark.parametrize("in_constructor", [True, False])
def test_a_model_has_the_given_mode_or_that_of_its_constructor(mode, training, in_constructor):
    class ModelNew(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Dropout()
            self.train(in_constructor)

    made = submission_module.construct(ModelNew, [], {}, weight_seed=1, mode=ModelMode(mode), device="cpu")
    expected = in_constructor if training is None else training
    assert [each.training for each in made.modules()] == [expected, expected]


def test_a_model_as_constructed_needs_no_train():
    """A submission's own `train` may raise, or be a training loop."""

    class ModelNew(torch.nn.Module):
        train = eval = None

    mode = ModelMode.AS_CONSTRUCTED
    assert submission_module.construct(ModelNew, [], {}, weight_seed=1, mode=mode, device="cpu").training


def test_an_own_train_may_have_no_default():
    class ModelNew(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.training = False

        def train(self, mode):
            self.training = mode

    mode = ModelMode.TRAIN
    assert submission_module.construct(ModelNew, [], {}, weight_seed=1, mode=mode, device="cpu").training


def test_one_module_in_evaluation_is_enough():
    made = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2))
    assert not submission_module.is_partly_in_evaluation(made)
    made[1].eval()
    assert submission_module.is_partly_in_evaluation(made)


def test_attributes_of_other_kinds_are_no_mode():
    odd = torch.nn.Dropout()
    odd.modules, odd.training = [], torch.ones(2)
    assert not submission_module.is_partly_in_evaluation(odd)
    assert not submission_module.is_partly_in_evaluation(lambda x: x)
    named = torch.nn.Sequential(odd, torch.nn.Dropout().eval())
    named.modules = []
    assert submission_module.is_partly_in_evaluation(named)


class TestEntryClass:
    def test_a_class_model_counts_where_no_modelnew_is(self, read_in):
        assert read_in("class Model: kind = 1\n").kind == 1

    def test_modelnew_comes_first(self, read_in):
        assert read_in("class Model: kind = 1\nclass ModelNew: kind = 2\n").kind == 2

    @pytest.mark.parametrize("text", ["from model import Model\n", "from model import *\n"])
    def test_the_references_own_class_is_no_submission(self, read_in, text):
        with pytest.raises(submission_module.NoModelNew, match=r"no class ModelNew or Model; it defines ModelNw$"):
            read_in(f"{text}import torch\nclass ModelNw(torch.nn.Module): pass\n")

    def test_the_references_class_counts_under_the_preferred_name(self, read_in):
        assert read_in("from model import Model as ModelNew\n").__name__ == "Model"

    def test_a_copy_of_the_reference_is_judged(self, read_in):
        assert read_in(MODEL).__module__ == "submission"

    def test_a_named_entry_is_the_only_one(self, read_in):
        assert read_in("class Kernel: kind = 1\nclass ModelNew: kind = 2\n", ["Kernel"]).kind == 1
        with pytest.raises(submission_module.NoModelNew, match=r"no class Kernel$"):
            read_in("class ModelNew: kind = 2\n", ["Kernel"])
