"""A sweep as a table, a document and a picture."""

from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from evaluator.devices.gpu import Gpu
from evaluator.records import CaseResult, Status
from evaluator.report.sweep import sweep_document, sweep_lines, sweep_of, sweep_svg
from evaluator.roofline.least_time import CallWork, Roofs
from evaluator.text import symbols_for
from tests import cards

ROOFS = Roofs(Gpu(0, "gpu-0", "a GPU", (9, 0), 1 << 37, "1", ()), 4e12, 50_000_000, None)
ASCII = symbols_for("ascii")


def case(value, median_ms=None, reference_ms=None, status=Status.CORRECT, code=None):
    speedup = None if median_ms is None else reference_ms / median_ms
    low, high = (None, None) if speedup is None else (speedup * 0.99, speedup * 1.01)
    return CaseResult(
        f"n-{value}", {"n": value, "m": 4}, 1.0, status, code, None, speedup, low, high, median_ms, reference_ms
    )


def swept(*results, roofs=ROOFS, nbytes=4_000_000):
    work = {result.name: CallWork(nbytes * result.axes["n"], nbytes * result.axes["n"], 0) for result in results}
    return sweep_of(replace(cards.card(), cases=list(results)), "n", work, roofs)


TIMED = swept(case(64, 0.25, 0.5), case(16, 0.0625, 0.125), case(256, status=Status.WRONG_RESULT, code="C405"))


def test_rows_ascend_and_a_failed_value_has_its_code():
    lines = sweep_lines(TIMED, ASCII, 100)
    assert [line.split()[0] for line in lines] == ["n", "16", "64", "256"]
    assert "2.00 x (1.98 to 2.02)" in lines[2]
    assert "2.05 TB/s" in lines[2]
    assert lines[2].endswith("46 %"), "a call has 50 MB of its inputs in the L2 cache"
    assert "wrong result C405" in lines[3]


def test_without_times_there_is_a_result_for_each_value():
    lines = sweep_lines(swept(case(1), case(2, status=None)), ASCII, 80)
    assert [line.split() for line in lines] == [["n", "result"], ["1", "correct"], ["2", "left", "out"]]


def test_without_a_gpu_there_is_no_roofline():
    sweep = swept(case(16, 0.0625, 0.125), roofs=None)
    assert "roofline" not in sweep_lines(sweep, ASCII, 100)[0]
    assert sweep_document(sweep)["points"][0]["least_ms"] is None


def test_the_document_has_units_and_the_rates_of_both_sides():
    document = sweep_document(TIMED)
    point = document["points"][0]
    assert (document["axis"], document["peak_bytes_per_s"], point["value"]) == ("n", 4e12, 16)
    assert point["submission_bytes_per_s"] == pytest.approx(2 * point["reference_bytes_per_s"])
    assert document["points"][2]["code"] == "C405"


def test_the_picture_is_well_formed_and_escapes_its_title():
    root = ElementTree.fromstring(sweep_svg(TIMED, "<script> & \x1b[2J"))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"time of a call", "bandwidth", "roofline", "submission", "reference", "n"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 8


@pytest.mark.parametrize("results", [(case(0),), (case(3, 1.0, 1.0),), (case(0, 1.0, 1.0), case(1, 1.0, 1.0))])
def test_a_picture_of_few_points_or_none_is_drawn(results):
    assert sweep_svg(swept(*results), "t").startswith(b"<?xml")
