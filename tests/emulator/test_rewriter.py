"""The rewriter: what becomes of launches, shared memory and the names of the device, and that nothing else changes."""

import ast
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.cuda_source.lexer import CodeTokens, Kind, tokens
from evaluator.emulator.frontend.rewriter import marks_returns, rewrite_host, rewrite_unit
from evaluator.submission.read import Submission, read_submission

ROOT = Path(__file__).parent.parent.parent
PLAIN = "__global__ void k(float* p, int n) {} "
WAITING = "__global__ void k(float* p, int n) { __syncthreads(); } "


def rewritten(text):
    return rewrite_unit([text])[0]


def rest(text, prefix):
    """Rewrite `prefix` and `text`, and give what became of `text`."""
    result = rewritten(prefix + text)
    assert result.startswith(prefix)
    return result[len(prefix) :]


def call(kernel, name=None):
    return f"[&](auto&&... emu_a) {{ {kernel}(emu_a...); }}"


@pytest.mark.parametrize(
    ("launch", "name", "kernel", "config", "arguments"),
    [
        ("k<<<1, 32>>>(p, n);", "k", "k", "1, 32", ", p, n"),
        ("k<<<g, b, 4 * sizeof(float), stream>>>();", "k", "k", "g, b, 4 * sizeof(float), stream", ""),
        ("k<T, 256><<<g, b>>>(p);", "k<T,256>", "k<T,256>", "g, b", ", p"),
        ("(k<T>)<<<g, b>>>(p);", "k<T>", "(k<T>)", "g, b", ", p"),
        ("a::b::k<<<g, b>>>(p);", "a::b::k", "a::b::k", "g, b", ", p"),
        ("::k<<<g, b>>>(p);", "::k", "::k", "g, b", ", p"),
        ("A<B>::template k<T><<<g, b>>>(p);", "A<B>::template k<T>", "A<B>::template k<T>", "g, b", ", p"),
        ("self->k<<<g, b>>>(p);", "self->k", "self->k", "g, b", ", p"),
        ("k[i]<<<g, b>>>(p);", "k[i]", "k[i]", "g, b", ", p"),
        ("pick(a, b)<<<g, b>>>(p);", "pick(a,b)", "pick(a,b)", "g, b", ", p"),
        ("k<X<Y<int>>><<<g, b>>>(p);", "k<X<Y<int>>>", "k<X<Y<int>>>", "g, b", ", p"),
        ("k<(1 > 0)><<<g, b>>>(p);", "k<(1>0)>", "k<(1>0)>", "g, b", ", p"),
        ("k<<<A<B<C<int>>>::n, b>>>(p);", "k", "k", "A<B<C<int>>>::n, b", ", p"),
        ("k<<<g, A<B<C<int>>>()>>>(p);", "k", "k", "g, A<B<C<int>>>()", ", p"),
        ("k<<<n < 5 ? 1 : 2, b>>>(p);", "k", "k", "n < 5 ? 1 : 2, b", ", p"),
        ("k<<<a < b, c>>>(p);", "k", "k", "a < b, c", ", p"),
        ("k<<<dim3(1, 2), {1, 2}>>>(f<A, B>(1), [=](int i) { return i; });", "k", "k", "dim3(1, 2), {1, 2}",
         ", f<A, B>(1), [=](int i) { return i; }"),
    ],
)  # fmt: skip
def test_launches(launch, name, kernel, config, arguments):
    tail = f"emu::Config({config}), {call(kernel)}{arguments});"
    assert re.sub(r"Config\( +", "Config(", rewritten(launch)) == f'emu::launch<true>("{name}", 1, {tail}'


@pytest.mark.parametrize("before", ["if (a) ", "else ", "return ", "x; ", "do ", "for (;;) ", "{ ", "case 1: "])
@pytest.mark.parametrize("kernel", ["k", "(k)", "::k", "n::k<T>"])
def test_a_launch_begins_where_its_kernel_begins(before, kernel):
    result = rewritten(f"{before}{kernel}<<<1, 2>>>(p);")
    assert result.startswith(f"{before}emu::launch<true>(")
    assert call(kernel) in result


def test_a_launch_over_many_lines_keeps_its_lines():
    launch = "k<float,\n  2><<<g, // blocks\n b>>>\n (\n p, /* two\n */ n\n);"
    result = rest(launch, PLAIN)
    assert result.count("\n") == launch.count("\n")
    assert result.splitlines()[-3:] == launch.splitlines()[-3:]
    assert 'emu::launch<false>("k<float,2>", 2, ' in result
    assert "// blocks\n" in result


def test_a_launch_inside_of_a_macro_call_and_of_another_launch():
    result = rest("AT_DISPATCH(t, [&] { k<<<1, 2>>>(q, [&] { k<<<3, 4>>>(r, 5); }); });", PLAIN)
    inner = f'emu::launch<false>("k", 1, emu::Config(3, 4), {call("k")}, r, 5)'
    outer = f'emu::launch<false>("k", 1, emu::Config(1, 2), {call("k")}, q, [&] {{ {inner}; }})'
    assert result == f"AT_DISPATCH(t, [&] {{ {outer}; }});"


def test_a_launch_in_a_macro_takes_name_and_line_from_its_use():
    result = rewritten("#define RUN(K, T, ...) \\\n  K<T><<<g, b>>>(__VA_ARGS__)\nint x;")
    assert result == (
        '#define RUN(K, T, ...) \\\n  emu::launch<true>(#K "<" #T ">", __LINE__, emu::Config(g, b), '
        f"{call('K<T>')} __VA_OPT__(,) __VA_ARGS__)\nint x;"
    )


def test_a_macro_that_begins_with_an_operator_is_no_directive():
    assert rewritten("#define NAME(x) #x, x.is_cuda()") == "#define NAME(x) #x, x.is_cpu()"
    nested = "#define A " * 3000
    assert rewritten(nested) == nested


def test_a_list_in_braces_gets_the_type_of_its_parameter():
    launch = "void f() { k<<<1, 2>>>(p, {1, 2}); }"
    assert rest(launch, PLAIN).endswith(", p, emu::Parameter<1, decltype(&k)>{1, 2}); }")


def test_null_pointers_keep_their_type():
    prefix = "__global__ void k(const float* a, int b, float* c) {} "
    assert rest("k<<<1, 1>>>(0, 0, NULL);", prefix).endswith(f"{call('k')}, nullptr, 0, nullptr);")
    assert rest("k<<<1, 1>>>(0 + 0, b, c);", prefix).endswith(f"{call('k')}, 0 + 0, b, c);")


@pytest.mark.parametrize(
    "text",
    [
        '"k<<<1, 2>>>(x)"', "'\"'; // k<<<1, 2>>>(x)", "/* __shared__ float x; */", 'R"(is_cuda kCUDA k<<<1>>>(x))"',
        "std::operator<<<char>(out, c);", "A<B<C<int>>> x(y);", "out << a; x >>= 1;", "bool is_cuda = true;",
        "#include <is_cuda.h>",
        "#if kCUDA",
    ],
)  # fmt: skip
def test_what_only_looks_like_cuda_stays(text):
    assert rewritten(text) == text


LAUNCHED = "__global__ void k() {} template<int N> __global__ void t() { __syncthreads(); } "


@pytest.mark.parametrize(
    ("kernel", "name", "waits"),
    [
        *((text, "k", "false") for text in ("(void*)k", "(const void *)k", "reinterpret_cast<void*>(k)", "k")),
        *((text, "k", "false") for text in ("reinterpret_cast<const void*>(&k)", "(void*)&k", "(const void*)(k)")),
        ("(void*)t<4>", "t<4>", "true"),
        ("unknown", "unknown", "true"),
    ],
)
def test_a_function_launched_through_the_runtime_keeps_its_type(kernel, name, waits):
    result = rewritten(f"{LAUNCHED}void f() {{ cudaLaunchKernel({kernel}, grid, block, args, 0, stream); }}")
    match = re.search(r'emu::launch_function<(\w+)>\("(.*)", 1, *(.*), grid, block, args, 0, stream\)', result)
    assert match[1] == waits
    assert match[2] == name
    assert match[3].strip("(&)") == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("void* p = (void*)k;", 'void* p = (void*)emu::kernel_pointer<false>("k", k);'),
        ("a((const void*)&k, 1);", 'a((const void*)emu::kernel_pointer<false>("k", &k), 1);'),
        ("p = (void*)(t<4>);", 'p = (void*)(emu::kernel_pointer<true>("t<4>", t<4>));'),
        ("p = reinterpret_cast<void*>(k);", 'p = reinterpret_cast<void*>(emu::kernel_pointer<false>("k", k));'),
        ("p = (void*)q;", "p = (void*)q;"),
        ("p = (void*)k();", "p = (void*)k();"),
        ("p = (float*)k;", "p = (float*)k;"),
    ],
)
def test_a_kernel_that_is_cast_can_be_launched(text, expected):
    assert rewritten(LAUNCHED + text).endswith(expected)


def shared(declaration):
    before, after = "__global__ void k() {", "}"
    result = rewritten(before + declaration + after)
    assert result.startswith(before)
    assert result.endswith(after)
    return re.sub(r"\s+", " ", result[len(before) : -len(after)]).strip()


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("__shared__ float x;", "float (&x) = emu::shared<float>(0);"),
        ("__shared__ float x[N][M + 1];", "float (&x)[N][M + 1] = emu::shared<float[N][M+1]>(0);"),
        ("__shared__ float x[N > 4 ? N : 4];", "float (&x)[N > 4 ? N : 4] = emu::shared<float[(N>4?N:4)]>(0);"),
        ("__shared__ T a[N], b;", "T (&a)[N] = emu::shared<T[N]>(0), (&b) = emu::shared<T>(1);"),
        ("static __shared__ int x[4];", "int (&x)[4] = emu::shared<int[4]>(0);"),
        ("__shared__ static int x[4];", "int (&x)[4] = emu::shared<int[4]>(0);"),
        ("volatile __shared__ int x[4];", "volatile int (&x)[4] = emu::shared<volatile int[4]>(0);"),
        ("__shared__ volatile int x[4];", "volatile int (&x)[4] = emu::shared<volatile int[4]>(0);"),
        ("float __shared__ x[4];", "float (&x)[4] = emu::shared<float[4]>(0);"),
        ("const unsigned long __shared__ x;", "const unsigned long (&x) = emu::shared<const unsigned long>(0);"),
        ("__shared__ float *p, *q[4];", "float *(&p) = emu::shared<float*>(0), *(&q)[4] = emu::shared<float*[4]>(1);"),
        ("__shared__ float (*p)[32];", "float (*(&p))[32] = emu::shared<float(*)[32]>(0);"),
        ("__shared__ A<B<int>, 3> x[2];", "A<B<int>, 3> (&x)[2] = emu::shared<A<B<int>,3>[2]>(0);"),
        ("__shared__ typename X<T>::Y x;", "typename X<T>::Y (&x) = emu::shared<typename X<T>::Y>(0);"),
        ("__shared__ ::a::B x[sizeof(int)];", "::a::B (&x)[sizeof(int)] = emu::shared<::a::B[sizeof(int)]>(0);"),
        ("__shared__ decltype(f(1)) x;", "decltype(f(1)) (&x) = emu::shared<decltype(f(1))>(0);"),
        ("__shared__ struct P { int a; } s, t[2];",
         "struct P { int a; }; P (&s) = emu::shared<P>(0), (&t)[2] = emu::shared<P[2]>(1);"),
        ("__shared__ struct P s;", "struct P (&s) = emu::shared<struct P>(0);"),
        ("__shared__ __align__(16) float x[5];",
         "struct alignas(16) emu_aligned_x { float x[5]; }; float (&x)[5] = emu::shared<emu_aligned_x>(0).x;"),
        ("alignas(8) __shared__ char x[5];",
         "struct alignas(8) emu_aligned_x { char x[5]; }; char (&x)[5] = emu::shared<emu_aligned_x>(0).x;"),
        ("extern __shared__ float s[];", "{ extern float s[]; } float (*s) = emu::dynamic_shared<float>();"),
        ("__shared__ extern float s[];", "{ extern float s[]; } float (*s) = emu::dynamic_shared<float>();"),
        ("extern volatile __shared__ int s[];",
         "{ extern volatile int s[]; } volatile int (*s) = emu::dynamic_shared<volatile int>();"),
        ("extern __shared__ __align__(sizeof(T)) unsigned char s[];",
         "{ extern unsigned char s[]; } unsigned char (*s) = emu::dynamic_shared<unsigned char>();"),
        ("extern __shared__ float s[][32];",
         "{ extern float s[][32]; } float (*s)[32] = emu::dynamic_shared<float[32]>();"),
        ("extern __shared__ float s;", "{ extern float s; } float (&s) = *emu::dynamic_shared<float>();"),
    ],
)  # fmt: skip
def test_shared_declarations(declaration, expected):
    assert shared(declaration) == expected


def test_an_anonymous_record_gets_a_name():
    name = re.search(r"union (\w+) \{", shared("__shared__ union { int i; float f; } u;"))[1]
    assert shared("__shared__ union { int i; float f; } u;").endswith(f"; }}; {name} (&u) = emu::shared<{name}>(0);")


def test_an_initializer_is_an_error_as_for_nvcc():
    assert "static_assert(sizeof(int) == 0, " in shared("__shared__ float x = 1;")
    assert "static_assert" not in shared("__shared__ float x; x = 1;")


def test_every_site_has_a_number_of_its_own_over_all_files():
    texts = rewrite_unit(["__device__ void f() { __shared__ int a, b; }", "__device__ void g() { __shared__ int c; }"])
    assert re.findall(r"shared<int>\((\d+)\)", "".join(texts)) == ["0", "1", "2"]


def test_shared_memory_in_a_macro_is_numbered_by_its_expansions():
    result = rewritten("#define TILE(T, name) __shared__ T name[32]")
    assert re.search(r"T \(&name\)\[32\] = emu::shared<T\[32\]>\(1048576 \+ __COUNTER__\)$", result)


def test_shared_memory_of_a_file_is_declared_where_it_is_used():
    text = """extern __shared__ float s[];
__shared__ int count,
  other;
__global__ void a() { s[0] = 1; }
__global__ void b() { count = 2; }
__device__ int c() { return count; }
__device__ int d(int count) { return count; }
void host() { int s; }
"""
    lines = rewritten(text).split("\n")
    assert [line.strip() for line in lines[:3]] == ["", "", ""]
    assert "float (*s) = emu::dynamic_shared<float>();" in lines[3]
    assert re.findall(r"\(&count\) = emu::shared<int>\((\d+)\)", lines[4]) == ["1"]
    assert re.findall(r"\(&count\) = emu::shared<int>\((\d+)\)", lines[5]) == ["1"]
    assert lines[6:] == text.split("\n")[6:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.is_cuda()", "x.is_cpu()"),
        ("x->is_cuda()", "x->is_cpu()"),
        ("x.device().is_cuda()", "x.device().is_cpu()"),
        ("x.type().is_cuda()", "x.device().is_cpu()"),
        ("x.is_cpu()", "x.is_meta()"),
        ("cudaSetDevice(x.get_device())", "cudaSetDevice(x.is_meta())"),
        ("cudaSetDevice(x.device().index())", "cudaSetDevice(x.device().is_meta())"),
        ("get_device(); x.index(); device.index()", "get_device(); x.index(); device.index()"),
        ("x.cuda()", "x.cpu()"),
        ("torch::Device(torch::kCUDA, i)", "torch::Device(torch::kCPU )"),
        ("c10::Device d{c10::DeviceType::CUDA, f(1, 2)};", "c10::Device d{c10::DeviceType::CPU  };"),
        ("f(torch::kCUDA, i)", "f(torch::kCPU, i)"),
        ("x.device().str()", 'x.device().str().replace(0, 3, "cuda:0").substr()'),
        ("x.device().type() == at::kCUDA", "x.device().type() == at::kCPU"),
        ("x.device().type() != c10::DeviceType::CUDA", "x.device().type() != c10::DeviceType::CPU"),
        ("x.device() == at::kCPU", "x.device() == at::kMeta"),
        ("torch::kCPU == x.device()", "torch::kMeta == x.device()"),
        ("case at::kCUDA: case at::kCPU:", "case at::kCPU: case at::kMeta:"),
        ("x.device().type() == torch::DeviceType::CPU", "x.device().type() == torch::DeviceType::Meta"),
        ("x.to(torch::kCPU)", "x.to(torch::kCPU)"),
        ('torch::Device("cuda:0")', 'torch::Device("cpu")'),
        ('print("cuda")', 'print("cuda")'),
        ("at::cuda::getCurrentCUDAStream()", "at::cuda::getCurrentCUDAStream()"),
        ("TORCH_LIBRARY_IMPL(ns, CUDA, m) {}", "TORCH_LIBRARY_IMPL(ns, CPU, m) {}"),
        ('#define CHECK(x) TORCH_CHECK(x.is_cuda(), "cuda")', '#define CHECK(x) TORCH_CHECK(x.is_cpu(), "cuda")'),
    ],
)  # fmt: skip
def test_the_device_is_the_host(text, expected):
    assert rewritten(text) == rewrite_host(text) == expected


def test_host_files_have_no_launches():
    assert rewrite_host("k<<<1, 2>>>(x); __shared__ float y;") == "k<<<1, 2>>>(x); __shared__ float y;"


KERNEL = "__global__ void k(int n) { if (n) return; auto f = [&](int i) { return; }; return g(n); }"


def test_returns_of_a_kernel_are_marked():
    device = " __device__ int g(int n) { return n; }"
    assert rewritten(KERNEL + device) == (
        "__global__ void k(int n) { if (n) return emu::early_return(); auto f = [&](int i) { return; }; "
        "return g(n), emu::early_return(); }" + device
    )


def test_no_return_is_marked_where_a_macro_may_return():
    macro = "#define CHECK(x) if (!(x)) return\n"
    assert not marks_returns([KERNEL, macro])
    assert marks_returns([KERNEL])
    assert rewritten(macro + KERNEL) == macro + KERNEL


PLAIN_PIECES = st.sampled_from(
    [
        *("int a = 1;", "a < b", "a >> b", "x = A<B<C<int>>>();", "f(a)", "{", "}", "(", ")", ";", ","),
        *("\n", "// text", "/* a\nb */", '"a\\"b"', "'c'", "#define F(x) x + 1", "#if 1", "#endif"),
        *("template <typename T>", "void f() { return; }", "std::cout << a << b;", "operator<<<T>(a);"),
        *("alignas(16) int x;", "extern int a[];"),
        *('R"(a\nb)"', "\\\n", "auto g = [&](int i) { return i; };", "__global__ void k(int n) { n = 1; }", " "),
    ]
)  # fmt: skip
CUDA_PIECES = st.sampled_from(
    [
        *("k<<<1, 2>>>(a);", "k<T>\n<<<g,\nb>>>(\nx,\n y);", "<<<", ">>>", "__shared__", "__shared__ float x[2];"),
        *("extern", "__global__ void k() {", "}", "__shared__ union {", "cudaLaunchKernel((void*)"),
        *("k", "#define R k<<<1, 1>>>(x)", "__align__(16)", "struct {", "x.is_cuda()"),
        *("return", "(", ")", "[", "<", ">", "::", ";", "\n", ","),
    ]
)  # fmt: skip


@given(st.lists(PLAIN_PIECES, max_size=30).map("\n".join))
def test_text_without_cuda_is_left_alone(text):
    assert rewritten(text) == text


@given(st.lists(st.one_of(PLAIN_PIECES, CUDA_PIECES), max_size=30).map(" ".join))
def test_lines_stay_whatever_the_text(text):
    result = rewritten(text)
    assert result.count("\n") == text.count("\n")
    assert rewrite_host(text).count("\n") == text.count("\n")


def cuda_sources(python):
    constants = (node.value for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str) and "__global__" in value]


def seeds():
    folder = os.environ.get("WARPGRADE_SEEDS")
    answers = [read_submission(path) for path in sorted(Path(folder).glob("*.txt"))] if folder else []
    return [answer.source for answer in answers if isinstance(answer, Submission)]


def assert_all_is_found(source):
    result = rewritten(source)
    launches = sum(token.text == "<<<" for token in CodeTokens(tokens(source)).tokens)
    declared = sum(token.text == "__shared__" for token in CodeTokens(tokens(source)).tokens)
    assert launches >= 1
    assert result.count("emu::launch<") == launches
    assert result.count("emu::shared<") + result.count("emu::dynamic_shared<") >= declared
    left = [token.text for token in CodeTokens(tokens(result)).tokens if token.kind is not Kind.STRING]
    assert not {"<<<", "__shared__", "is_cuda", "kCUDA"} & set(left)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("solutions/*/cuda_*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_solution_is_rewritten_whole(path):
    sources = cuda_sources(path.read_text(encoding="utf-8"))
    assert sources
    for source in sources:
        assert_all_is_found(source)


@pytest.mark.skipif(not seeds(), reason="WARPGRADE_SEEDS names no folder of real answers")
def test_every_real_answer_is_rewritten_whole():
    sources = [source for python in seeds() for source in cuda_sources(python)]
    assert sources
    for source in sources:
        assert_all_is_found(source)
