"""Bytes and FLOP of a call before any grade, counted in another process, and the least time on a known GPU."""

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.devices.gpu import Gpu
from evaluator.judge.exhibits import gpu_peaks
from evaluator.records import Mode, Precision, RooflineOverride, SizeName, cases_of
from evaluator.report.problem_work import ProblemWork, work_document, work_text
from evaluator.roofline import least_time
from evaluator.roofline.least_time import CallWork, Roofs, roofs_of, stated, work_of
from evaluator.roofline.work_count import count_all
from evaluator.sandbox.question import NoAnswer, Question
from evaluator.sizes.found_sizes import with_sizes

H100 = Gpu(0, "GPU-1", "NVIDIA H100", (9, 0), 80 << 30, "570", ())
ROOFS = Roofs(H100, 4e12, 50_000_000, 60e12)
PRODUCT = CallWork(read_bytes=200_000_000, written_bytes=100_000_000, flop=6_000_000_000)
MAP = CallWork(read_bytes=4_000_000_000, written_bytes=4_000_000_000, flop=0)
TINY = CallWork(read_bytes=0, written_bytes=1000, flop=0)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))


def text(*works, roofs=None, unknown=None):
    return work_text(ProblemWork(dict(zip(SizeName, works, strict=False)), unknown or {}, roofs, Precision.FP32))


def test_every_size_is_count_all():
    found = count_all(find_problem("matmul", None))
    constants = find_problem("matmul", None).cases[SizeName.AWKWARD].axes
    work = found.known[SizeName.AWKWARD]
    m, k, n = (constants[name] for name in ("rows", "inner", "columns"))
    assert work == CallWork(4 * (m * k + k * n), 4 * m * n, 2 * m * k * n)
    assert set(found.known) == set(SizeName)
    assert found.unknown == {}


@pytest.mark.parametrize(("mode", "has_product"), [(Mode.TRAIN, True), (Mode.EVAL, False)])
def test_the_problems_mode_is_count_all(mode, has_product):
    problem = find_problem("matmul", None)
    in_training = problem.source.replace("return a @ b", "return a @ b if self.training else a + 1")
    assert in_training != problem.source
    found = count_all(replace(problem, source=in_training, mode=mode)).known[SizeName.SMALL]
    assert (found.flop > 0) is has_product


def test_a_reference_that_needs_values_is_a_reason():
    problem = find_problem("relu", None)
    needs_values = problem.source.replace("torch.relu(x)", "torch.relu(x) if x.sum().item() else x")
    assert needs_values != problem.source
    found = count_all(replace(problem, source=needs_values))
    assert found.known == {}
    assert "meta" in found.unknown[SizeName.FULL]
    assert "full: not counted: " in text(unknown=found.unknown)


@pytest.mark.slow
def test_a_process_counts_once(monkeypatch):
    relu = find_problem("relu", None)
    first = work_of(relu)
    assert first.known[SizeName.SMALL] == CallWork(1 << 20, 1 << 20, 0)
    monkeypatch.setattr(Question, "ask_in_new_sandbox", lambda *_: pytest.fail("counted again"))
    assert work_of(relu) == first


@pytest.mark.slow
def test_no_module_of_the_current_folder_is_imported(tmp_path, monkeypatch):
    """The author of a submission may be able to write to the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("torch", "msgspec", "evaluator"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\nraise ImportError\n")
    relu = find_problem("relu", None)
    assert work_of(relu).unknown == {}
    bare = replace(
        relu, origin="kernelbench", cases=cases_of({SizeName.FULL: relu.cases[SizeName.FULL].axes}), sha256="0" * 64
    )
    assert SizeName.SMALL in with_sizes(bare, (SizeName.SMALL,)).cases
    assert not (tmp_path / "imported").exists()


def test_a_failed_process_is_a_reason_and_is_tried_again(monkeypatch):
    for reason in ("the process took longer than 300 s", "the process ended with SIGKILL"):
        monkeypatch.setattr(Question, "ask_in_new_sandbox", lambda *_, reason=reason: NoAnswer(reason))
        work = work_of(find_problem("relu", None))
        assert work.known == {}
        assert work.unknown[SizeName.FULL] == f"the count failed: {reason}"


def test_what_the_author_states_replaces_what_was_count_all():
    relu = find_problem("relu", None)
    said = replace(relu, roofline=RooflineOverride(reason="half", read_bytes="2 * batch_size * dim", flop="batch_size"))
    assert stated(said, SizeName.SMALL, CallWork(1 << 20, 1 << 20, 0)) == CallWork(2 * 64 * 4096, 1 << 20, 64)
    assert stated(relu, SizeName.SMALL, MAP) is MAP


def test_the_least_time_is_the_larger_of_two():
    product, relu = (least_time.least_time(work, ROOFS) for work in (PRODUCT, MAP))
    assert product.memory_ms == pytest.approx((200e6 + 50e6) / 4e12 * 1e3)  # L2 keeps 50 MB of the output.
    assert product.compute_ms == product.least_ms == pytest.approx(0.1)
    assert relu.compute_ms is None
    assert relu.least_ms == pytest.approx((8e9 - 50e6) / 4e12 * 1e3)
    assert least_time.least_time(MAP, ROOFS._replace(bandwidth_bytes_per_s=None)).least_ms is None


def test_without_a_gpu_there_are_no_times(monkeypatch):
    monkeypatch.setattr(least_time, "gpus", list)
    assert roofs_of(find_problem("relu", None)) is None
    shown = text(PRODUCT, MAP)
    assert "200 MB" in shown
    assert "6.00 GFLOP" in shown
    assert "least" not in shown
    document = work_document(ProblemWork({SizeName.FULL: MAP}, {}, None, Precision.FP32))
    assert document["gpu"] is None
    assert set(document["sizes"]["full"]) == {"read_bytes", "written_bytes", "flop"}


def test_with_a_measured_gpu_each_size_has_its_least_time():
    shown = text(PRODUCT, MAP, TINY, roofs=ROOFS)
    assert "100 µs, operations" in shown
    assert "1.99 ms, memory" in shown
    assert "none: L2 holds all" in shown
    assert "The least time is that of NVIDIA H100.\n" in shown
    assert "limits of this GPU: 4.00 TB/s and 60.0 TFLOP/s in fp32." in shown
    assert max(map(len, shown.splitlines())) <= 80
    document = work_document(ProblemWork({SizeName.FULL: PRODUCT}, {}, ROOFS, Precision.FP32))
    assert document["sizes"]["full"]["least_ms"] == pytest.approx(0.1)


def test_without_a_count_no_least_time_is_announced():
    assert text(roofs=ROOFS, unknown={SizeName.FULL: "the count failed"}).splitlines()[1:] == [
        "  full: not counted: the count failed"
    ]


def test_no_time_is_invented_for_a_gpu_that_no_grade_has_measured():
    unmeasured = Roofs(H100, None, 0, None)
    assert "first grade on NVIDIA H100 measures" in text(PRODUCT, roofs=unmeasured)
    assert "µs" not in text(PRODUCT, roofs=unmeasured)
    assert "memory alone" in text(PRODUCT, roofs=ROOFS._replace(peak_flop_per_s=None))


def test_what_a_grade_has_measured_is_known(monkeypatch):
    monkeypatch.setattr(least_time, "gpus", lambda: [H100])
    relu = find_problem("relu", None)
    assert roofs_of(relu) == Roofs(H100, None, 0, None)
    monkeypatch.setattr(gpu_peaks, "measured_bandwidth", lambda _: 3e12)
    monkeypatch.setattr(gpu_peaks, "measured_peak", lambda _: 50e12)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("P", (), {"L2_cache_size": 7}))
    assert gpu_peaks.bandwidth(H100, b"cubin") == 3e12
    assert gpu_peaks.peak(H100, Precision.FP32) == 50e12
    assert roofs_of(relu) == Roofs(H100, 3e12, 7, 50e12)
    assert roofs_of(replace(relu, precision=Precision.BF16)).peak_flop_per_s is None


def test_the_key_of_a_bandwidth_names_an_existing_source():
    assert Path(least_time.__file__).parents[1].joinpath("judge/native/read.cu").exists()
