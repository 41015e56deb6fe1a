"""For any text: the emulator's front end and the splitting of builds come to an end, and raise nothing else."""

import contextlib
import random
import signal

import pytest

from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.lexer import CodeTokens, tokens
from evaluator.cuda_source.split import split
from evaluator.emulator.frontend.front_end import front_end
from evaluator.protocol.frames import BuildRequest

VOCABULARY = """
( ) [ ] { } ; , < > <<< >>> -> :: : = * & (void*) 'C' 1 return extern void k a f if const auto operator
__global__ __device__ __shared__ __host__ __align__ __launch_bounds__ alignas noexcept volatile
struct template typename class for decltype using namespace cudaLaunchKernel
"""
WORDS = [*VOCABULARY.split(), "#define\n"]
KERNEL = "__global__ void k(float* x, int n) {{ {0} }}\nvoid run(float* x) {{ k<<<1, 1>>>(x, 1); {1} }}\n"
ODD = {
    "a semicolon is missing": KERNEL.format("int i = 0; if (i >= n) { return } x[i] = 0;", ""),
    "an arrow in an index": KERNEL.format("", "auto s = t.sizes()[t.unsafeGetTensorImpl()->dim() - 1];"),
    "an arrow in an index of a class with device methods": "struct S { __device__ int f() { return 1; } };\n"
    + KERNEL.format("", "a[f(1)->n] = 1;"),
    "shared memory in an index": KERNEL.format("a[__shared__ float z];", ""),
    "an alignment at the end of a bracket": KERNEL.format("(__shared__ alignas) float z;", ""),
    "a launch in an index": KERNEL.format("", "a[k<<<1, 1]; b>>>(x);"),
    "launch bounds at the end of a bracket": "(void __launch_bounds__) __global__ k() {}\n",
}
LIMIT_S = 30.0
"""Time of the processor, not of the clock: other processes may take most of it."""


@contextlib.contextmanager
def in_time():
    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def is_read(text):
    """Return whether both readers of CUDA come to an end in time."""
    try:
        with in_time():
            front_end(BuildRequest(name="odd", cuda_sources=[text]))
        with in_time(), contextlib.suppress(NotSplittable):
            split(text)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_an_odd_text_is_read_to_its_end(text):
    assert is_read(text)


@pytest.mark.parametrize("seed", range(3))
def test_so_is_any_text(seed):
    drawn = random.Random(seed)
    for _ in range(300):
        text = " ".join(drawn.choice(WORDS) for _ in range(drawn.randint(5, 60)))
        assert is_read(text), text


def test_a_place_after_brackets_is_never_one_before():
    code = CodeTokens(tokens("f(a[b)c]{}d)"))
    for index in range(len(code)):
        assert code.after(index) > index
        assert code.after_brackets(index) > index


def test_a_chain_of_types_and_macros_is_followed_to_its_end():
    """And in time: each link was looked for among all others, again and again."""
    count = 5000
    ends = "struct Needed { c10::Half* p; };\nstruct Unused { c10::Half* p; };\n#define NEEDED Needed\n"
    links = "".join(f"struct S{i} {{ {f'S{i - 1}' if i else 'NEEDED'}* p; }};\n" for i in range(count))
    with in_time():
        halves = split(f"{ends}{links}__global__ void k(S{count - 1} a) {{}}\n")
    assert "struct Needed" in halves.device
    assert "struct Unused" not in halves.device
