"""Both front ends of nvcc at the same time: the script, with an nvcc of our own, and against plain nvcc."""

import os
import re
import subprocess

import pytest

from evaluator.toolchain import host_compiler, nvcc
from tests.cuda_builds import ARCHITECTURE, has_nvcc, stand_ins

NEEDS_NVCC = pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
TOOL = """#!/bin/sh
echo "{name}: $*" >>"$RECORD"
{body}
"""
NVCC = """#!/bin/sh
case "$*" in
*--dryrun*) cat "$PLAN" >&2 ;;
*) echo "nvcc: $*" >>"$RECORD" ;;
esac
"""
PLAN = """\
nvcc warning : an option is old
#$ _SPACE_=
#$ CICC_PATH={tools}
#$ PATH={tools}:/usr/bin:/bin
#$ "{tools}"/g++ -E "my.cu" -o "ext.o.parts/my.cpp4.ii"
#$ cudafe++ --stub_file_name "my.stub.c" --gen_module_id_file --module_id_file_name "ext.o.parts/my.module_id" "ext.o.parts/my.cpp4.ii"
#$ "{tools}"/g++ -E "my.cu" -o "ext.o.parts/my.cpp1.ii"
#$ "$CICC_PATH/cicc" --module_id_file_name "ext.o.parts/my.module_id" "ext.o.parts/my.cpp1.ii" -o "ext.o.parts/my.ptx"
#$ ptxas -arch=sm_90a "ext.o.parts/my.ptx"  -o "ext.o.parts/my.cubin"
#$ fatbinary "--image3=file=ext.o.parts/my.cubin" --embedded-fatbin="ext.o.parts/my.fatbin.c"
#$ "{tools}"/g++ -std=c++20 -c -x c++ "ext.o.parts/my.cudafe1.cpp" -o "ext.o"
"""  # noqa: E501 - lines of nvcc
PROGRAMS = ["g++", "g++", "cudafe++", "cicc", "ptxas", "fatbinary", "g++"]
MEET = """
: >"{own}"
i=0
until [ -e "{other}" ]; do
    i=$((i + 1))
    [ $i -gt 4000 ] && echo "{name} ran alone" && exit 1
    sleep 0.05
done
"""


@pytest.fixture
def compiled(tmp_path):
    """Compile `my.cu` by the script, with programs that run shell code of the test."""
    tools = tmp_path / "tools"
    tools.mkdir()
    work = tmp_path / "work"
    work.mkdir()

    def compile_(plan=PLAN, text="__global__ void k() {}", flags=(), **bodies):
        names = {name: bodies.pop(name.replace("+", "p"), "") for name in PROGRAMS}
        assert not bodies
        for name, body in {**names, "nvcc": ""}.items():
            script = NVCC if name == "nvcc" else TOOL.format(name=name, body=body)
            (tools / name).write_text(script)
            (tools / name).chmod(0o755)
        (tmp_path / "plan").write_text(plan.format(tools=tools))
        record = tmp_path / "record"
        record.write_text("")
        (work / "my.cu").write_text(text)
        result = subprocess.run(
            ["/bin/sh", nvcc.FRONT_ENDS, "ext.o", tools / "nvcc", *flags, "-c", "my.cu", "-o", "ext.o"],
            cwd=work,
            env={"PATH": "/usr/bin:/bin", "PLAN": str(tmp_path / "plan"), "RECORD": str(record)},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        programs = [line.partition(":")[0] for line in record.read_text().splitlines()]
        return result, programs, sorted(path.name for path in work.iterdir())

    return compile_


def meeting(tmp_path, name, other):
    return MEET.format(own=tmp_path / name, other=tmp_path / other, name=name)


def test_the_front_ends_run_at_the_same_time_and_the_host_compiler_after_both(compiled, tmp_path):
    result, programs, left = compiled(
        cudafepp=meeting(tmp_path, "host", "device"), cicc=meeting(tmp_path, "device", "host")
    )
    assert (result.returncode, result.stdout) == (0, "")
    assert sorted(programs) == sorted(PROGRAMS)
    assert programs[-1] == "g++"
    assert left == ["my.cu"]


def test_a_warning_of_nvcc_is_shown_once(compiled):
    assert compiled()[0].stderr.splitlines() == ["nvcc warning : an option is old"]


@pytest.mark.parametrize(
    "plan",
    [
        PLAN.replace("cudafe++ ", "cudafe-- "),
        PLAN.replace("--gen_module_id_file ", ""),
        PLAN.replace("ptxas -arch=sm_90a", "ptxas --device-c "),
        PLAN + PLAN.splitlines()[-1] + "\n",
        PLAN + '#$ nvlink "a.o"\n',
        "".join(PLAN.splitlines(keepends=True)[:-1]),
        "",
    ],
    ids=["other program", "no id", "relocatable", "two", "one more", "one less", "empty"],
)
def test_any_other_plan_runs_as_plain_nvcc(compiled, plan):
    result, programs, left = compiled(plan=plan)
    assert (result.returncode, programs, left) == (0, ["nvcc"], ["my.cu"])


def test_an_error_of_the_hosts_front_end_is_the_only_report(compiled):
    result, programs, _ = compiled(cudafepp="echo 'my.cu(1): error: host'; exit 2", cicc="echo device; exit 3")
    assert (result.returncode, result.stdout) == (2, "my.cu(1): error: host\n")
    assert programs.count("g++") == 2


def test_an_error_for_the_gpu_alone_is_reported_after_the_hosts_warnings(compiled):
    result, programs, _ = compiled(cudafepp="echo warned", cicc="echo 'my.cu(1): error: device'; exit 3")
    assert (result.returncode, result.stdout) == (3, "warned\nmy.cu(1): error: device\n")
    assert not {"ptxas", "fatbinary"} & set(programs)


@pytest.mark.parametrize("name", ["cudafepp", "cicc", "ptxas"])
def test_a_killed_program_is_named_as_by_nvcc(compiled, name):
    result, _, _ = compiled(**{name: "kill -9 $$"})
    assert result.returncode == 137
    assert "died due to signal 9" in result.stdout


def test_an_error_of_ptxas_is_no_signal(compiled):
    """ptxas ends with 255, which is more than 128 and no signal."""
    result, _, _ = compiled(ptxas="exit 255")
    assert result.returncode == 255
    assert "died" not in result.stdout


def test_the_id_depends_on_file_and_flags_alone(compiled, tmp_path):
    def id_of(**changed):
        kept = tmp_path / "id"
        result, _, _ = compiled(cicc=f'cat ext.o.parts/my.module_id >"{kept}"', **changed)
        assert result.returncode == 0
        return kept.read_text()

    first = id_of()
    assert first.isidentifier()
    assert id_of() == first
    assert len({first, id_of(text="// another"), id_of(flags=["-DTORCH_EXTENSION_NAME=b"])}) == 3


def test_a_build_file_names_the_script_and_plain_nvcc_does_not(monkeypatch, tmp_path):
    monkeypatch.setattr(nvcc, "nvcc", lambda: host_compiler.InstalledTool("/cuda/bin/nvcc", "Build cuda_13.0"))
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path)
    monkeypatch.setattr(host_compiler, "cxx", lambda: host_compiler.InstalledTool("/usr/bin/g++", "g++ 1.0"))
    units = [nvcc.CompileUnit("my.cu", cuda=True)]
    side_by_side = nvcc.ninja_text("ext", units, [], [], [], nvcc.both_front_ends())
    assert f"command = /bin/sh {nvcc.FRONT_ENDS_NAME} $out /cuda/bin/nvcc $cuda_flags -c $in -o $out" in side_by_side
    assert nvcc.FRONT_ENDS_NAME not in nvcc.ninja_text("ext", units, [], [], [], "/cuda/bin/nvcc")


KERNELS = """
template <typename T> __global__ void scale(T* out, T by) { out[threadIdx.x] *= by; }
__constant__ float factor;
__global__ void plain(float* out) { out[threadIdx.x] = factor; }
void run(float* out) {
    scale<float><<<1, 32>>>(out, 2.0f);
    plain<<<1, 32>>>(out);
}
"""
HIDDEN = """
namespace { __device__ float kept; __global__ void hidden(float* out) { *out = kept; } }
void run(float* out) { hidden<<<1, 1>>>(out); }
"""


@pytest.fixture
def machine_code(tmp_path):
    """Compile a text, and return the bytes for the GPU and the symbols of the object."""

    def compile_(text, *before):
        (tmp_path / "my.cu").write_text(text)
        command = [nvcc.nvcc().path, *nvcc.device_flags(ARCHITECTURE), "-no-compress", "-c", "my.cu", "-o", "my.o"]
        environment = os.environ | stand_ins(tmp_path / "stand-ins")
        subprocess.run([*before, *command], cwd=tmp_path, env=environment, check=True)
        section = ["objcopy", "-O", "binary", "--only-section=.nv_fatbin", "my.o", "code"]
        subprocess.run(section, cwd=tmp_path, check=True)
        symbols = subprocess.run(["nm", "-C", "my.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        return (tmp_path / "code").read_bytes(), symbols

    return compile_


@pytest.mark.slow
@NEEDS_NVCC
def test_the_machine_code_is_that_of_plain_nvcc(machine_code):
    plain, both = machine_code(KERNELS), machine_code(KERNELS, "/bin/sh", nvcc.FRONT_ENDS, "my.o")
    assert b".text._Z5plainPf" in plain[0]
    assert both[0] == plain[0]


@pytest.mark.slow
@NEEDS_NVCC
def test_the_id_is_part_of_the_names_of_a_files_own_kernels_on_both_sides(machine_code):
    code, symbols = machine_code(HIDDEN, "/bin/sh", nvcc.FRONT_ENDS, "my.o")
    found = re.findall(rb"_GLOBAL__N_(_warpgrade_\d+_\d+_)", code)
    assert len(set(found)) == 1
    assert f"_GLOBAL__N_{found[0].decode()}" in symbols
