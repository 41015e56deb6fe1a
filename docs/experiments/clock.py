"""What the sealed clock says, against clocks inside of one process, and against submissions that cheat on it.

    python docs/experiments/clock.py [FILE.json]

Four tables: ten kernels from 2 us to 10 ms, by three clocks; 25 % of planted extra work; planted cheats; and how long
the GPU takes to write the inputs while a runner's work waits for them, on one stream or on several.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from evaluator.devices.gpu import choose, show_only
from evaluator.grade_options import GradeOptions
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import AS_REFERENCE, ReferenceTimer
from evaluator.judge.setup.seed_book import SeedBook, fresh_seed
from evaluator.judge.setup.terms import Terms
from evaluator.judge.trial import timing_loop
from evaluator.judge.verdict import judge
from evaluator.progress import Silent, Stopwatch
from evaluator.records import DeviceKind, Mode, Precision, Problem, SizeName, ToleranceOverride

CLAMP = """
import torch
from torch import nn
n = 1
class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.0)
def get_inputs():
    return [torch.randn(n)]
def get_init_inputs():
    return []
"""
MATMUL = """
import torch
from torch import nn
n = 1
class Model(nn.Module):
    def forward(self, x, y):
        return x @ y
def get_inputs():
    return [torch.randn(n, n), torch.randn(n, n)]
def get_init_inputs():
    return []
"""
KERNELS = [
    ("clamp", CLAMP, 1 << 12),
    ("clamp", CLAMP, 1 << 20),
    ("clamp", CLAMP, 1 << 23),
    ("clamp", CLAMP, 1 << 25),
    ("clamp", CLAMP, 1 << 27),
    ("clamp", CLAMP, 1 << 29),
    ("clamp", CLAMP, 3 << 29),
    ("matmul", MATMUL, 2048),
    ("matmul", MATMUL, 4096),
    ("matmul", MATMUL, 6400),
]

# Clamps, then keeps every thread busy for `rounds` dependent multiplications that nobody needs. Few enough elements for
# memory and launches not to count: then 25 % more rounds are 25 % more time.
BUSY = """
import torch
from torch import nn
source = r'''
extern "C" __global__ void busy(const float* x, float* y, long long n, int rounds) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = x[i], other = value;
  for (int round = 0; round < rounds; ++round) other = fmaf(other, 0.999f, 0.001f);
  y[i] = fmaxf(value, 0.0f) + (other == 12345.0f ? 1.0f : 0.0f);
}
'''
kernel = torch.cuda._compile_kernel(source, "busy")
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), (x, y, x.numel(), ROUNDS))
        return y
"""

HONEST = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.0)
"""
INSIDE = """
import gc, torch
from torch import nn
from evaluator.runner.device_arena import Gate
from evaluator.devices import driver, page
def gate():
    return next(thing for thing in gc.get_objects() if isinstance(thing, Gate))
def word(at):
    g = gate()
    return int.from_bytes(g._page[at:at + 4], "little")
"""
CHEATS = {
    "honest": HONEST,
    "done written early": INSIDE
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        g = gate()
        driver.stream_write(0, g._address + page.DONE, word(page.DONE) + 1)
        return torch.clamp(x, min=0.0)
""",
    "on a side stream that nobody joins": """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
    def forward(self, x):
        y = torch.empty_like(x)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            torch.clamp(x, min=0.0, out=y)
        return y
""",
    "go written by the runner": INSIDE
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        g = gate()
        g._page[page.GO:page.GO + 4] = (word(page.DONE) + 1).to_bytes(4, "little")
        return torch.clamp(x, min=0.0)
""",
    "work on a stream that does not wait for go": """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
    def forward(self, x):
        with torch.cuda.stream(self.side):
            y = torch.clamp(x, min=0.0)
        torch.cuda.current_stream().wait_stream(self.side)
        return y
""",
    "a spinner that starts when inputs appear": """
import torch
from torch import nn
source = r'''
extern "C" __global__ void spin(const volatile float* x, long long n, float* seen) {
  float first = x[n - 1];
  long long start = clock64();
  while (x[n - 1] == first && clock64() - start < 40000000LL) { }
  seen[0] = x[n - 1];
}
'''
kernel = torch.cuda._compile_kernel(source, "spin")
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.seen = torch.zeros(1, device="cuda")
    def forward(self, x):
        with torch.cuda.stream(self.side):
            kernel((1, 1, 1), (1, 1, 1), (x, x.numel(), self.seen))
            y = torch.clamp(x, min=0.0)
        torch.cuda.current_stream().wait_stream(self.side)
        return y
""",
    "a copy engine that polls the inputs": """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.host = torch.empty(1, pin_memory=True)
    def forward(self, x):
        with torch.cuda.stream(self.side):
            for _ in range(400):
                self.host.copy_(x[-1:], non_blocking=True)
            y = torch.clamp(x, min=0.0)
        torch.cuda.current_stream().wait_stream(self.side)
        return y
""",
    "inputs kept in L2 by an access policy": """
import ctypes, torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.runtime = ctypes.CDLL(None)
        self.runtime.cudaDeviceSetLimit(6, ctypes.c_size_t(30 << 20))
    def forward(self, x):
        class Window(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("ratio", ctypes.c_float),
                        ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("pad", ctypes.c_byte * 32)]
        window = Window(x.data_ptr(), min(x.numel() * 4, 30 << 20), 1.0, 2, 1)
        self.runtime.cudaStreamSetAttribute(ctypes.c_void_p(0), 1, ctypes.byref(window))
        return torch.clamp(x, min=0.0)
""",
}

JOINED = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.streams = [torch.cuda.Stream() for _ in range(COUNT)]
    def forward(self, x):
        y, here = torch.empty_like(x), torch.cuda.current_stream()
        for stream, source, target in zip(self.streams, x.chunk(COUNT), y.chunk(COUNT)):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                torch.clamp(source, min=0.0, out=target)
            here.wait_stream(stream)
        return y
"""
WAITING = {
    "one stream": HONEST,
    **{f"{count} joined": JOINED.replace("COUNT", str(count)) for count in (1, 2, 3, 8)},
    **{
        name: CHEATS[name]
        for name in ("a spinner that starts when inputs appear", "a copy engine that polls the inputs")
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path)
    parser.add_argument("--only", choices=["kernels", "extra", "cheats", "prepared"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1 << 20, 1 << 25, 3 << 29], help="of the cheats")
    parser.add_argument("--cheats", nargs="+", choices=[*CHEATS], default=[*CHEATS], help="those to be graded")
    arguments = parser.parse_args()
    gpu = choose(None)
    os.environ.update(show_only(gpu.uuid))
    told: dict[str, object] = {"gpu": gpu.name, "driver": gpu.driver, "torch": torch.__version__}
    for name, table in (("kernels", kernels), ("extra", extra), ("cheats", cheats), ("prepared", prepared)):
        if arguments.only in (None, name):
            rows: list[dict] = []
            told[name] = rows
            for row in table(gpu, arguments.sizes, arguments.cheats):
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
                if arguments.target:
                    arguments.target.write_text(json.dumps(told, indent=1))
    print(json.dumps(told, indent=1))


def problem(text: str, n: int) -> Problem:
    return Problem(
        name="clock",
        title="clock",
        level=1,
        description="",
        origin="experiment",
        path="reference.py",
        source=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        sizes={SizeName.FULL: {"n": n}, SizeName.SMALL: {"n": n}},
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(),
        split={"x": 0} if text is CLAMP else {},
    )


def workshop(text: str, n: int, source: str, gpu) -> GradeContext:
    terms = Terms(
        problem(text, n),
        GradeOptions(device=DeviceKind.CUDA, size=SizeName.FULL, build_timeout_s=300.0),
        gpu,
        threads=8,
    )
    return GradeContext(terms, source, SeedBook(None))


def kernels(gpu, *_) -> Iterator[dict]:
    for name, text, n in KERNELS:
        row: dict[str, object] = {"kernel": name, "n": n}
        try:
            with workshop(text, n, HONEST, gpu) as context:
                context.have_device()
                with ReferenceTimer(context) as timer:
                    before = timer.before()
            samples, empty = before.samples, before.overhead
            inside = in_process(text, n)
            row |= {"sealed_ms": samples.median_ms, "sealed_iqr_ms": samples.iqr_ms, **inside}
            row |= {
                "lag_ms": empty.lag_ms,
                "overhead_ms": empty.taken_off_ms,
                "overhead_iqr_ms": empty.spread_ms,
                "void": samples.void_calls,
            }
            row["sealed/events"] = samples.median_ms / inside["events_ms"]
            row["sealed-events_us"] = (samples.median_ms - inside["events_ms"]) * 1e3
        except Exception as error:  # noqa: BLE001 - it is the answer
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        yield row
        torch.cuda.empty_cache()


def in_process(text: str, n: int, submission: str = "ModelNew = None") -> dict[str, float]:
    """Time the reference as others do: events in this process, L2 overwritten, inputs that change."""
    import triton.testing

    module = ModuleType("reference")
    exec(text, module.__dict__)
    module.n = n
    exec(submission, module.__dict__)
    model = (module.ModelNew or module.Model)().cuda()
    with torch.device("cuda"):
        sets = [module.get_inputs() for _ in range(2 if n > 1 << 28 else 4)]
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for index in range(60):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.fill_(index & 255)
        start.record()
        model(*sets[index % len(sets)])
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return {
        "events_ms": statistics.median(times[10:]),
        "do_bench_ms": triton.testing.do_bench(lambda: model(*sets[0]), return_mode="median"),
    }


def side(n: int, source: str, gpu) -> dict:
    """Grade one submission of the clamp, whole."""
    started = time.monotonic()
    with workshop(CLAMP, n, source, gpu) as context, ReferenceTimer(context) as timer:
        outcome = judge(context, timer, Stopwatch(Silent()))
    told: dict[str, object] = {"status": outcome.status.value, "grade_s": round(time.monotonic() - started, 1)}
    if outcome.reason is not None:
        told["reason"] = f"{outcome.reason.code} {outcome.reason.message}"[:200]
    if outcome.timing is not None:
        told |= {
            "reference_ms": outcome.timing.reference_median_ms,
            "submission_ms": outcome.timing.submission_median_ms,
            "iqr_ms": outcome.timing.submission.iqr_ms,
            "resolution_ms": outcome.timing.resolution_ms,
            "void": outcome.timing.submission.void_calls,
            "overhead_ms": outcome.timing.reference_before.overhead_ms,
        }
    return told


def extra(gpu, *_) -> Iterator[dict]:
    for n, rounds in ((1 << 18, 12_000), (1 << 18, 48_000), (1 << 18, 240_000), (1 << 18, 1_200_000)):
        plain = side(n, BUSY.replace("ROUNDS", str(rounds)), gpu)
        more = side(n, BUSY.replace("ROUNDS", str(rounds * 5 // 4)), gpu)
        true = [in_process(CLAMP, n, BUSY.replace("ROUNDS", str(count))) for count in (rounds, rounds * 5 // 4)]
        row = {
            "n": n,
            "rounds": rounds,
            "plain": plain,
            "more": more,
            "events_ms": [each["events_ms"] for each in true],
        }
        row["events_ratio"] = true[1]["events_ms"] / true[0]["events_ms"]
        if "submission_ms" in plain and "submission_ms" in more:
            row["ratio"] = more["submission_ms"] / plain["submission_ms"]
        yield row


def cheats(gpu, sizes, names) -> Iterator[dict]:
    for n in sizes:
        for name in names:
            yield {"n": n, "cheat": name, **side(n, CHEATS[name], gpu)}


def prepared(gpu, sizes, _) -> Iterator[dict]:
    for n in sizes:
        with workshop(CLAMP, n, HONEST, gpu) as context:
            context.have_device()
            with context.runner(AS_REFERENCE) as place:
                place.load()
                place.construct()
                trial_runner = place.trial_runner()
                empty = timing_loop.overhead(trial_runner, 10.0)
                yield {"n": n, "submission": "the reference, after empty calls", **calls_of(trial_runner, empty)}
            for name, source in WAITING.items():
                with context.runner(source) as place:
                    place.load()
                    place.construct()
                    yield {"n": n, "submission": name, **calls_of(place.trial_runner(), empty)}


def calls_of(trial_runner, empty: timing_loop.Overhead) -> dict[str, object]:
    """Make a dozen calls; say what the clock saw of each."""
    trials = [trial_runner.run(index, fresh_seed(), timeout_s=10.0, quick=True) for index in range(12)]
    told: dict[str, object] = {"empty": empty._asdict()}
    told |= {name: [getattr(each, name) for each in trials] for name in ("prepared_ms", "elapsed_ms", "lag_ms")}
    return told | {"faults": sorted({each.fault.finding.code for each in trials if each.fault})}


if __name__ == "__main__":
    main()
