"""Bytes and operations of every shipped problem, derived by hand; what cannot be counted; the least time."""

import hashlib
import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.catalog import find_problem, list_problems
from evaluator.records import ElementFormat, Formats, Precision, SizeName, cases_of
from evaluator.roofline.attained import floor_ms
from evaluator.roofline.least_time import CallWork, peak_of, stated
from evaluator.roofline.work_count import Uncountable, count

F32, BF16, I64, BOOL = 4, 2, 8, 1


def product(rows: int, inner: int, columns: int) -> int:
    """Give the operations of a matrix product: each of rows x columns sums `inner` products."""
    return 2 * rows * inner * columns


def conv(batch: int, ci: int, co: int, height: int, width: int) -> int:
    """Give the operations of a 3 x 3 convolution that keeps the image's size: every place sums 9 products a channel."""
    return 2 * batch * co * height * width * ci * 9


BY_HAND = {
    # Element by element: every input once, every output once.
    "add": CallWork(2 * 16384 * 32768 * F32, 16384 * 32768 * F32, 0),
    "relu": CallWork(4096 * 393216 * F32, 4096 * 393216 * F32, 0),
    "gelu": CallWork(24576 * 32768 * F32, 24576 * 32768 * F32, 0),
    # x and what is propagated back; the output and the gradient of x.
    "relu_backward": CallWork(2 * 4096 * 65536 * F32, 2 * 4096 * 65536 * F32, 0),
    # Rows: the input once, the output once, a weight (and a bias) for each column.
    "softmax": CallWork(49152 * 16384 * F32, 49152 * 16384 * F32, 0),
    "cumsum": CallWork(49152 * 16384 * F32, 49152 * 16384 * F32, 0),
    "layer_norm": CallWork((196608 * 4096 + 2 * 4096) * F32, 196608 * 4096 * F32, 0),
    "rms_norm": CallWork((98304 * 8192 + 8192) * F32, 98304 * 8192 * F32, 0),
    "rms_norm_bf16": CallWork((196608 * 8192 + 8192) * BF16, 196608 * 8192 * BF16, 0),
    # Reductions: an index for each row; a sum for each column of each matrix; one number.
    "argmax": CallWork(49152 * 32768 * F32, 49152 * I64, 0),
    "sum_dim": CallWork(96 * 4096 * 4096 * F32, 96 * 4096 * F32, 0),
    "cross_entropy": CallWork(32768 * 49152 * F32 + 32768 * I64, F32, 0),
    # Products.
    "matmul": CallWork((2048 * 4096 + 4096 * 8192) * F32, 2048 * 8192 * F32, product(2048, 4096, 8192)),
    "linear_relu_divide": CallWork(
        (1024 * 8192 + 8192 * 8192 + 8192) * F32, 1024 * 8192 * F32, product(1024, 8192, 8192)
    ),
    "matmul_gelu_softmax": CallWork(
        (32768 * 2048 + 1024 * 2048 + 1024) * F32, 32768 * 1024 * F32, product(32768, 2048, 1024)
    ),
    "mlp": CallWork(
        (2048 * 1024 + (1024 * 4096 + 4096) + (4096 * 2048 + 2048) + (2048 * 512 + 512)) * F32,
        2048 * 512 * F32,
        product(2048, 1024, 4096) + product(2048, 4096, 2048) + product(2048, 2048, 512),
    ),
    # Projections to queries, keys and values, 512 heads of 64 features in all, and back; the weights are an output too.
    "attention": CallWork(
        (32 * 512 * 1024 + (3 * 1024 * 1024 + 3 * 1024) + (1024 * 1024 + 1024)) * F32 + 32 * 512 * 512 * BOOL,
        (32 * 512 * 1024 + 32 * 16 * 512 * 512) * F32,
        product(32 * 512, 1024, 3 * 1024) + 2 * (32 * 16) * product(512, 64, 512) + product(32 * 512, 1024, 1024),
    ),
    # Rows to fp8 and back, with a scale for each row.
    "quantize_fp8": CallWork(16384 * 7168 * F32, 16384 * 7168 + 16384 * F32, 0),
    "dequantize_fp8": CallWork(16384 * 7168 + 16384 * F32, 16384 * 7168 * F32, 0),
    "matmul_fp8": CallWork(2 * 4096 * 4096 + 2 * 4096 * F32, 4096 * 4096 * F32, product(4096, 4096, 4096)),
    # Queries and keys of 4 x 32 heads, with a scale for each token.
    "attention_scores_int8": CallWork(
        2 * 128 * 1024 * (128 + F32), 128 * 1024 * 1024 * F32, 128 * product(1024, 128, 1024)
    ),
    # Convolutions that keep the image's size.
    "conv2d": CallWork(
        (112 * 64 * 96 * 64 + 128 * 64 * 9) * F32, 112 * 128 * 96 * 64 * F32, conv(112, 64, 128, 96, 64)
    ),
    "conv2d_bias_relu": CallWork(
        (256 * 32 * 128 * 96 + 64 * 32 * 9 + 64) * F32, 256 * 64 * 128 * 96 * F32, conv(256, 32, 64, 128, 96)
    ),
    # Of today's models. Parameter, gradient and two means; the new parameter and means.
    "adam_step": CallWork(4 * 4096 * 14336 * F32, 3 * 4096 * 14336 * F32, 0),
    "cross_entropy_bf16": CallWork(8192 * 128256 * BF16 + 8192 * I64, 8192 * F32, 0),
    "depthwise_conv1d": CallWork(
        (16 * 5120 * 4096 + 5120 * 4 + 5120) * F32, 16 * 5120 * 4096 * F32, 2 * 16 * 5120 * 4096 * 4
    ),
    # The whole table; problem.toml corrects the count to the rows that the bags name.
    "embedding_bag": CallWork(2_000_000 * 128 * F32 + 16384 * 20 * (I64 + F32), 16384 * 128 * F32, 0),
    "gqa_decode": CallWork(
        64 * 128 * (32 + 2 * 8 * 4096) * BF16, 64 * 32 * 128 * BF16, 2 * (64 * 32) * product(1, 128, 4096)
    ),
    "layer_norm_backward": CallWork((2 * 131072 * 1600 + 1600) * F32, (131072 * 1600 + 2 * 1600) * F32, 0),
    # Whole caches; problem.toml corrects the count to the pages that the sequences fill.
    "paged_decode": CallWork(
        16 * 128 * (32 + 2 * 8 * 64 * 16) * BF16 + 16 * (64 + 1) * I64,
        16 * 32 * 128 * BF16,
        2 * (16 * 32) * product(1, 128, 64 * 16),
    ),
    "rms_norm_residual": CallWork((2 * 65536 * 4096 + 4096) * BF16, 2 * 65536 * 4096 * BF16, 0),
    # Heads of queries, keys and values, tables of cosines and sines, positions and slots; queries and two caches.
    "rope_kv_write": CallWork(
        32768 * (32 + 2 * 8) * 128 * BF16 + 2 * 8192 * 64 * F32 + 2 * 32768 * I64,
        (32768 * 32 + 2 * 40960 * 8) * 128 * BF16,
        0,
    ),
    # Two inputs and one output of all channels, two gates of 16 states, and two parameters of each channel.
    "selective_scan": CallWork((2 * 8 * 2048 * (5120 + 16) + 5120 * (16 + 1)) * F32, 8 * 2048 * 5120 * F32, 0),
    # Scores of all pairs; problem.toml corrects the count to those of the window.
    "sliding_window_attention": CallWork(
        2 * (4 + 2) * 1024 * 256 * BF16, 2 * 4 * 1024 * 256 * BF16, 2 * (2 * 4) * product(1024, 256, 1024)
    ),
    # Weights and numbers of eight experts.
    "softmax_topk": CallWork(65536 * 128 * F32, 65536 * 8 * (F32 + I64), 0),
    "swiglu": CallWork(2 * 32768 * 14336 * BF16, 32768 * 14336 * BF16, 0),
    # Two codes in a byte, and a scale for each 128 inputs.
    "w4a16_matmul": CallWork(
        1024 * 4096 * BF16 + 14336 * (4096 // 2) + 14336 * (4096 // 128) * BF16,
        1024 * 14336 * BF16,
        product(1024, 4096, 14336),
    ),
}


STATED = {
    # Each expert's weights once, each token once, and where each group ends.
    "moe_grouped_matmul_bf16": CallWork(
        (8192 * 2048 + 32 * 768 * 2048) * BF16 + 32 * 4, 8192 * 768 * BF16, product(8192, 2048, 768)
    ),
}
"""Of problems whose work depends on values: stated by the author, in formulas."""


def test_every_shipped_problem_is_derived_by_hand():
    assert {problem.name for problem in list_problems().problems} == {*BY_HAND, *STATED}


@pytest.mark.parametrize("name", STATED)
def test_the_authors_formulas_give_what_is_derived_by_hand(name):
    problem = find_problem(name)
    assert isinstance(count(problem, SizeName.FULL), Uncountable)
    assert stated(problem, SizeName.FULL, CallWork(None, None, None)) == STATED[name]


def test_operands_of_few_bits_have_the_peak_of_their_tensor_cores():
    def peak(precision, *forms):
        inputs = {f"x{number}": form for number, form in enumerate(forms)}
        return peak_of(replace(find_problem("matmul"), precision=precision, formats=Formats(inputs=inputs)))

    assert peak(Precision.FP32) == (Precision.FP32, 1.0)
    assert peak(Precision.TF32, ElementFormat.FP8_E4M3, ElementFormat.FP8_E5M2) == (Precision.BF16, 2.0)
    assert peak(Precision.FP32, ElementFormat.INT8) == (Precision.BF16, 2.0)
    assert peak(Precision.BF16, ElementFormat.FP8_E4M3, ElementFormat.NVFP4) == (Precision.BF16, 4.0)


@pytest.mark.parametrize("name", BY_HAND)
def test_the_count_is_what_is_derived_by_hand(name):
    assert count(find_problem(name), SizeName.FULL) == BY_HAND[name]


def counted(source, **changes):
    """Count a reference given as the body of its file; it need not import torch."""
    text = f"import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n{source}"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    problem = replace(find_problem("relu"), source=text, sha256=sha256, cases=cases_of({SizeName.FULL: {}}), **changes)
    return count(problem, SizeName.FULL)


def reference(inputs, forward, init="pass"):
    return counted(
        f"class Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        return {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
        f"def get_init_inputs():\n    return []\n"
    )


def test_nothing_is_allocated():
    """No machine has room for this input (400 PB), nor for this weight (4 TB)."""
    assert reference("torch.randn(10**8, 10**9)", "x.sum()") == CallWork(10**17 * F32, F32, 0)
    linear = reference("torch.randn(2, 10**6)", "self.linear(x)", "self.linear = nn.Linear(10**6, 10**6)")
    assert linear == CallWork((2 * 10**6 + 10**12 + 10**6) * F32, 2 * 10**6 * F32, product(2, 10**6, 10**6))


@pytest.mark.parametrize(
    ("inputs", "forward", "init", "work"),
    [
        # One storage behind two uses; an expanded input; a slice of a storage.
        ("torch.randn(8, 8)", "x @ x", "pass", CallWork(256, 256, product(8, 8, 8))),
        ("torch.randn(1, 8).expand(100, 8)", "x + 1", "pass", CallWork(32, 3200, 0)),
        ("torch.randn(100, 100)[:, :3]", "x + 1", "pass", CallWork(1200, 1200, 0)),
        # Weights: shared ones once, unused ones never, buffers too.
        ("torch.randn(4, 8)", "x * self.w", "self.w = nn.Parameter(torch.randn(8))", CallWork(160, 128, 0)),
        ("torch.randn(4, 8)", "x * 2", "self.w = nn.Parameter(torch.randn(8))", CallWork(128, 128, 0)),
        (
            "torch.randn(4, 8)",
            "x * self.w * self.v",
            "self.w = self.v = nn.Parameter(torch.randn(8))",
            CallWork(160, 128, 0),
        ),
        ("torch.randn(4, 8)", "x * self.b", "self.register_buffer('b', torch.randn(8))", CallWork(160, 128, 0)),
        # Outputs: one that is the input is not written; a slice is as large as it is; the same one twice is one.
        ("torch.randn(4, 8)", "x", "pass", CallWork(0, 0, 0)),
        ("torch.randn(4, 8)", "x.relu_()", "pass", CallWork(128, 0, 0)),
        ("torch.randn(4, 8)", "(x + 1)[:, :2]", "pass", CallWork(128, 32, 0)),
        ("torch.randn(4, 8)", "(lambda y: (y, y))(x + 1)", "pass", CallWork(128, 128, 0)),
        # A shape is no value.
        ("torch.randn(4, 8)", "torch.ones_like(x)", "pass", CallWork(0, 128, 0)),
        # Fused operations that other devices hide from the counter.
        (
            "torch.randn(2, 3, 16, 8)",
            "F.scaled_dot_product_attention(x, x, x)",
            "pass",
            CallWork(3072, 3072, 2 * 6 * product(16, 8, 16)),
        ),
    ],
)
def test_storages_are_counted_once_and_only_where_they_are_used(inputs, forward, init, work):
    assert reference(inputs, forward, init) == work


def test_a_gather_is_counted_as_if_it_read_all():
    """The known limit: a floor made of this would refuse honest kernels, so a verdict may not rest on it alone."""
    work = reference("torch.randint(0, 1000, (5,))", "self.e(x)", "self.e = nn.Embedding(1000, 16)")
    assert work == CallWork(5 * I64 + 1000 * 16 * F32, 5 * 16 * F32, 0)


def test_an_lstm_is_counted():
    """Four gates, two products each: the fused CPU operation would hide all of it."""
    lstm = reference("torch.randn(7, 3, 10)", "self.lstm(x)[0]", "self.lstm = nn.LSTM(10, 20)")
    assert isinstance(lstm, CallWork)
    assert lstm.flop == 7 * (product(3, 10, 80) + product(3, 20, 80))


@pytest.mark.parametrize(
    ("forward", "reason"),
    [("x[x > 0]", "nonzero"), ("x if x.sum().item() > 0 else -x", "item"), ("undefined", "NameError")],
)
def test_what_needs_values_is_uncountable(forward, reason):
    found = reference("torch.randn(4, 8)", forward)
    assert isinstance(found, Uncountable)
    assert reason in found.reason


def test_inputs_by_name_and_gradients_of_weights_are_counted():
    work = counted(
        "class Model(nn.Module):\n"
        "    def __init__(self, n):\n        super().__init__()\n        self.linear = nn.Linear(n, n, bias=False)\n"
        "    def forward(self, a):\n        return self.linear(a)\n"
        "def get_inputs():\n    return {'a': torch.randn(4, 8)}\n"
        "def get_init_inputs():\n    return {'n': 8}\n",
        backward=True,
    )
    # Read: the input, the weight, what is propagated back. Written: the output and the gradients of input and weight.
    assert work == CallWork((32 + 64 + 32) * F32, (32 + 32 + 64) * F32, 3 * product(4, 8, 8))


def test_the_floor_by_hand():
    """4.8 TB/s: 6 GiB are read and 6 GiB less 60 MiB of cache written in 2.67 ms; an output in the cache is free."""
    h200 = {"bandwidth_bytes_per_s": 4.8e12, "l2_bytes": 60 << 20}
    both = (6 << 30) + (6 << 30) - (60 << 20)
    assert floor_ms(read_bytes=6 << 30, written_bytes=6 << 30, **h200) == pytest.approx(both / 4.8e9)
    assert floor_ms(read_bytes=4_800_000, written_bytes=60 << 20, **h200) == pytest.approx(0.001)
    assert floor_ms(read_bytes=0, written_bytes=0, **h200) == 0.0


@given(read=st.integers(0, 1 << 50), written=st.integers(0, 1 << 50), cache=st.integers(0, 1 << 30))
def test_the_floor_grows_with_what_is_moved_and_shrinks_with_what_helps(read, written, cache):
    def at(read_bytes, written_bytes, bandwidth=1e12, l2=cache):
        return floor_ms(
            read_bytes=read_bytes, written_bytes=written_bytes, bandwidth_bytes_per_s=bandwidth, l2_bytes=l2
        )

    one = at(read, written)
    assert read / 1e9 <= one * (1 + 1e-12)
    assert one <= (read + written) / 1e9 * (1 + 1e-12)
    assert at(read + 1024, written) >= one
    assert at(read, written + 1024) >= one
    assert at(read, written, l2=cache + 1024) <= one
    assert at(read, written, bandwidth=2e12) == pytest.approx(one / 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"read_bytes": -1},
        {"written_bytes": -1},
        {"l2_bytes": -1},
        {"bandwidth_bytes_per_s": 0.0},
        {"bandwidth_bytes_per_s": float("nan")},
        {"bandwidth_bytes_per_s": float("inf")},
    ],
)
def test_what_is_no_size_and_no_bandwidth_is_refused(wrong):
    right = {"read_bytes": 1, "written_bytes": 1, "bandwidth_bytes_per_s": 1e12, "l2_bytes": 1}
    with pytest.raises(ValueError, match=r"not negative|no bandwidth"):
        floor_ms(**right | wrong)


@pytest.mark.skipif("WARPGRADE_KERNELBENCH" not in os.environ, reason="WARPGRADE_KERNELBENCH names no checkout")
@pytest.mark.filterwarnings("ignore::UserWarning")  # theirs, about their own models
@pytest.mark.parametrize("level", [1, 2])
def test_every_file_of_kernelbench_is_counted_without_its_tensors(level):
    """Their inputs are gigabytes each, their weights too: the process grows by what PyTorch imports, and no more."""
    problems = list_problems(Path(os.environ["WARPGRADE_KERNELBENCH"])).problems
    chosen = [problem for problem in problems if problem.level == level]
    assert len(chosen) == 100
    count(find_problem("relu"), SizeName.FULL)  # What the meta device imports is there from now on.
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {problem.name: count(problem, SizeName.FULL) for problem in chosen}
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    uncountable = {name: work.reason for name, work in found.items() if isinstance(work, Uncountable)}
    assert uncountable == {}
    assert min(work.read_bytes for work in found.values()) > 0
    assert min(work.written_bytes for work in found.values()) > 0
    assert sum(work.read_bytes for work in found.values()) > 32 << 30  # 317 GiB in level 1, 43 in level 2
    assert grown_kib < 1 << 20
