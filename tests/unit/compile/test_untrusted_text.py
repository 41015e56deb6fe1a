"""Readers of compiler and profiler output, which a submission can shape: no reader raises on any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.compile.disassembly import kernel_resources, machine_code
from evaluator.judge.exhibits.ncu import read_page
from evaluator.records import MachineCode

PIECES = (
    *("Function : _Z4gemmPf\n", "/*0010*/  HMMA.1688.F32.TF32 R4, R4, R8, RZ ;\n", "Function : ", "F2F..", "HMMA"),
    *("ptxas info    : Compiling entry function '_Z4reluPf' for 'sm_90a'\n", "ptxas info    : Used 32 registers\n"),
    *("9" * 30, "16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", "bytes smem", "N" * 50, "_ZN"),
    *('"ID","Kernel Name","gpu__time_duration.sum"\n', '"","","ns"\n', '"0","relu","1e999"\n', '"', ",", "nan", "inf"),
    *("main.cpp:3:5: error: expected ';'\n", "main.cpp:", "99999999999999999999:1: error: x\n", "\x00", "\r", "\ud800"),
)


@pytest.mark.parametrize(("read", "kind"), [(kernel_resources, list), (machine_code, MachineCode), (read_page, list)])
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=30).map("".join))
def test_any_text_is_read(read, kind, text):
    assert isinstance(read(text), kind)
