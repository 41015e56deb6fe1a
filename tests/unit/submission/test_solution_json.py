"""Solutions in the form of SOL-ExecBench and FlashInfer-Trace: the files of the submission, and what is refused."""

import json

import pytest

from evaluator.findings import Code
from evaluator.protocol.submission_files import checked, parts
from evaluator.records import Finding
from evaluator.submission.read import read_submission

SOLUTION = {
    "name": "mine",
    "definition": "norm",
    "author": "somebody",
    "description": "A first try.",
    "spec": {
        "languages": ["pytorch"],
        "target_hardware": ["LOCAL"],
        "entry_point": "src/main.py::run",
        "dependencies": [],
        "destination_passing_style": False,
        "binding": None,
    },
    "sources": [
        {"path": "src/main.py", "content": "from src.part import run\n"},
        {"path": "src/part.py", "content": "def run(x):\n    return x\n"},
    ],
}
CUDA = {
    "sources": [
        {"path": "main.cpp", "content": "int f();\n"},
        {"path": "kernel.cu", "content": "int g();\n"},
        {"path": "kernel.h", "content": "#pragma once\n"},
    ],
    "spec": {"languages": ["cuda_cpp"], "target_hardware": ["LOCAL"], "entry_point": "main.cpp::run"},
}


def read(tmp_path, **changed):
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(SOLUTION | changed))
    return read_submission(file)


def files_of(submission):
    return {file.path: file.text for file in parts(submission.source)}


def test_a_solution_in_python(tmp_path):
    submission = read(tmp_path)
    assert submission.name == "solution"
    files = files_of(submission)
    assert [*files] == ["submission.toml", "warpgrade_entry.py", "src/main.py", "src/part.py"]
    assert checked(parts(submission.source)).extension is None
    assert "from src.main import run as entry" in files["warpgrade_entry.py"]
    assert "return model.ordered(entry(*inputs))" in files["warpgrade_entry.py"]


def test_destination_passing_is_the_default_and_flags_are_the_benchmarks(tmp_path):
    submission = read(tmp_path, **CUDA)
    extension = checked(parts(submission.source)).extension
    assert extension.name == "solution_kernels"
    flags = (extension.extra_cflags, extension.extra_cuda_cflags, extension.extra_ldflags)
    assert flags == ([], ["-O3", "--use_fast_math"], ["-lcuda"])
    entry = files_of(submission)["warpgrade_entry.py"]
    assert "from solution_kernels import run as entry" in entry
    assert "entry(*inputs, *outputs)" in entry


def test_flags_of_a_solution(tmp_path):
    options = {"cflags": ['-DNAME="a"'], "cuda_cflags": [], "ld_flags": []}
    submission = read(tmp_path, **CUDA | {"spec": CUDA["spec"] | {"compile_options": options}})
    extension = checked(parts(submission.source)).extension
    assert (extension.extra_cflags, extension.extra_cuda_cflags) == (['-DNAME="a"'], [])


def with_spec(**changed):
    return {"spec": SOLUTION["spec"] | changed}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"score": 1}, "solution.json: score: unknown key; allowed: name, definition"),
        ({"name": ""}, "solution.json: name: must not be empty"),
        (with_spec(entry="a"), "solution.json: spec.entry: unknown key; allowed: entry_point"),
        (with_spec(entry_point="main.py"), "the form is 'file.py::function'"),
        (with_spec(entry_point="main.py::a; b"), "the form is 'file.py::function'"),
        (with_spec(entry_point="other.py::run"), "names 'other.py', which is not among the sources"),
        (with_spec(compile_options={"nvcc": []}), "spec.compile_options.nvcc: unknown key"),
        (with_spec(binding="pybind"), "spec.binding: invalid enum value 'pybind'; allowed: torch, tvm-ffi"),
        ({"sources": [{"path": "a.py"}]}, "sources[0].content: this key is required"),
        ({"sources": [*SOLUTION["sources"], {"path": "../a.py", "content": ""}]}, "'..' is no folder name here"),
        ({"sources": [*SOLUTION["sources"], {"path": "a.sh", "content": ""}]}, "a submission's files end in"),
        ({"sources": [*SOLUTION["sources"]] * 2}, "src/main.py occurs twice"),
        (
            {"sources": [*SOLUTION["sources"], {"path": "warpgrade_entry.py", "content": ""}]},
            "warpgrade_entry.py occurs twice",
        ),
        (CUDA | {"spec": {"language": "cuda", "entry_point": "main.cpp::run"}}, "bound by tvm-ffi is not supported"),
        (
            {"sources": [{"path": "a-b.py", "content": ""}], **with_spec(entry_point="a-b.py::run")},
            "'a-b.py' is not the path of a module of Python",
        ),
    ],
)
def test_a_solution_that_cannot_be_graded(tmp_path, changed, message):
    found = read(tmp_path, **changed)
    assert isinstance(found, Finding)
    assert found.code == Code.BAD_FILES
    assert message in found.message


@pytest.mark.parametrize("text", ["{", "[]", '{"spec": {}}', "[" * 100_000])
def test_other_json_is_no_solution(tmp_path, text):
    file = tmp_path / "solution.json"
    file.write_text(text)
    found = read_submission(file)
    assert isinstance(found, Finding)
    assert found.code != Code.BAD_FILES
