"""Named calls in a submission's C++: library operations, streams, threads, files, network, process control."""

from collections.abc import Iterator

from evaluator.cuda_source.lexer import DEVICE, Code, Kind
from evaluator.findings import Code as Finding
from evaluator.lint.embedded import Piece, calls
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import word_set
from evaluator.lint.operations import computes_in_cpp, method_in_cpp, of_library

_CALLED: dict[Finding, tuple[frozenset[str], str]] = {
    Finding.SECOND_STREAM: (
        frozenset(
            ("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "getStreamFromPool")
        ),
        "makes another stream",
    ),
    Finding.THREADS: (
        word_set("""
            pthread_create fork vfork clone system popen execl execv execve execvp posix_spawn posix_spawnp
            thread jthread async
            """),
        "starts a thread or a process",
    ),
    Finding.FILES: (
        word_set("fopen freopen fdopen ofstream ifstream fstream mmap shm_open memfd_create unlink opendir"),
        "uses files",
    ),
    Finding.NETWORK: (frozenset(("getaddrinfo", "inet_addr", "inet_pton", "gethostbyname")), "uses the network"),
    Finding.INTERNALS: (
        word_set("""
            dlopen dlsym dlmopen ptrace sigaction atexit _exit _Exit quick_exit process_vm_readv process_vm_writev
            PyRun_SimpleString PyRun_String PyEval_GetFrame PyImport_ImportModule PyImport_AddModule
            """),
        "reaches into the process",
    ),
}
_OBJECTS = {
    "thread": Finding.THREADS,
    "jthread": Finding.THREADS,
    "ofstream": Finding.FILES,
    "ifstream": Finding.FILES,
    "fstream": Finding.FILES,
}
"""Classes of `std` whose construction starts threads or opens files."""


def cpp_rules(pieces: list[Piece]) -> Iterator[Remark]:
    """Find calls in host code by name."""
    for piece in pieces:
        yield from _named_calls(piece)
        yield from _library_calls(piece)


def _named_calls(piece: Piece) -> Iterator[Remark]:
    code = piece.code
    for index, token in calls(code):
        for remark_code, (names, does) in _CALLED.items():
            if token.text in names and (token.text not in ("thread", "jthread", "async") or _in_std(code, index)):
                yield Remark(remark_code, piece.line(token), f"{token.text} {does}")
    for index, token in enumerate(code.tokens):
        if token.text in _OBJECTS and _in_std(code, index) and code.kind(index + 1) is Kind.WORD:
            remark_code = _OBJECTS[token.text]
            yield Remark(remark_code, piece.line(token), f"std::{token.text} {_CALLED[remark_code][1]}")
        if token.text == "constructor" and "__attribute__" in [code.text(index - n) for n in range(1, 6)]:
            yield Remark(Finding.INTERNALS, piece.line(token), "a function runs when the library is loaded")


def _in_std(code: Code, index: int) -> bool:
    return code.text(index - 1) == "::" and code.text(index - 2) == "std"


def _library_calls(piece: Piece) -> Iterator[Remark]:
    code = piece.code
    device = [function.body for function in piece.functions if function.qualifiers & DEVICE]
    for index, token in enumerate(code.tokens):
        if token.kind is not Kind.WORD or code.text(index + 1) != "(":
            continue
        before = code.text(index - 1)
        if any(start < index < end for start, end in device):
            continue
        space = code.text(index - 2) if before == "::" else ""
        computing = computes_in_cpp(token.text) and (
            (space in ("at", "torch") and code.text(index - 3) != "::") or space in ("native", "functional", "linalg")
        )
        if computing or of_library(token.text):
            name = f"{space}::{token.text}" if space else token.text
            yield Remark(Finding.LIBRARY_IN_FORWARD, piece.line(token), f"C++ calls {shown(name)}")
        elif before in (".", "->") and method_in_cpp(token.text):
            yield Remark(Finding.LIBRARY_IN_FORWARD, piece.line(token), f"C++ calls a tensor's {token.text}")
