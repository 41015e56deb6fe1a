"""Flags: what a submission may ask of the compiler, and that nothing else reaches it."""

import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.toolchain import host_compiler
from evaluator.toolchain.nvcc_flags import refused_compile_flags, refused_link_flags, words

ALLOWED = [
    *("-O0", "-O1", "-O2", "-O3", "-Os", "-Oz", "-Og", "-O", "-Ofast"),
    *("-std=c++17", "-std=c++20", "-std=gnu++2b", "--std=c++17"),
    *("-DNDEBUG", "-DN=4", "-DNAME=\"a b; $(x) 'y' `z` | & > <\"", "-D_X=", "-UNDEBUG", "-DPATH=@file"),
    *("-Iinclude", "-I/usr/include", "-I../a-b/c+d.e"),
    *("-march=native", "-mavx2", "-mfma", "-mtune=znver3", "-mno-avx512f", "-msse4.2", "-mprefer-vector-width=256"),
    *("-ffast-math", "-funroll-loops", "-fopenmp", "-fno-math-errno", "-fPIC", "-fvisibility=hidden"),
    *("-fassociative-math", "-flto", "-ftree-vectorize", "-fno-exceptions", "-fpermissive", "-fopenmp-simd"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wl", "-w", "-g", "-g3", "-pthread", "-pipe"),
    *("-ansi", "-pedantic"),
]

REFUSED = [
    # other programs
    *("-B/tmp", "-B", "-specs=x", "--specs=x", "-wrapper", "-wrapper=x", "-fuse-ld=/tmp/ld"),
    # response files
    *("@file", "@/etc/passwd", "-@file", "--@x"),
    # code inside the compiler
    *("-fplugin=./x.so", "-fplugin-arg-x-y=z", "-fplugin", "-mplugin=x", "-load", "-Xclang"),
    # files not handed in
    *("-include", "-include/etc/passwd", "-imacros", "-imacrosx", "-x", "-xc", "-xassembler"),
    # more files not handed in
    *("-iquote/tmp", "-isystem/tmp", "-idirafter/tmp", "-iprefix/x", "-isysroot/", "-I", "-I="),
    # files of its choice
    *("-o", "-ox", "-save-temps", "-save-temps=obj", "-MF", "-MFx", "-MD", "-MMD", "-M", "-dumpbase"),
    # dumps
    *("-fdump-tree-all", "-fdump-tree-all=/tmp/x", "-fprofile-generate", "-fprofile-use=x", "-fauto-profile=x"),
    # words for other programs
    *("-Wl,-rpath,/tmp", "-Wp,-MD,x", "-Wa,-alh=x", "-Xlinker", "-Xassembler", "-Xpreprocessor"),
    # paths in code generation
    *("-fopt-info-all=/tmp/x", "-fmodule-mapper=|sh", "-fdebug-prefix-map=/a=/b"),
    # what changes the process
    *("-fsanitize=address", "-fcompare-debug=x"),
    # language or stage
    *("-c", "-S", "-E", "-v", "-###", "--help", "-print-file-name=x", "-shared", "-static", "-nostdlib"),
    # no flag at all
    *("", " ", "main.cpp", "/tmp/evil.o", "evil.a", "-", "--", ";", "|sh", "&", "$(sh)", "`sh`"),
    # two flags in one
    *("-O3 -fplugin=x", "-O3\n-fplugin=x", "-O3,-fplugin=x", "-mavx2 @x", "-Wall\t-B/tmp", "-DX\n@x"),
    # macros that are none
    *("-D", "-D'F(x)=1'", "-D F", "-D-x", "-DX=a\nb", "-DX=a\rb", "-DX=a\x00b", "-U"),
    # paths with something in them
    *("-I/tmp -B/x", "-I/tmp;sh", "-I$(sh)", "-I`sh`", "-I/tmp\n", "-I@x", "-I/a,b", "-I'x'"),
    # white space around
    *(" -O3", "-O3 ", "-O3\n", "\n-O3", "\t-DX", "\u2028-O3", "-O3\x0b", "-mavx2\xa0"),
    # dashes that are none
    *("\u2013O3", "\uff0dO3", "-\xd83"),
    # machine words with paths
    *("-march=native;sh", "-march=/tmp/x", "-m", "-mcmodel=large -B/tmp"),
    # levels that do not exist
    *("-O4", "-O33", "-Ofaster", "-g4", "-std=c99", "-std=c++20 -x c", "-stdlib=libc++"),
]


@pytest.mark.parametrize("flag", ALLOWED)
def test_an_allowed_flag_passes(flag):
    assert refused_compile_flags([flag]) == []


@pytest.mark.parametrize("flag", REFUSED)
def test_a_refused_flag_is_named(flag):
    assert refused_compile_flags(["-O3", flag, "-Wall"]) == [flag]


@pytest.mark.parametrize(
    "flag", ["-lm", "-lgomp", "-lstdc++", "-L/usr/lib", "-L.", "-pthread", "-fopenmp", "-O3", "-s", "-Wl,--as-needed"]
)
def test_an_allowed_link_flag_passes(flag):
    assert refused_link_flags([flag]) == []


@pytest.mark.parametrize(
    "flag",
    [
        *("-Wl,--plugin,x", "-Wl,-rpath,/tmp", "-Wl,-O1,--plugin=x", "-Wl,-T,x", "-Wl,--wrap=malloc", "-Wl,@x"),
        *("-Xlinker", "-fuse-ld=gold", "-B/tmp", "@x", "-T", "-Tscript", "x.o", "/tmp/x.a", "libx.so", "-l", "-l:x.so"),
        *("-L", "-l/tmp/x", "-lm -Wl,-T,x", "-lm\n", " -lm", "-L/tmp\n-B/x", "-static", "-shared", "-o", "-nostdlib"),
        *("-Wl,-O1\n", "-plugin", "-specs=x", "-fplugin=x", "-flto-partition=none", "-O33", "-e", "-u", ""),
    ],
)
def test_a_refused_link_flag_is_named(flag):
    assert refused_link_flags(["-lm", flag]) == [flag]


@pytest.mark.parametrize(
    ("flags", "cut"),
    [
        (["-O3", "-Wall"], ["-O3", "-Wall"]),
        (["-O3 -Wall"], ["-O3", "-Wall"]),
        ([""], []),
        (["  ", "\n", " -O3\n"], ["-O3"]),
        (["-DX='a b'", '-DY="c d"', r"-DZ=\"e\""], ["-DX=a b", "-DY=c d", '-DZ="e"']),
        (["-O3\n-fplugin=x"], ["-O3", "-fplugin=x"]),
        (["-DX='open", "-O3"], ["-DX='open", "-O3"]),
        (["-DX=1#2"], ["-DX=1#2"]),
        ([], []),
    ],
)
def test_flags_are_cut_as_the_shell_cuts_them(flags, cut):
    assert words(flags) == cut


@given(text=st.text(alphabet=st.sampled_from("-OIDWBfmlx=+,./@'\"\\ \n\t$`;|&ap1"), max_size=12))
def test_no_allowed_word_begins_anything_dangerous(text):
    for word in words([text]):
        if refused_compile_flags([word]):
            continue
        assert word[0] == "-"
        assert word[1] in "ODUIWmfgwpas-"
        assert "\n" not in word
        assert word.startswith("-D") or not set(word) & set(" \t'\"\\$`;|&@")
        assert not word.startswith(("-Wl,", "-Wa,", "-Wp,", "-fplugin", "-B", "-x", "-specs", "-i"))


NASTY = [
    "-DA=a b",
    "-DB='",
    '-DC="',
    "-DD=$HOME",
    "-DE=$$",
    "-DF=$in",
    "-DG=`id`",
    "-DH=$(id)",
    "-DI=a;b",
    "-DJ=a|b&c>d<e",
    "-DK=\\",
    "-DL=a\\nb",
    "-DM=#x",
    "-DN=*",
    "-DO=~",
    "-DP=!x",
    "-DQ=${cflags}",
    "-DR=é😀",
    "-DS=%s",
]


def handed_over(folder, cflags, ldflags):
    """Let ninja run a compiler that writes its arguments down; give those of the compile and of the link."""
    compiler = folder / "compiler"
    compiler.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        "name = sys.argv[sys.argv.index('-o') + 1]\n"
        "pathlib.Path(name).write_text(json.dumps(sys.argv[1:]))\n"
    )
    compiler.chmod(0o755)
    (folder / "main.cpp").touch()
    text = host_compiler.ninja_text("ext", ["main.cpp"], cflags, ldflags)
    (folder / "build.ninja").write_text(text, encoding="utf-8")
    subprocess.run(
        [host_compiler.ninja(), "-C", folder, "-f", "build.ninja"], check=True, capture_output=True, timeout=300
    )
    import json

    return [json.loads((folder / name).read_text()) for name in ("0_main.cpp.o", "ext.so")]


@pytest.fixture
def written(tmp_path, monkeypatch):
    compiler = host_compiler.InstalledTool(str(tmp_path / "compiler"), "fake 1.0")
    monkeypatch.setattr(host_compiler, "cxx", lambda: compiler)
    monkeypatch.setattr(
        host_compiler, "compile_flags", lambda name: [f"-DTORCH_EXTENSION_NAME={name}", "-isystem/a b/$c"]
    )
    monkeypatch.setattr(host_compiler, "link_flags", lambda: ["-shared", "-L/a b"])
    return lambda cflags, ldflags=(): handed_over(tmp_path, list(cflags), list(ldflags))


def test_every_flag_reaches_the_compiler_as_it_is_through_ninja_and_the_shell(written):
    assert refused_compile_flags(NASTY) == []
    compiled, linked = written(NASTY, ["-lm", "-Wl,-O1"])
    ours = ["-DTORCH_EXTENSION_NAME=ext", "-isystem/a b/$c"]
    assert compiled == [*ours, *NASTY, "-c", "main.cpp", "-o", "0_main.cpp.o"]
    assert linked == ["0_main.cpp.o", "-lm", "-Wl,-O1", "-shared", "-L/a b", "-o", "ext.so"]


def test_any_macro_reaches_the_compiler_as_it_is(written):
    @given(values=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0")), max_size=30))
    def check(values):
        flags = [f"-DX={value}" for value in values]
        assert refused_compile_flags(flags) == []
        assert shlex.split(host_compiler.joined(flags).replace("$$", "$")) == flags

    check()
    compiled, _ = written([f"-DX={chr(code)}" for code in range(1, 0x2100) if chr(code) not in "\n\r"])
    assert [value.removeprefix("-DX=") for value in compiled if value.startswith("-DX=")] == [
        chr(code) for code in range(1, 0x2100) if chr(code) not in "\n\r"
    ]
