"""From a build request to units and commands: order, line markers, flags, and which errors are believed."""

import re
import subprocess

import pytest
from msgspec.structs import replace

from evaluator.cuda_source.source_files import source_files
from evaluator.emulator import headers
from evaluator.emulator.frontend.build_ladder import UNIT, StepName, build_steps, separate_units_may_help
from evaluator.emulator.frontend.front_end import Lacking, front_end, lacking_constructs
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.protocol.submission_files import bad_path
from evaluator.toolchain import host_compiler
from tests.unit.compile.tool_results import error

KERNEL = """__global__ void k(float* p) { p[0] = 1; }
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda());
  k<<<1, 32>>>(x.data_ptr<float>());
  return x;
}"""
INLINE = BuildRequest(
    name="ext",
    cpp_sources=["torch::Tensor run(torch::Tensor x);"],
    cuda_sources=[KERNEL],
    functions={"run": "runs"},
    with_cuda=True,
)


def steps_of(request):
    return build_steps(request, front_end(request))


def step_of(request, name):
    return next(step for step in steps_of(request) if step.name is name)


def lines_by_file(text):
    """Say what stands on which line of which file, as the `#line` markers have it."""
    placed, name, number = {}, None, 0
    for line in text.split("\n"):
        if match := re.fullmatch(r'#line (\d+)(?: "(.*)")?', line):
            name, number = match[2] or name, int(match[1])
        else:
            placed[name, number] = line
            number += 1
    return placed


OWN_MODULE = replace(INLINE, functions=None)


def test_the_steps_go_from_quick_to_faithful():
    assert [step.name for step in steps_of(INLINE)] == [StepName.BOUND, StepName.FULL, StepName.SPLIT]
    assert [step.name for step in steps_of(OWN_MODULE)] == [StepName.LIGHT, StepName.FULL, StepName.SPLIT]


def test_every_compiler_stops_at_the_first_error():
    assert all("-Wfatal-errors" in step.argv for step in [*steps_of(INLINE), *steps_of(OWN_MODULE)])


@pytest.mark.parametrize("name", [StepName.FULL, StepName.SPLIT])
def test_every_line_is_the_line_of_the_file_that_is_reported(name):
    files = step_of(INLINE, name).files
    placed = {}
    for name, text in files.items():
        if name.endswith(".cpp"):
            placed |= lines_by_file(text)
    for file in source_files(INLINE):
        for number, line in enumerate(file.text.split("\n"), 1):
            changed = "is_cuda" in line or "<<<" in line
            assert changed or placed[file.name, number] == line
    assert 'emu::launch<false>("k", 7, ' in placed["cuda.cu", 7]


def test_one_unit_declares_binds_and_then_defines():
    text = step_of(INLINE, StepName.FULL).files[UNIT]
    places = [text.index(part) for part in ("run(torch::Tensor x);", "PYBIND11_MODULE", "cuda_runtime.h", "__global__")]
    assert places == sorted(places)


def test_the_c_plus_plus_part_is_not_cuda():
    steps = steps_of(BuildRequest(name="e", cpp_sources=["void f() { k<<<1, 2>>>(x); }"], functions={}))
    assert "k<<<1, 2>>>(x)" in steps[0].files[UNIT]
    assert "cuda_runtime.h" not in steps[0].files[UNIT]


def test_without_pybind11_a_table_stands_for_the_bindings():
    step = step_of(INLINE, StepName.BOUND)
    text = step.files[UNIT]
    assert text.startswith("#include <torch/extension.h>\n")  # nothing may precede a precompiled header
    parts = ('#line 1 "main.cpp"', "run(torch::Tensor x);", "warpgrade::bind<&run>", '#line 1 "cuda.cu"', "__global__")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "PYBIND11" not in text
    assert "pybind" not in "".join(step.files[name] for name in step.files if name.endswith("extension.h"))
    assert step.argv[step.argv.index(UNIT) + 1] == "support.o"
    assert step.argv.index("-I.bound") < step.argv.index(f"-isystem{headers.INCLUDE}")


def test_without_pybind11_a_unit_includes_the_functions_that_it_names():
    request = replace(INLINE, cuda_sources=[f"{KERNEL}\nauto f() {{ return torch::hardtanh_(y) + at::zeros({{1}}); }}"])
    text = step_of(request, StepName.BOUND).files[UNIT]
    assert {"#include <ATen/ops/hardtanh.h>", "#include <ATen/ops/zeros.h>"} <= set(text.split("\n"))
    assert "ATen/ops/ones.h" not in text


def test_a_unit_with_pybind11_begins_with_the_precompiled_header_too():
    kernel = SourceFile("k.cu", "#include <ATen/ATen.h>\nauto f() { return at::zeros({1}); }")
    text = steps_of(BuildRequest(name="e", files=[kernel], with_cuda=True))[0].files[UNIT]
    assert text.startswith("#include <torch/extension.h>\n#include <ATen/ops/zeros.h>\n")
    without_torch = BuildRequest(name="e", files=[SourceFile("k.cu", "#include <cmath>")], with_cuda=True)
    assert "torch" not in steps_of(without_torch)[0].files[UNIT]


@pytest.mark.parametrize(
    "change",
    [
        {"functions": None},
        {"python_module": False},
        {"error_handling": False},
        {"implicit_headers": False},
        {"files": [SourceFile("a.cu", KERNEL)]},
        {"headers": [SourceFile(".bound/torch/extension.h", "")]},
        {"cuda_sources": ["TORCH_LIBRARY(a, m) {}"]},
        {"cpp_sources": ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"]},
    ],
)
def test_other_bindings_keep_pybind11(change):
    assert steps_of(replace(INLINE, **change))[0].name is StepName.LIGHT


def test_only_the_light_step_has_light_headers():
    light, full, split = steps_of(OWN_MODULE)
    assert ".light/torch/extension.h" in light.files
    assert light.argv.index("-I.light") < light.argv.index(f"-isystem{headers.INCLUDE}")
    for step in (full, split):
        assert "-I.light" not in step.argv
        assert not any(name.startswith(".light/") for name in step.files)


def test_two_files_are_two_units():
    split = step_of(INLINE, StepName.SPLIT)
    assert sorted(split.files) == [".0.cpp", ".1.cpp", ".full/torch/extension.h", "cuda.cu", "main.cpp"]
    assert {".0.cpp", ".1.cpp"} <= set(split.argv)
    assert split.argv[split.argv.index("-o") + 1] == split.library == "ext.so"


def test_our_headers_stand_before_those_of_torch():
    includes = [word for word in steps_of(INLINE)[0].argv if word.startswith("-isystem")]
    assert includes[0] == f"-isystem{headers.INCLUDE}"
    assert len(includes) > 2


def test_of_a_submissions_flags_macros_and_folders_are_kept():
    request = BuildRequest(
        name="e",
        cpp_sources=["int x;"],
        extra_cflags=["-O3 -march=native -DHOST=1", "-std=c++17"],
        extra_cuda_cflags=["--use_fast_math", "-D", "TILE=16", "-arch=sm_90a", "-Xptxas", "-v", "-UNDEBUG"],
        extra_include_paths=["include"],
        extra_ldflags=["-lcublas", "-lcudart", "-lm", "-lc10_cuda"],
    )
    argv = steps_of(request)[0].argv
    assert {"-DHOST=1", "-DTILE=16", "-UNDEBUG", "-Iinclude", "-lm", "-O1"} <= set(argv)
    assert not {
        "-O3",
        "-march=native",
        "-std=c++17",
        "--use_fast_math",
        "-Xptxas",
        "-v",
        "-lcublas",
        "-lc10_cuda",
    } & set(argv)


def test_returns_are_announced_only_where_all_are_marked():
    def announced(source):
        request = BuildRequest(name="e", cpp_sources=[""], cuda_sources=[source])
        return "-DWARPGRADE_EMU_MARKS_RETURNS" in steps_of(request)[0].argv

    assert announced(KERNEL)
    assert not announced("#define CHECK(x) if (!(x)) return\n" + KERNEL)


def test_files_of_load_keep_their_names_and_headers_stay_files():
    request = BuildRequest(
        name="e",
        files=[
            SourceFile(name="kernel.cu", text='#include "k.cuh"\nvoid f() { k<<<1, 1>>>(); }'),
            SourceFile(name="k.cuh", text="__global__ void k() { __shared__ int x; }"),
            SourceFile(name="bind.cpp", text="void f();"),
        ],
    )
    light, _, split = steps_of(request)
    assert lines_by_file(light.files[UNIT])["bind.cpp", 1] == "void f();"
    assert light.files[UNIT].index("bind.cpp") < light.files[UNIT].index("kernel.cu")
    assert 'emu::launch<true>("k", 2,' in light.files[UNIT]
    assert "emu::shared<int>(0)" in light.files["k.cuh"] == split.files["k.cuh"]
    own = [".0.cpp", ".1.cpp", ".full/torch/extension.h", "bind.cpp", "k.cuh", "kernel.cu"]
    assert sorted(split.files) == own


IN_FOLDERS = BuildRequest(
    name="e",
    files=[
        SourceFile(name="a/k.cpp", text='#include "tile.h"\n#include "../top.h"'),
        SourceFile(name="b/k.cpp", text='#define TILE "tile.h"\n#include TILE'),
    ],
    headers=[
        SourceFile(name="a/tile.h", text="int of_a;"),
        SourceFile(name="b/tile.h", text="int of_b;"),
        SourceFile(name="top.h", text="int of_top;"),
    ],
)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_quoted_include_begins_in_the_folder_of_its_file(step, tmp_path):
    """As for nvcc: with one search path for all units, b/k.cpp was compiled with the header of a/k.cpp."""
    built = steps_of(IN_FOLDERS)[step]
    for name, text in built.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    folders = [word for word in built.argv if word.startswith("-iquote")]
    units = [word for word in built.argv if word.endswith(".cpp")]
    command = [host_compiler.cxx().path, "-E", "-P", *folders, *units]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if line] == ["int of_a;", "int of_top;", "int of_b;"]


def test_no_file_of_a_submission_takes_the_place_of_a_file_of_the_build():
    own = {file.name for file in [*IN_FOLDERS.files, *IN_FOLDERS.headers]}
    made = {name for step in steps_of(IN_FOLDERS) for name in step.files} - own
    assert made
    assert all(bad_path(name) for name in made)


def test_lacking_constructs_have_the_file_and_line_of_the_build():
    request = BuildRequest(
        name="e",
        cpp_sources=["#include <thrust/sort.h>"],
        cuda_sources=['__device__ void f() {\n asm("trap;");\n}'],
    )
    assert lacking_constructs(request) == [
        Lacking("the header thrust/sort.h", "main.cpp", 2),
        Lacking("inline PTX (asm)", "cuda.cu", 5),
    ]


def test_a_file_of_the_request_is_no_lacking_header():
    files = [
        SourceFile(name="a.cu", text='#include "cuda_helpers.h"'),
        SourceFile(name="cuda_helpers.h", text=""),
    ]
    assert lacking_constructs(BuildRequest(name="e", files=files)) == []


SOURCES = [SourceFile("main.cpp", "torch::Tensor run(torch::Tensor a, float eps);"), SourceFile("cuda.cu", KERNEL)]


@pytest.mark.parametrize(
    ("message", "helps"),
    [
        ("redefinition of 'at::Tensor run(at::Tensor, float)'", True),
        ("call of overloaded 'run(int)' is ambiguous", True),
        ("redeclaration of 'float acc'", False),  # no other file has the name
        ("'run' was not declared in this scope", False),  # more files declare more
    ],
)
def test_only_a_clash_with_an_earlier_file_may_be_of_the_single_unit(message, helps):
    assert separate_units_may_help(error(message, file="cuda.cu"), SOURCES) is helps
    assert not separate_units_may_help(error(message, file="cuda.cu"), SOURCES[1:])


@pytest.mark.parametrize("line", ["#define N 32", "# undef N", "using namespace at;"])
def test_what_an_earlier_file_leaks_may_break_a_later_one(line):
    leaking = [SourceFile("main.cpp", f"{SOURCES[0].text}\n{line}"), SOURCES[1]]
    assert separate_units_may_help(error("expected unqualified-id before numeric constant", file="cuda.cu"), leaking)


@pytest.mark.parametrize(
    ("kernel", "checked"),
    [
        (KERNEL, False),
        (KERNEL.replace("p[0] = 1", "*(float4*)p = make_float4(1, 1, 1, 1)"), True),
        (KERNEL.replace("p[0] = 1", "struct __align__(8) Pair { float a, b; }; *(Pair*)p = {1, 1}"), True),
    ],
)
def test_alignment_is_checked_where_there_are_vectors(monkeypatch, kernel, checked):
    request = BuildRequest(name="ext", cpp_sources=[""], cuda_sources=[kernel], with_cuda=True)
    steps = steps_of(request)
    assert all(("-fsanitize=alignment" in step.argv) is checked for step in steps)
    monkeypatch.setattr("evaluator.emulator.frontend.build_ladder.compiler_has", lambda _library: False)
    assert not any("-fsanitize=alignment" in step.argv for step in steps_of(request))


def test_a_text_without_cuda_is_not_checked_for_alignment():
    steps = steps_of(BuildRequest(name="e", cpp_sources=["struct alignas(16) A { float4 v; };"], functions={}))
    assert not any("-fsanitize=alignment" in step.argv for step in steps)
