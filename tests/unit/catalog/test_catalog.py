"""Finding and reading problems: the shipped ones, folders of one's own, and KernelBench's files in place."""

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from evaluator import paths
from evaluator.catalog import OWN_PROBLEMS, Origin, find_problem, kernelbench, list_problems, sized_source
from evaluator.errors import InfraError, ProblemError, ProblemNotFound
from evaluator.paths import data_dir
from evaluator.records import CheckRule, L2Rule, Mode, Precision, Problem, RooflineOverride, SizeName, cases_of
from evaluator.scaffold import new_files
from tests.unit.catalog.texts import KERNELBENCH_FILE, REFERENCE, TOML


@pytest.fixture
def tree(tmp_path):
    """Write a tree in KernelBench's form; gives the folder that holds the levels."""
    for name in ("level1/2_Add.py", "level1/19_ReLU_.py", "level1/100_Add.py", "level2/2_Fused__two_things.py"):
        file = tmp_path / "KernelBench" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(KERNELBENCH_FILE)
    (tmp_path / "KernelBench" / "level1" / "helper.py").write_text("x = 1\n")
    return tmp_path / "KernelBench"


def message_of(folder: Path) -> str:
    """Read a broken problem; gives the message and the hint, which both are what its author sees."""
    with pytest.raises(ProblemError) as caught:
        find_problem(str(folder))
    return f"{caught.value.message} | {caught.value.hint}"


class TestShipped:
    def test_every_one_loads(self):
        listing = list_problems()
        assert [error.message for error in listing.broken] == []
        folders = {each.name for each in data_dir("problems").iterdir() if each.is_dir()}
        assert {problem.name for problem in listing.problems} == folders
        assert len(folders) >= 10
        assert {problem.origin for problem in listing.problems} == {Origin.WARPGRADE}
        levels = [problem.level for problem in listing.problems]
        assert levels == sorted(levels)

    def test_every_size_of_every_one_gives_python_with_those_constants(self):
        for problem in list_problems().problems:
            assert problem.cases.keys() >= {SizeName.FULL, SizeName.SMALL}
            for name, case in problem.cases.items():
                assert constants_in(sized_source(problem, name)).items() >= case.axes.items()

    def test_listing_and_finding_import_neither_torch_nor_rich(self):
        code = (
            "import sys; from evaluator.catalog import find_problem, list_problems; "
            "assert list_problems().problems; find_problem('relu'); "
            "print(sorted({'torch', 'rich', 'jsonschema', 'numpy'} & set(sys.modules)))"
        )
        top = Path(paths.__file__).parents[1]
        result = subprocess.run([sys.executable, "-c", code], cwd=top, capture_output=True, text=True, check=True)
        assert result.stdout.strip() == "[]"

    def test_nothing_of_a_problem_is_run(self, own):
        folder = own(reference=f"raise SystemExit('run')\n{REFERENCE}")
        assert find_problem(str(folder)).name == "scale"


class TestOwnFolder:
    def test_what_an_author_says_of_bytes_and_operations(self, own):
        said = '[roofline]\nreason = "half is zero"\nread_bytes = "4 * rows * (rows + 1) // 2"\n'
        problem = find_problem(str(own(TOML.replace("[sizes.full]", f"{said}[sizes.full]"))))
        assert problem.roofline == RooflineOverride(
            reason="half is zero", read_bytes="4 * rows * (rows + 1) // 2", written_bytes=None, flop=None
        )

    def test_what_is_read(self, own):
        folder = own(TOML.replace("[sizes.full]", "[tolerance]\nmultiple = 4\n[split]\nx = 0\nbias = 1\n[sizes.full]"))
        problem = find_problem(str(folder))
        assert (problem.name, problem.title, problem.level) == ("scale", "Scale", 1)
        assert (problem.origin, problem.path) == (Origin.FOLDER, str(folder))
        assert (problem.precision, problem.mode, problem.backward) == (Precision.FP32, Mode.TRAIN, False)
        assert (problem.tolerance.multiple, problem.tolerance.floor) == (4.0, None)
        assert problem.split == {"x": 0, "bias": 1}
        assert problem.cases == cases_of({"full": {"rows": 64, "factor": 2.0}, "small": {"rows": 4, "factor": 0.5}})
        assert problem.source == REFERENCE
        assert (
            problem.sha256
            == hashlib.sha256(
                (folder / "reference.py").read_bytes() + (folder / "problem.toml").read_bytes()
            ).hexdigest()
        )
        assert msgspec.json.decode(msgspec.json.encode(problem), type=Problem) == problem

    def test_what_the_header_says_is_kept(self, own):
        header = 'precision = "bf16"\nmode = "eval"\nbackward = true\nl2 = "warm"\n'
        problem = find_problem(str(own(header + TOML)))
        assert (problem.precision, problem.mode, problem.backward) == (Precision.BF16, Mode.EVAL, True)
        assert problem.l2 is L2Rule.WARM

    def test_a_check_of_two_parameters_has_a_role(self, own):
        check = "\ndef check(inputs, outputs):\n    return None\n"
        problem = find_problem(str(own('check = "instead"\n' + TOML, REFERENCE + check)))
        assert problem.check is CheckRule.INSTEAD
        assert find_problem(str(own(TOML, REFERENCE + check, "without"))).check is None
        header = 'check = "instead"\nbackward = true\n'
        with pytest.raises(ProblemError, match="leaves the gradients of backward = true without a comparison"):
            find_problem(str(own(header + TOML, REFERENCE + check, "gradients")))

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('title = "Scale"\n', "", ["title: this key is required"]),
            ('title = "Scale"', 'title = ""', ["title: must not be empty"]),
            ('title = "Scale"', "title = 3", ["title: expected `str`, got `int`"]),
            ("level = 1", "level = 4", ["level: ", "allowed: 1, 2, 3"]),
            ("level = 1", "level = true", ["level: expected `int`, got `bool`"]),
            (
                "level = 1",
                "level = 1\nprecison = 'fp32'",
                ["precison: unknown key", "did you mean precision?", "backward"],
            ),
            (
                "level = 1",
                "level = 1\nprecision = 'fp23'",
                ["precision: ", "'fp23'", "allowed: fp32, tf32, bf16, fp16"],
            ),
            ("level = 1", "level = 1\nmode = 'test'", ["mode: ", "allowed: train, eval"]),
            ("level = 1", "level = 1\nl2 = 'hot'", ["l2: ", "allowed: cold, warm"]),
            ("level = 1", "level = 1\ncheck = 'both'", ["check: ", "allowed: beside, instead"]),
            ("level = 1", "level = 1\ncheck = 'beside'", ["check: ", "no function check(inputs, outputs)"]),
            ("level = 1", "level = 1\nbackward = 'yes'", ["backward: expected `bool`, got `str`"]),
            ("level = 1", "level = 1\nsplit = { y = 0 }", ["split.y: ", "allowed: x, bias"]),
            ("level = 1", "level = 1\nsplit = { bais = 0 }", ["split.bais: ", "did you mean bias?"]),
            ("level = 1", "level = 1\nsplit = { x = -1 }", ["split.x: got -1", "0 or more"]),
            ("level = 1", "level = 1\nsplit = { x = true }", ["split.x: got True", "0 or more"]),
            ("level = 1", "level = 1\ntolerance = { multiple = 0 }", ["tolerance.multiple: expected `float` > 0"]),
            ("level = 1", "level = 1\ntolerance = { floor = nan }", ["tolerance.floor: expected `float` > 0"]),
            ("level = 1", "level = 1\ntolerance = { floor = inf }", ["tolerance.floor: expected `float` <= 1000000"]),
            (
                "level = 1",
                "level = 1\ntolerance = { flor = 1 }",
                ["tolerance.flor: unknown key", "did you mean floor?"],
            ),
            ("level = 1", "level = 1\nroofline = { flop = '1' }", ["roofline.reason: this key is required"]),
            ("level = 1", "level = 1\nroofline = { reason = 'r' }", ["roofline: no key set", "read_bytes"]),
            (
                "level = 1",
                "level = 1\nroofline = { reason = 'r', flops = '1' }",
                ["roofline.flops: unknown key", "did you mean flop?"],
            ),
            (
                "level = 1",
                "level = 1\nroofline = { reason = 'r', flop = 'columns * 2' }",
                ["roofline.flop: 'columns * 2' names columns", "available: rows"],
            ),
            (
                "level = 1",
                "level = 1\nroofline = { reason = 'r', flop = '9 - rows' }",
                ["roofline.flop: '9 - rows' gives -55"],
            ),
            ("[sizes.small]", "[sizes.smal]", ["sizes.smal: unknown key", "did you mean small?"]),
            ("[sizes.small]\nrows = 4\nfactor = 0.5\n", "", ["sizes.small: this key is required"]),
            ("rows = 4\n", "", ["rows: set in only one of sizes.full and sizes.small"]),
            ("rows = 64\n", "", ["rows: set in only one of sizes.full and sizes.small"]),
            ("rows = 4\n", "rows = 4\nfactors = 1\n", ["sizes.small.factors: ", "did you mean factor?"]),
            ("rows = 4\n", "rows = '4'\n", ["sizes.small.rows: got '4', expected int"]),
            ("rows = 4\n", "rows = true\n", ["sizes.small.rows: got True, expected int"]),
            ("rows = 4\n", "rows = [4]\n", ["sizes.small.rows: got [4], expected int"]),
            ("factor = 0.5", "factor = 1", ["sizes.small.factor: got 1, expected float"]),
            ("factor = 0.5", "factor = inf", ["sizes.small.factor: got inf, expected a finite number"]),
            ("rows = 64", "rows = 65", ["sizes.full.rows is 65", "says rows = 64"]),
            ("level = 1", "level = ", ["not TOML", "line 2"]),
        ],
    )
    def test_a_broken_header_is_named_by_file_and_key_with_what_is_allowed(self, own, old, new, said):
        assert old in TOML
        message = message_of(own(TOML.replace(old, new)))
        for part in ["scale/problem.toml: ", *said]:
            assert part in message

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("class Model(", "class Modell(", ["does not define Model"]),
            ("def get_inputs", "def inputs", ["does not define get_inputs"]),
            ("def get_init_inputs", "if 0:\n  def get_init", ["does not define get_init_inputs"]),
            (REFERENCE, "rows = 1\n", ["does not define Model or get_inputs or get_init_inputs"]),
            ("rows = 64", "rows = 64 +", ["reference.py: line 4: not Python"]),
            ("rows = 64", "rows = '\0'", ["not Python", "null byte"]),
            ("rows = 64", "rows = int(64)", ["has no module-level constant rows", "allowed: factor"]),
            ("rows = 64", "rows = 64\nrows = 65", ["has no module-level constant rows"]),
            ("rows = 64", "rows = 64\nrows += 1", ["has no module-level constant rows"]),
            ("rows = 64", "rows = (32 +\n  32)", ["has no module-level constant rows"]),
            ("rows = 64", "rows = 2 ** 6", ["has no module-level constant rows"]),
            ("rows = 64", "def rows(): pass", ["has no module-level constant rows"]),
            ("rows = 64", "rows = " + "+".join(["1"] * 5000), ["reference.py"]),
        ],
    )
    def test_a_broken_reference(self, own, old, new, said):
        message = message_of(own(reference=REFERENCE.replace(old, new)))
        for part in said:
            assert part in message

    def test_split_needs_a_forward_to_look_into(self, own):
        reference = REFERENCE.replace(
            "class Model(nn.Module):\n    def forward", "class Model(Base):\n    def forwards"
        )
        assert "defines no forward" in message_of(own("split = { x = 0 }\n" + TOML, reference))

    @pytest.mark.parametrize("missing", ["problem.toml", "reference.py"])
    def test_either_file_missing(self, own, missing):
        folder = own()
        (folder / missing).unlink()
        assert f"{folder} is no problem: it has no {missing} | `warpgrade new" in message_of(folder)

    def test_a_file_that_is_not_utf8(self, own):
        folder = own()
        (folder / "reference.py").write_bytes(b"# \xe9\n")
        assert "reference.py: not UTF-8" in message_of(folder)


class TestKernelBench:
    def test_what_is_read(self, tree):
        file = tree / "level1" / "19_ReLU_.py"
        problem = find_problem("level1/19_ReLU_", tree)
        assert (problem.name, problem.title, problem.level) == ("level1/19_ReLU_", "ReLU", 1)
        assert problem.description == "Simple model that multiplies."
        assert (problem.origin, problem.path) == (Origin.KERNELBENCH, str(file))
        assert (problem.precision, problem.mode, problem.backward) == (Precision.FP32, Mode.TRAIN, False)
        assert problem.cases == cases_of({"full": {"M": 2048, "height": 256, "width": 256, "D": 16, "H": 32}})
        assert problem.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()

    def test_levels_and_numbers_are_in_their_natural_order(self, tree):
        names = [problem.name for problem in list_problems(tree).problems]
        assert names == ["level1/2_Add", "level1/19_ReLU_", "level1/100_Add", "level2/2_Fused__two_things"]

    def test_a_checkout_a_tree_and_one_level_are_all_understood(self, tree):
        names = [problem.name for problem in list_problems(tree).problems]
        assert [problem.name for problem in list_problems(tree.parent).problems] == names
        assert [problem.name for problem in list_problems(tree / "level1").problems] == names[:3]

    def test_files_of_a_flat_folder_are_problems_and_other_programs_are_not(self, tmp_path):
        for name, text in {"foo": KERNELBENCH_FILE, "7_bar": KERNELBENCH_FILE, "helper": "import torch\n"}.items():
            (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "link.py").symlink_to(tmp_path / "foo.py")
        listing = list_problems(tmp_path)
        assert ([problem.name for problem in listing.problems], listing.broken) == (["7_bar", "foo"], [])
        assert find_problem("foo", tmp_path).origin == Origin.KERNELBENCH

    @pytest.mark.parametrize("name", ["level1/19_ReLU_", "19_ReLU_", "level1/19", "level1/19_ReLU_.py", "19_ReLU_.py"])
    def test_the_names_that_mean_one_file(self, tree, name):
        assert find_problem(name, tree).name == "level1/19_ReLU_"

    def test_a_short_name_that_means_two_files_is_refused_with_both(self, tree):
        (tree / "level2" / "19_ReLU_.py").write_text(KERNELBENCH_FILE)
        with pytest.raises(ProblemNotFound) as caught:
            find_problem("19_ReLU_", tree)
        assert caught.value.nearest == ("level1/19_ReLU_", "level2/19_ReLU_")
        assert find_problem("level2/19", tree).name == "level2/19_ReLU_"

    def test_a_path_and_a_file_outside_of_any_level(self, tree, tmp_path):
        assert find_problem(str(tree / "level2" / "2_Fused__two_things.py")).title == "Fused two things"
        lone = tmp_path / "mine.py"
        lone.write_text(KERNELBENCH_FILE)
        problem = find_problem(str(lone))
        assert (problem.name, problem.title, problem.level) == ("mine", "mine", 0)

    def test_a_broken_file_is_listed_apart_and_refused_when_asked_for(self, tree):
        (tree / "level1" / "3_Bad.py").write_text(KERNELBENCH_FILE.replace("get_inputs", "inputs"))
        listing = list_problems(tree)
        assert len(listing.problems) == 4
        assert [error.message for error in listing.broken] == [f"{tree}/level1/3_Bad.py: does not define get_inputs"]
        with pytest.raises(ProblemError, match="does not define get_inputs"):
            find_problem("level1/3", tree)

    def test_the_table_gives_the_small_size_by_the_file_s_hash(self, tree, monkeypatch):
        entry = kernelbench.SmallSize(name="level1/2_Add", small={"M": 32, "H": 8})
        sha256 = hashlib.sha256(KERNELBENCH_FILE.encode()).hexdigest()
        monkeypatch.setattr(kernelbench, "shipped_small_sizes", lambda: {sha256: entry})
        problem = find_problem("level1/2", tree)
        assert problem.cases["small"].axes == {"M": 32, "height": 256, "width": 256, "D": 16, "H": 8}
        source = sized_source(problem, SizeName.SMALL)
        assert source == KERNELBENCH_FILE.replace("1024 * 2", "32").replace("16, 32", "16, 8")

    def test_a_table_that_does_not_fit_the_file_is_an_error(self, tree, monkeypatch):
        sha256 = hashlib.sha256(KERNELBENCH_FILE.encode()).hexdigest()
        entry = kernelbench.SmallSize(name="level1/2_Add", small={"N": 32})
        monkeypatch.setattr(kernelbench, "shipped_small_sizes", lambda: {sha256: entry})
        with pytest.raises(ProblemError, match="sets N, which"):
            find_problem("level1/2", tree)

    @pytest.mark.skipif("WARPGRADE_KERNELBENCH" not in os.environ, reason="WARPGRADE_KERNELBENCH names no checkout")
    def test_a_real_checkout(self):
        listing = list_problems(Path(os.environ["WARPGRADE_KERNELBENCH"]))
        assert listing.broken == []
        assert len(listing.problems) >= 250
        with_small = [problem for problem in listing.problems if SizeName.SMALL in problem.cases]
        assert len(with_small) >= 240
        for problem in with_small:
            assert sized_source(problem, SizeName.FULL) == problem.source
            written = constants_in(sized_source(problem, SizeName.SMALL))
            assert written.items() >= problem.cases[SizeName.SMALL].axes.items()


class TestFind:
    def test_the_shipped_name_goes_before_a_folder_of_that_name_here(self, own, tmp_path, monkeypatch):
        own(name="relu")
        monkeypatch.chdir(tmp_path)
        assert find_problem("relu").origin == Origin.WARPGRADE
        assert find_problem("./relu").origin == Origin.FOLDER

    def test_a_file_called_like_a_shipped_problem_is_that_file(self, tmp_path, monkeypatch):
        (tmp_path / "relu.py").write_text(KERNELBENCH_FILE)
        monkeypatch.chdir(tmp_path)
        assert find_problem("relu.py").origin == Origin.KERNELBENCH

    def test_the_folder_one_is_in_has_its_real_name(self, own, monkeypatch):
        monkeypatch.chdir(own())
        assert find_problem(".").name == "scale"

    def test_a_name_in_a_folder_is_read_without_its_broken_neighbours(self, own, tmp_path):
        own()
        own(toml="", name="broken")
        assert find_problem("scale", tmp_path).title == "Scale"
        listing = list_problems(tmp_path)
        assert [problem.name for problem in listing.problems] == ["scale"]
        assert len(listing.broken) == 1

    @pytest.mark.parametrize(("name", "nearest"), [("relus", "relu"), ("SoftMax", "softmax"), ("mat_mul", "matmul")])
    def test_an_unknown_name_carries_the_nearest(self, name, nearest):
        with pytest.raises(ProblemNotFound) as caught:
            find_problem(name)
        assert nearest in caught.value.nearest

    def test_one_that_was_just_scaffolded_is_what_was_meant(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        new_files.new_problem("fused_thing", OWN_PROBLEMS)
        with pytest.raises(ProblemNotFound) as caught:
            find_problem("fused_thing")
        assert caught.value.nearest == ("problems/fused_thing",)
        assert find_problem(caught.value.nearest[0]).name == "fused_thing"

    @pytest.mark.parametrize("name", ["", "no_such_problem_at_all", "x" * 5000, "a\0b", "missing.py"])
    def test_names_of_nothing(self, name):
        with pytest.raises(ProblemNotFound):
            find_problem(name)

    def test_a_folder_without_a_problem(self, tmp_path):
        with pytest.raises(ProblemError, match=r"is no problem: it has no reference\.py") as caught:
            find_problem(str(tmp_path))
        assert "warpgrade new problem NAME" in caught.value.hint

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(ProblemError, match="No such file"):
            list_problems(tmp_path / "none")


class TestSizedSource:
    def test_only_the_literals_change(self, own):
        source = sized_source(find_problem(str(own())), SizeName.SMALL)
        assert source == REFERENCE.replace("rows = 64", "rows = 4").replace("factor = 2.0", "factor = 0.5")

    def test_a_size_that_is_lacking_names_those_there_are(self, own):
        with pytest.raises(ProblemError, match="scale has no case 'awkward'; allowed: full, small"):
            sized_source(find_problem(str(own())), SizeName.AWKWARD)

    @pytest.mark.parametrize(
        ("written", "replaced"),
        [
            ("rows: int = 64", "rows: int = 4"),
            ("rows   =   (64)  # 64 rows", "rows   =   (4)  # 64 rows"),
            ("s = 'éλ😀'; rows = 64; t = 'é'", "s = 'éλ😀'; rows = 4; t = 'é'"),
            ("a = '\f\u2028\x85'\nrows = 8 * 8", "a = '\f\u2028\x85'\nrows = 4"),
            ("if True:\n    pass\nrows = other = 64", "if True:\n    pass\nrows = other = 4"),
            ("a, (rows, b) = 1, (64, -2)", "a, (rows, b) = 1, (4, -2)"),
            ("rows = 0x40", "rows = 4"),
            ("rows = -(-64)", "rows = 4"),
            ("rows = 65 - 2 // 2", "rows = 4"),
        ],
    )
    def test_literals_of_many_kinds_in_many_places(self, own, written, replaced):
        folder = own(reference=REFERENCE.replace("rows = 64", written))
        expected = REFERENCE.replace("rows = 64", replaced).replace("factor = 2.0", "factor = 0.5")
        assert sized_source(find_problem(str(folder)), SizeName.SMALL) == expected

    def test_line_ends_stay_as_they_are(self, own):
        folder = own()
        (folder / "reference.py").write_bytes(REFERENCE.replace("\n", "\r\n").encode())
        source = sized_source(find_problem(str(folder)), SizeName.SMALL)
        assert source.count("\r\n") == REFERENCE.count("\n")
        assert "rows = 4\r\n" in source

    def test_text_and_truth_are_written_as_python(self, own):
        full, small = 'rows = "a"\nfactor = true\n', 'rows = "it\'s"\nfactor = false\n'
        toml = TOML.replace("rows = 64\nfactor = 2.0\n", full).replace("rows = 4\nfactor = 0.5\n", small)
        reference = REFERENCE.replace("rows = 64\nfactor = 2.0\n", "rows = 'a'\nfactor = True\n")
        source = sized_source(find_problem(str(own(toml, reference))), SizeName.SMALL)
        assert 'rows = "it\'s"\nfactor = False\n' in source

    def test_two_names_of_one_literal_cannot_differ(self, own):
        toml = TOML.replace("rows = 64", "rows = 64\nother = 64").replace("rows = 4\n", "rows = 4\nother = 5\n")
        problem = find_problem(str(own(toml, REFERENCE.replace("rows = 64", "rows = other = 64"))))
        with pytest.raises(ProblemError, match="shares its literal"):
            sized_source(problem, SizeName.SMALL)


class TestDataDir:
    def test_the_wheel_s_own_goes_before_a_checkout_s(self, tmp_path):
        package = tmp_path / "evaluator"
        (tmp_path / "problems").mkdir()
        (tmp_path / "pyproject.toml").touch()
        assert data_dir("problems", package=package) == tmp_path / "problems"
        installed = package / "_data" / "problems"
        installed.mkdir(parents=True)
        assert data_dir("problems", package=package) == installed

    def test_a_stranger_s_package_beside_ours_is_not_taken(self, tmp_path):
        (tmp_path / "schemas").mkdir()
        with pytest.raises(InfraError, match="schemas are missing") as caught:
            data_dir("schemas", package=tmp_path / "evaluator")
        assert "install" in caught.value.hint


def constants_in(source: str) -> dict[str, object]:
    """Evaluate the module-level assignments that need nothing but literals."""
    values: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names = {
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
            }
            if not names and not any(isinstance(each, ast.Call) for each in ast.walk(node)):
                exec(compile(ast.Module([node], []), "constants", "exec"), values)
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str | list)}
