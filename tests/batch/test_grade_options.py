"""One record of options: what it holds can be asked for everywhere, and arrives in the judge."""

import inspect
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from msgspec.structs import replace

from evaluator.batch.runs.manifest import command_of
from evaluator.batch.runs.run_folder import manifest_for
from evaluator.batch.workers.messages import WorkerOrder
from evaluator.commands import main as cli
from evaluator.commands.options import field_of
from evaluator.errors import UsageError
from evaluator.grade_options import GradeOptions, Terms, default_of, read_options
from evaluator.grading import pipeline
from evaluator.paths import data_dir
from evaluator.records import (
    BaselineKind,
    DeviceKind,
    GradeMode,
    L2Rule,
    ProfilerKind,
    SizeName,
    ToleranceRule,
    ValuesRule,
    WeightsRule,
)
from evaluator.submission.read import Submission
from tests import cards
from tests.batch.fakes import FakeWorker
from warpgrade import Grader, grade

FIELDS = GradeOptions.__struct_fields__
LIBRARY = [grade, Grader]
NOT_OF_A_BATCH = {"profile", "speedup_of"}
"""A run's manifest does not hold these, so sessions on one folder could differ in them."""
OF_THE_ASKER = {"problems", "signing_key"}
"""Paths of the machine that asks, which no worker is told."""


class Sample(NamedTuple):
    """An option in the words of the command line, as a program's value, and as the record holds it."""

    words: str
    named: Any
    read: Any


SAMPLES = {
    "device": Sample("--device cpu", "cpu", DeviceKind.CPU),
    "gpu": Sample("--gpu 0", "0", None),
    "problems": Sample("--problems own", "own", Path("own")),
    "size": Sample("--size awkward", "awkward", SizeName.AWKWARD),
    "case": Sample("--case awkward --case small", ("awkward", "small"), ("awkward", "small")),
    "stop_at_failure": Sample("--stop-at-failure", True, True),
    "budget_s": Sample("--budget-s 30", 30, 30.0),
    "tolerance": Sample("--tolerance kernelbench", "kernelbench", ToleranceRule.KERNELBENCH),
    "weights": Sample("--weights frozen", "frozen", WeightsRule.FROZEN),
    "values": Sample("--values own", "own", ValuesRule.OWN),
    "l2": Sample("--l2 warm", "warm", L2Rule.WARM),
    "entry": Sample("--entry Kernel", "Kernel", "Kernel"),
    "mode": Sample("--mode check", "check", GradeMode.CHECK),
    "sandbox": Sample("--sandbox none", "none", "none"),
    "strict": Sample("--strict", True, True),
    "require_own_kernel": Sample("--require-own-kernel 0.5", 0.5, 0.5),
    "baselines": Sample("--baseline compile", ["compile"], (BaselineKind.COMPILE,)),
    "speedup_of": Sample("--speedup-of other.py", "other.py", None),
    "profile": Sample("--profile torch", "torch", ProfilerKind.TORCH),
    "timeout_s": Sample("--timeout 7", 7, 7.0),
    "build_timeout_s": Sample("--build-timeout 8.5", 8.5, 8.5),
    "deadline_s": Sample("--deadline 90", 90, 90.0),
    "signing_key": Sample("--sign key", "key", Path("key")),
}
_ALONE = {"size", "sandbox", "mode"}
"""Options that contradict others of the samples: case, strict, and those that need times."""
ARRIVING = [set(SAMPLES) - _ALONE - {"gpu", "l2"}, _ALONE]
"""All but those that need a GPU, in groups without a contradiction."""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch, worker):
    from evaluator.signatures import keys

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(keys, "_stash", [])
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    Path("mine.py").write_text("# right\nclass ModelNew: pass\n")
    Path("other.py").write_text("class ModelNew: pass\n")
    Path("submissions/relu").mkdir(parents=True)
    Path("submissions/relu/mine.py").write_text("# right")
    shutil.copytree(data_dir("problems") / "relu", "own/relu")
    keys.make_key(Path("key"), "a lab")


@pytest.fixture
def orders(monkeypatch):
    """What workers are told to do."""
    made: list[WorkerOrder] = []

    def kept(self, order, on_stage, grade=FakeWorker.grade):
        made.append(order)
        return grade(self, order, on_stage)

    monkeypatch.setattr(FakeWorker, "grade", kept)
    return made


def commands_with(field: str) -> set[str]:
    """Name the commands that have an option for `field`."""
    return {
        name
        for name in ("grade", "batch")
        for param in cli.warpgrade.commands[name].params
        if isinstance(param, click.Option) and field_of(param.name) == field
    }


def as_read(fields: set[str], options: GradeOptions) -> dict[str, Any]:
    values = {field: getattr(options, field) for field in fields}
    return {field: each.source if isinstance(each, Submission) else each for field, each in values.items()}


def expected(fields: set[str], unsaid: set[str] | None = None) -> dict[str, Any]:
    read = {field: SAMPLES[field].read for field in fields} | dict.fromkeys(fields & (unsaid or set()))
    return read | ({"speedup_of": Path("other.py").read_text()} if "speedup_of" in fields else {})


def words(fields: set[str]) -> list[str]:
    return [word for field in sorted(fields) for word in SAMPLES[field].words.split()]


def test_every_option_has_a_sample():
    assert set(SAMPLES) == set(FIELDS)


@pytest.mark.parametrize("function", LIBRARY, ids=lambda function: function.__name__)
def test_every_option_is_a_keyword_of_the_library(function):
    parameters = inspect.signature(function).parameters
    assert set(FIELDS) <= set(parameters)
    for name in FIELDS:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == (None if name == "device" else default_of(name))


@pytest.mark.parametrize("field", FIELDS)
def test_every_option_is_one_of_both_commands(field):
    assert commands_with(field) == ({"grade"} if field in NOT_OF_A_BATCH else {"grade", "batch"})


def test_what_a_batch_takes_beside_its_manifest_is_not_how_it_is_graded():
    assert set(FIELDS) - set(Terms.__struct_fields__) - NOT_OF_A_BATCH == OF_THE_ASKER | {"gpu"}


@pytest.mark.parametrize("fields", ARRIVING)
def test_the_command_line_passes_every_option_on(fields, monkeypatch):
    requests = []
    monkeypatch.setattr(pipeline, "grade", lambda request, *_, **__: requests.append(request) or cards.card())
    cli.run(["grade", "relu", "mine.py", *words(fields | {"device"})])
    assert as_read(fields, requests[0].terms.options) == expected(fields)


@pytest.mark.parametrize("fields", ARRIVING)
def test_a_batch_passes_every_option_on(fields, orders):
    fields = fields - NOT_OF_A_BATCH
    cli.run(["batch", "submissions", "--run", "run", *words(fields | {"device"})])
    assert as_read(fields, orders[0].request().terms.options) == expected(fields, OF_THE_ASKER)


@pytest.mark.parametrize("fields", ARRIVING)
def test_the_library_passes_every_option_on(fields, orders):
    named = {field: SAMPLES[field].named for field in fields | {"device"}}
    assert as_read(fields, Grader(**named)._options) == expected(fields)
    grade("relu", "# right", **named)
    assert as_read(fields, orders[0].request().terms.options) == expected(fields, OF_THE_ASKER)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"timeout_s": 0}, "timeout_s cannot be 0: 0.0 is not a positive number of seconds"),
        ({"build_timeout_s": float("inf")}, "inf is not a positive number of seconds"),
        ({"deadline_s": "soon"}, "deadline_s cannot be 'soon'"),
        ({"require_own_kernel": 1.5}, "1.5 is not a share above 0 and at most 1"),
        ({"size": "tiny"}, "size cannot be 'tiny'"),
        ({"sandbox": "some"}, "sandbox cannot be 'some'"),
        ({"baselines": ["submission"]}, "submission is not a form of the reference"),
        ({"baselines": "compile"}, "baselines cannot be 'compile'"),
        ({"strict": True, "sandbox": "none"}, "--strict requires the sandbox"),
        ({"speedup_of": "missing.py"}, "cannot read missing.py"),
        ({"gpu": "0"}, "--gpu has no effect on cpu"),
        ({"l2": "warm"}, "--l2 has no effect on cpu"),
        ({"l2": "hot", "device": "cuda"}, "l2 cannot be 'hot'"),
        ({"profile": "ncu"}, "reads an NVIDIA GPU's counters, but this grade is on cpu"),
        ({"mode": "check", "baselines": ["compile"]}, "--baseline needs times, and --mode check measures none"),
        ({"mode": "check", "profile": "torch"}, "--profile needs times, and --mode check measures none"),
        ({"mode": "check", "speedup_of": "other.py"}, "--speedup-of needs times, and --mode check measures none"),
        ({"device": "emulated", "speedup_of": "other.py"}, "--speedup-of has no effect on emulated"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(named, message):
    with pytest.raises(UsageError) as raised:
        read_options({"device": "cpu", **named})
    assert message in raised.value.message


def test_an_option_of_a_gpu_is_read_by_the_command_line_and_the_library_and_stored_with_a_run():
    field, sample = "l2", SAMPLES["l2"]
    for command, arguments in {"grade": ["relu", "mine.py"], "batch": ["submissions", "--run", "run"]}.items():
        parsed = cli.warpgrade.commands[command].make_context(command, [*arguments, *sample.words.split()])
        assert parsed.params[field] == sample.named
    options = read_options({"device": "cuda", field: sample.named})
    assert getattr(options.terms, field) is getattr(options.for_worker("0"), field) is sample.read


def test_none_is_as_left_out():
    assert read_options({"device": "cpu"} | dict.fromkeys(set(FIELDS) - {"device"})) == GradeOptions(DeviceKind.CPU)


@pytest.mark.parametrize("field", Terms.__struct_fields__)
def test_a_runs_page_has_each_option_of_the_runs_command(field):
    terms = replace(Terms(DeviceKind.EMULATED), **{field: SAMPLES[field].read})
    manifest = manifest_for(GradeOptions(DeviceKind.EMULATED), "submissions")
    words = SAMPLES[field].words
    device = "" if field == "device" else "--device emulated "
    expected = f"warpgrade batch SUBMISSIONS --run RUN {device}{words}"
    assert command_of(replace(manifest, terms=terms)) == expected


def test_a_runs_page_has_no_paths_of_the_runs_machine():
    manifest = manifest_for(GradeOptions(DeviceKind.CPU, problems=Path("secret")), "secret")
    assert command_of(manifest) == "warpgrade batch SUBMISSIONS --run RUN --problems PROBLEMS --device cpu"
