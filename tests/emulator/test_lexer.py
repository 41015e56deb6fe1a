"""The lexer: nothing is lost, and what looks alike is told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.cuda_source.lexer import CodeTokens, Kind, flat, parse_define, tokens

PIECES = st.sampled_from(
    [
        *("<<<", ">>>", ">>", "<", ">", "->", "::", "...", "#", "\\\n", "\n", " ", "\t", "\r\n", "'", '"', "//", "/*"),
        *("*/", 'R"(', ')"', 'R"x(', ')x"', "1'000", "0x1p-3", "1e+5f", ".5", "a", "operator", "define", "(", ")", "{"),
        *("}", ";", "é", "\u2028", "\f", "u8", "L'x'", '"\\""'),
    ]
)
TEXT = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))


@given(TEXT)
def test_the_tokens_are_the_text(text):
    found = tokens(text)
    assert "".join(token.text for token in found) == text
    assert [token.place for token in found] == list(range(len(found)))
    line = 1
    for token in found:
        assert token.line == line
        line += token.text.count("\n")


def code(text):
    return [token.text for token in CodeTokens(tokens(text)).tokens]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<1,2>>>(x)", ["k", "<<<", "1", ",", "2", ">", ">", ">", "(", "x", ")"]),
        ("A<B<C<int>>> x;", ["A", "<", "B", "<", "C", "<", "int", ">", ">", ">", "x", ";"]),
        ("a << b <<= c", ["a", "<<", "b", "<<=", "c"]),
        ("std::operator<<<T>(s)", ["std", "::", "operator", "<<", "<", "T", ">", "(", "s", ")"]),
        ("x->y", ["x", "->", "y"]),
        ("1'000'000 + 'a' + 0x1p-3 + 1e+5f", ["1'000'000", "+", "'a'", "+", "0x1p-3", "+", "1e+5f"]),
        (
            'R"(k<<<1>>>(")" // )" y',
            [
                'R"(k<<<1>>>(")"',
            ],
        ),
        ('R"d(a)"b)d" u8"x" L\'c\' "\\"" y', ['R"d(a)"b)d"', 'u8"x"', "L'c'", '"\\""', "y"]),
        ("a // <<< \\\n still >>>\nb /* <<<\n */ c", ["a", "b", "c"]),
        ('#include <x.h>\n#define A "/*" \\\n  k<<<1>>>()\nb', ["b"]),
        ("  /* c */ # pragma unroll\nb # c", ["b", "#", "c"]),
    ],
)
def test_what_the_compiler_sees(text, expected):
    assert code(text) == expected


def test_a_directive_with_a_comment_ends_where_the_comment_ends():
    found = tokens("#define A 1 /* two\nlines */ + 2\nb")
    assert [token.kind for token in found] == [Kind.DIRECTIVE, Kind.SPACE, Kind.WORD]
    assert found[-1].line == 3


@pytest.mark.parametrize(
    ("directive", "name", "parameters", "body"),
    [
        ("#define A", "A", set(), ""),
        ("# define A (x)", "A", set(), " (x)"),
        ("#define F(x, y) x##y", "F", {"x", "y"}, " x##y"),
        ("#define F(K, ...) K(__VA_ARGS__)", "F", {"K", "__VA_ARGS__"}, " K(__VA_ARGS__)"),
        ("#define \\\n A 1", "A", set(), " 1"),
    ],
)
def test_macros(directive, name, parameters, body):
    macro = parse_define(directive)
    assert (macro.name, set(macro.parameters), macro.body) == (name, parameters, body)
    assert macro.header + macro.body == directive


@pytest.mark.parametrize("directive", ["#include <a>", "#undef A", "#ifdef A", "#pragma once"])
def test_other_directives_define_nothing(directive):
    assert parse_define(directive) is None


FUNCTIONS = """
template <typename T, int N = 3>
__global__ void __launch_bounds__(256, 2) kernel(const T* x, int n) { if (n) { while (n) { } } }
__device__ __forceinline__ float helper(float x) noexcept(true) { return max(x, 0.f); }
auto trailing(int x) -> std::vector<int> { return {}; }
struct Op {
  Op(int a) : a_(a), b_{a} {}
  __device__ float operator()(float x) const { return x; }
  operator float() const { return 1; }
  __device__ inline operator const std::vector<int>*() const { return 0; }
  __device__ bool operator<(const Op& x) const { return false; }
};
float declared(float);
namespace n { void ns::qualified() {} }
"""


def test_functions_are_found_with_the_words_before_them():
    found = CodeTokens(tokens(FUNCTIONS)).functions()
    assert [function.name for function in found] == [
        *("kernel", "helper", "trailing", "Op", *["operator"] * 4, "qualified"),
    ]
    assert {"__global__", "template"} <= found[0].qualifiers
    assert {"__device__", "__forceinline__"} <= found[1].qualifiers
    assert "__device__" in found[4].qualifiers
    assert not found[2].qualifiers & {"__device__", "__global__"}


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("HERE", False),
        ("namespace { HERE }", False),
        ("namespace a::b { void f() {} HERE }", False),
        ('extern "C" { HERE }', False),
        ("void f() { HERE }", True),
        ("void f() { for (;;) { g(); } HERE }", True),
        ("template <class T> struct S { operator T*() { HERE } };", True),
        ("namespace { auto f = [] { HERE }; }", True),
    ],
)
def test_functions_are_told_from_namespaces(text, inside):
    found = CodeTokens(tokens(text))
    assert found.in_function([token.text for token in found.tokens].index("HERE")) is inside


def test_a_block_opened_by_both_branches_of_an_if_does_not_lose_the_rest():
    found = CodeTokens(
        tokens("void f() {\n#ifdef A\n if (a) {\n#else\n if (b) {\n#endif\n }\n}\nvoid g() {}")
    ).functions()
    assert [function.name for function in found] == ["f", "g"]


def test_template_arguments_are_told_from_comparisons():
    text = CodeTokens(tokens("f(a < b, Foo<x, Bar<y>>::z, {1, 2}, g(1, 2), h<3>(4))"))
    parts = text.split(2, len(text) - 1)
    assert [flat(text.tokens[a:b]) for a, b in parts] == ["a<b", "Foo<x,Bar<y>>::z", "{1,2}", "g(1,2)", "h<3>(4)"]


def around(text, index):
    """Look for the innermost block as a reader would: the nearest `{` before that is not closed before."""
    for opener in range(index - 1, -1, -1):
        if text.text(opener) == "{" and text.partner.get(opener, index + 1) > index:
            return opener
    return None


@given(st.lists(st.sampled_from([*"(){}[];", " namespace ", " f "]), max_size=30).map("".join))
def test_blocks_are_those_around_a_token(text):
    found = CodeTokens(tokens(text))
    for index in range(len(found)):
        block = around(found, index)
        names = {found.text(i) for i in range(max((block or 0) - 4, 0), block or 0)}
        assert found.in_function(index) == (block is not None and "namespace" not in names)


@given(st.lists(st.sampled_from("(){}[]"), max_size=30).map("".join))
def test_brackets_pair_with_the_last_one_of_their_kind(text):
    found = CodeTokens(tokens(text))
    stack, partner = [], {}
    for index, bracket in enumerate(text):
        if bracket in "({[":
            stack.append(index)
        else:
            same = [depth for depth, start in enumerate(stack) if text[start] + bracket in ("()", "{}", "[]")]
            if same:
                start = stack[same[-1]]
                partner[index], partner[start] = start, index
                del stack[same[-1] :]
    assert found.partner == partner


def test_a_raw_string_without_an_end_is_one_token():
    assert [token.text for token in tokens('x R"a(b)" c R"a(')] == ["x", " ", 'R"a(b)" c R"a(']


def test_much_text_of_one_kind_is_read_in_time():
    """Where a look-up goes through all that was read before, this takes minutes and more."""
    pieces = ("(" * 40_000 + "]" * 40_000, 'R"(' * 30_000, "{ __shared__ float a[1]; " * 3000)
    found = [CodeTokens(tokens(piece)) for piece in pieces]
    assert [len(each) for each in found] == [80_000, 1, 24_000]
    assert all(found[2].in_function(index) for index in (1, 12_000, 23_999))
