"""The commonest mistakes with load_inline, each told in the submission's own words; no compiler is asked."""

import pytest

from evaluator.compile.binding_errors import (
    declaration_of,
    defined_names,
    definition_of,
    explained,
    explained_load,
)
from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.protocol.submission_files import joined
from tests.unit.compile.tool_results import error

CUDA = """#include <torch/extension.h>
__global__ void relu_kernel(const float* x, float* y, int n) { }

torch::Tensor relu_cuda(torch::Tensor x,   // the input
                        int64_t threads = 256) {
    TORCH_CHECK(x.is_cuda());
    relu_kernel<<<1, 32>>>(x.data_ptr<float>(), nullptr, 1);
    return relu_inner(x);
}
"""
DECLARATION = "torch::Tensor relu_cuda(torch::Tensor x, int64_t threads);"
SUBMISSION = f'S = """{CUDA}"""\next = load_inline(\n    name="x",\n    functions=["relu_cuda"],\n)\n'
LINE = SUBMISSION[: SUBMISSION.index("functions=")].count("\n") + 1
FAILED = finding(Code.COMPILE_FAILED, "x does not compile: no")


def asked(**changes):
    functions = {name: name for name in changes.pop("functions", ["relu_cuda"])}
    return BuildRequest(name="x", functions=functions, **{"cuda_sources": [CUDA], "cpp_sources": [""], **changes})


def test_a_function_that_is_not_declared_is_given_its_declaration():
    """The card said to mend the line under a caret in a generated file."""
    why = explained(FAILED, asked(), [error("'relu_cuda' was not declared in this scope")], SUBMISSION)
    assert (why.code, why.line) == (Code.BINDING, LINE)
    assert why.message == "functions=[...] names relu_cuda, but cpp_sources does not declare it"
    assert why.next_step == f"Add to cpp_sources: {DECLARATION}"


@pytest.mark.parametrize("after", ["", "\ntorch::Tensor other(torch::Tensor x);"])
def test_a_declaration_without_its_semicolon_is_named(after):
    why = explained(FAILED, asked(cpp_sources=[DECLARATION[:-1] + after]), [], SUBMISSION)
    assert why.message == "a declaration in cpp_sources has no ; at its end"
    assert why.next_step == f"Write in cpp_sources: {DECLARATION}"


def test_a_definition_needs_no_semicolon():
    defined = f"{DECLARATION[:-1]}\n{{ return x; }}"
    assert explained(FAILED, asked(cpp_sources=[defined], cuda_sources=[""]), [], SUBMISSION) == FAILED


def test_a_function_that_nothing_defines_is_held_against_those_that_are():
    why = explained(FAILED, asked(functions=["relu_cud"]), [], SUBMISSION)
    assert "no source defines it" in why.message
    assert why.next_step == "Define relu_cud; or did you mean relu_cuda?"
    assert "in one of the sources" in explained(FAILED, asked(functions=["xyz"]), [], SUBMISSION).next_step


def test_a_kernel_cannot_be_bound():
    why = explained(FAILED, asked(functions=["relu_kernel"]), [], SUBMISSION)
    assert "which Python cannot call" in why.message
    assert "launches the kernel" in why.next_step


@pytest.mark.parametrize("where", ["cpp_sources", "cuda_sources"])
def test_two_modules_are_one_too_many(where):
    source = CUDA + DECLARATION + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"
    why = explained(FAILED, asked(**{where: [source]}), [error("redefinition of 'PyInit_x'")], SUBMISSION)
    assert "another one: PYBIND11_MODULE" in why.message
    assert "Remove one of the two" in why.next_step


def test_two_bodies_are_one_too_many():
    errors = [error("multiple definition of `relu_cuda(at::Tensor, long)'")]
    why = explained(FAILED, asked(cpp_sources=[CUDA]), errors, SUBMISSION)
    assert "both cpp_sources and cuda_sources define" in why.message
    assert why.next_step.endswith(DECLARATION)
    assert explained(FAILED, asked(cpp_sources=[CUDA]), [error("no")], SUBMISSION) == FAILED


@pytest.mark.parametrize(
    "message",
    ["'torch' has not been declared", "\u2018torch\u2019 does not name a type", "name must be a namespace name"],
)
def test_a_header_that_is_missing_is_named(message):
    file = SourceFile(name="a.cu", text="torch::Tensor f(torch::Tensor x) { return x; }")
    request = BuildRequest(name="x", files=[file])
    why = explained(FAILED, request, [error(message, file="a.cu", submission_line=7)], SUBMISSION)
    assert (why.code, why.line) == (Code.BINDING, 7)
    assert "#include <torch/extension.h>" in why.next_step
    having = BuildRequest(name="x", files=[SourceFile(name="a.cu", text="#include <torch/extension.h>\n" + file.text)])
    assert explained(FAILED, having, [error(message, file="a.cu")], SUBMISSION) == FAILED


@pytest.mark.parametrize(
    ("failure", "request_of"),
    [
        (FAILED, asked(cpp_sources=[DECLARATION])),
        (FAILED, asked(cpp_sources=['#include "mine.h"'])),
        (FAILED, asked(functions=["a::b"])),
        (finding(Code.COMPILER_TIMED_OUT, "stopped"), asked()),
        (finding(Code.COMPILE_FAILED, "no", killed=True), asked()),
    ],
    ids=["declared", "own header", "no plain name", "time", "killed"],
)
def test_what_is_no_such_mistake_stays_as_it_is(failure, request_of):
    assert explained(failure, request_of, [error("expected ';'", file="cuda.cu", line=4)], SUBMISSION) is failure


def test_a_call_without_cpp_sources_is_given_them():
    text = "TypeError", "load_inline() missing 1 required positional argument: 'cpp_sources'"
    why = explained_load(*text, [], SUBMISSION)
    assert DECLARATION in why.next_step
    assert why.line == LINE


def test_an_undefined_symbol_is_told_by_both_spellings():
    symbol = "/x/x.so: undefined symbol: _Z9relu_cudaRKN2at6TensorE"
    declared = "torch::Tensor relu_cuda(const torch::Tensor& x);"
    why = explained_load("ImportError", symbol, [declared, CUDA], SUBMISSION)
    assert declared in why.message
    assert why.next_step == f"Declare relu_cuda like its definition: {DECLARATION}"
    why = explained_load("ImportError", symbol, [declared], SUBMISSION)
    assert "no source defines it" in why.message


def test_a_library_that_binds_nothing_is_told_what_to_bind():
    why = explained_load("ImportError", "dynamic module does not define module export function (PyInit_x)", [CUDA], "")
    assert "functions=['relu_cuda']" in why.next_step


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ImportError", "undefined symbol: cublasCreate_v2"),
        ("ImportError", "cannot import name 'x'"),
        ("TypeError", "f() missing 1 required positional argument: 'cpp_sources'"),
        ("RuntimeError", "undefined symbol: _Z1fv"),
    ],
)
def test_other_errors_are_not_explained(kind, message):
    assert explained_load(kind, message, [CUDA], SUBMISSION) is None


@pytest.mark.parametrize(
    ("text", "declaration"),
    [
        ("std::vector<at::Tensor> f(at::Tensor x)\n{", "std::vector<at::Tensor> f(at::Tensor x);"),
        ("}\n#define N 4\nvoid f(float* x, const int n) {", "void f(float* x, const int n);"),
        ("/* f(1) { */ at::Tensor f(const at::Tensor& x) {", "at::Tensor f(const at::Tensor& x);"),
        ('extern "C" int f() {', "int f();"),
    ],
)
def test_definitions_are_found_as_people_write_them(text, declaration):
    assert definition_of("f", [text]).declaration == declaration


@pytest.mark.parametrize("text", ["int f(int x);", "return f(x);", "y = f(x) {", "f(x) {", "", "int f(" + "(" * 9000])
def test_what_is_no_definition_is_not_found(text):
    assert definition_of("f", [text]) is None


def test_a_declaration_is_told_from_a_definition():
    assert declaration_of("f", ["int f(int x);"]).parameters == "int x"
    assert declaration_of("f", ["int f(int x) { }"]) is None
    assert defined_names([CUDA]) == ["relu_cuda"]


def test_a_folder_without_bindings_is_told_the_module_to_write():
    """A folder has no call of load_inline."""
    submission = joined([("submission.toml", 'entry = "main.py"\n'), ("k.cu", CUDA)])
    missing = "dynamic module does not define module export function (PyInit_x)"
    why = explained_load("ImportError", missing, [CUDA], submission)
    assert 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu_cuda", &relu_cuda); }' in why.next_step
