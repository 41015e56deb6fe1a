"""nvcc's flags: what a submission may ask for, what the GPU decides, and that nothing else reaches nvcc's shell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.toolchain.nvcc_flags import nvcc_flags

KEPT = {
    "switches": (["-O3", "--use_fast_math", "-lineinfo", "--expt-extended-lambda", "--extended-lambda", "-w"], None),
    "relaxed": (["--expt-relaxed-constexpr", "-expt-relaxed-constexpr", "-restrict", "--restrict"], None),
    "values": (
        ["-maxrregcount=64", "-std=c++17", "-rdc=false", "-ftz=true", "--threads=4", "-diag-suppress=1,2"],
        None,
    ),
    "macros": (
        ["-DX", "-DN=4", "'-DT=std::vector<int>'", "-UX", "-I/usr/include"],
        ["-DX", "-DN=4", "-DT=std::vector<int>", "-UX", "-I/usr/include"],
    ),
    "two words": (["-maxrregcount", "32", "-std", "c++20", "-D", "N=4"], ["-maxrregcount=32", "-std=c++20", "-DN=4"]),
    "one string": (["-O3 --use_fast_math", ""], ["-O3", "--use_fast_math"]),
    "ptxas": (
        ["-Xptxas", "-v", "-Xptxas=-O3,-dlcm=ca", "--ptxas-options=-v"],
        ["-Xptxas=-v", "-Xptxas=-O3,-dlcm=ca", "--ptxas-options=-v"],
    ),
    "host": (
        ["-Xcompiler", "-fPIC,-O3", "--compiler-options=-Wall"],
        ["-Xcompiler=-fPIC,-O3", "--compiler-options=-Wall"],
    ),
    "front end": (["-Xcudafe", "--diag_suppress=20012"], ["-Xcudafe=--diag_suppress=20012"]),
    "libraries": (["-lcublas", "-L/usr/lib"], None),
}

REFUSED = [
    # another compiler
    *("-ccbin", "-ccbin=/tmp/g++", "--compiler-bindir=/tmp", "-B/tmp", "-arbin=x", "-ldir=/tmp"),
    # code in the compiler
    *("-fplugin=x", "-Xcompiler=-fplugin=x", "--compiler-options=-B/tmp", "-Xcompiler=-wrapper,x"),
    # response files
    *("@x", "--options-file=x", "-optf=x", "-Xcompiler=@x", "-Xptxas=@x"),
    # files of its choice
    *("-o", "-o=x", "--keep", "-keep-dir=x", "-odir=x", "-MF=x", "-time=x", "-fdevice-time-trace=x"),
    # files not handed in
    *("-include=/etc/passwd", "-x=cu", "-isystem=/tmp", "--pre-include=x"),
    # other programs
    *("--run", "-run-args=x", "-Xlinker=-T", "-Xnvlink=x", "-Xarchive=x", "-dlto", "-dc", "-dryrun"),
    # any word at all
    *("-forward-unknown-to-host-compiler", "--forward-unknown-opts", "-fPIC", "x.cu", "-"),
    # a shell
    *("-DN=$(id)", "-DN=`id`", "-DN=\\", "-DN=${HOME}", "-I$(id)", "-Xcompiler=-O3;id", "-Xcompiler=-DN=$(id)"),
    # a shell again
    *("-Xcompiler=-O3|id", "-Xptxas=-v;id", "-std=c++17;id", "-maxrregcount=4;id", "-Xcudafe=x", "-DN=1\n-B/tmp"),
    # values
    *("-maxrregcount=x", "-maxrregcount=", "-rdc=maybe", "-std=", "-Xptxas=--unknown", "-Xptxas=", "-Xcompiler="),
]


@pytest.mark.parametrize(("given_flags", "kept"), KEPT.values(), ids=KEPT)
def test_what_is_allowed_is_passed_on(given_flags, kept):
    assert nvcc_flags(given_flags) == (kept or given_flags, [], [])


@pytest.mark.parametrize("flag", REFUSED)
def test_what_is_not_named_is_refused(flag):
    found = nvcc_flags(["-O3", flag] if "\n" in flag or " " not in flag else [flag])
    assert found.refused
    assert not set(found.refused) & set(found.kept)


def test_a_refused_flag_takes_its_value_along_or_leaves_it_refused():
    assert nvcc_flags(["-ccbin", "/tmp/evil", "-o", "x"]).kept == []


@pytest.mark.parametrize(
    "flags",
    [
        ["-arch=sm_80"],
        ["-arch", "native"],
        ["-gencode=arch=compute_80,code=sm_80"],
        ["-gencode", "arch=compute_90,code=sm_90"],
        ["--gpu-architecture=sm_75", "--gpu-code=sm_75"],
        ["--generate-code", "arch=compute_90a,code=[sm_90a,compute_90a]"],
    ],
)
def test_the_gpu_at_hand_decides_the_architecture(flags):
    kept, refused, architectures = nvcc_flags([*flags, "-O2"])
    assert (kept, refused) == (["-O2"], [])
    assert architectures


_WORD = st.text(alphabet="-DNUIXO=$`\\;|&()<> \"'abcxptasompilerv3/@,+", max_size=24)


@given(st.lists(_WORD, max_size=4))
def test_nothing_that_a_shell_would_run_is_kept(flags):
    for word in nvcc_flags(flags).kept:
        assert not set(word) & set("$`\\\n")
        if not word.startswith("-D"):
            assert not set(word) & set(";|&<>()\"'")
