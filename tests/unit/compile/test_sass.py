"""Disassemblies: honest fp32 has no instruction of reduced precision, and each form of fewer bits has its own."""

from pathlib import Path

import pytest

import tests
from evaluator.compile.disassembly import Meaning, machine_code, meaning, together
from evaluator.records import InstructionKind, MachineCode, NumberFormat

RECORDED = Path(tests.__file__).parent / "data" / "sass"
TENSOR_CORE, ARITHMETIC, CONVERSION = InstructionKind


def recorded(name):
    return machine_code((RECORDED / f"{name}.sass").read_text())


def found_in(name):
    """Give the instructions of a recording, by kernel."""
    return {
        (kernel.name, kernel.other_dtype): [
            (each.name, each.kind, each.format, each.count) for each in kernel.instructions
        ]
        for kernel in recorded(name).reduced
    }


def test_an_honest_kernel_has_none_although_its_text_names_half_precision():
    text = (RECORDED / "honest.sass").read_text()
    assert "HFMA2.MMA" in text
    assert "HADD2.F32" in text
    assert recorded("honest") == MachineCode(kernels=2)


def test_a_matrix_product_in_tf32_is_named_with_its_kernel():
    assert found_in("tensor_cores") == {
        ("gemm_tf32", False): [("HMMA.1684.F32.TF32", TENSOR_CORE, NumberFormat.TF32, 4)]
    }


def test_half_precision_between_fp32_inputs_and_outputs_is_found():
    assert found_in("half") == {
        ("hidden_half", False): [
            ("HFMA2.MMA", ARITHMETIC, NumberFormat.FP16, 1),
            ("F2FP.F16.F32.PACK_AB", CONVERSION, NumberFormat.FP16, 1),
        ],
        ("hidden_bf16", False): [("F2F.BF16.F32", CONVERSION, NumberFormat.BF16, 1)],
        ("scale", True): [("HMUL2", ARITHMETIC, NumberFormat.FP16, 1)],
    }


def test_an_instance_for_half_is_excused_only_beside_one_without_such_instructions():
    text = (RECORDED / "half.sass").read_text()
    alone = text[: text.index("\t\tFunction : _Z5scaleIfE")]
    assert {kernel.name: kernel.other_dtype for kernel in machine_code(alone).reduced}["scale"] is False
    forged = text.replace("FMUL R7, R0, R7 ", "HMUL2 R7, R0, R7")
    assert {(each.name, each.other_dtype) for each in machine_code(forged).reduced} >= {("scale", False)}


REDUCED = [
    ("HMMA.16816.F32", "R4, R4, R14, RZ", TENSOR_CORE, NumberFormat.FP16),
    ("HMMA.16816.F32.BF16", "R4, R4, R14, RZ", TENSOR_CORE, NumberFormat.BF16),
    ("HMMA.SP.16832.F32", "R8, R4, R8, RZ, R0, 0x0", TENSOR_CORE, NumberFormat.FP16),
    ("HMMA.1688.F16", "R8, R4, R8, RZ", TENSOR_CORE, NumberFormat.FP16),
    ("HGMMA.64x8x8.F32.TF32", "R24, gdesc[UR8], R24, gsb0", TENSOR_CORE, NumberFormat.TF32),
    ("HGMMA.64x8x16.F32.BF16", "R24, gdesc[UR8], R24, gsb0", TENSOR_CORE, NumberFormat.BF16),
    ("HGMMA.64x8x16.F32", "R24, gdesc[UR8], R24, gsb0", TENSOR_CORE, NumberFormat.FP16),
    ("QGMMA.64x8x32.F32.E4M3.E4M3", "R24, gdesc[UR8], R24, gsb0", TENSOR_CORE, NumberFormat.FP8),
    ("QMMA.16832.F32.E4M3.E4M3", "R4, R4.ROW, R8.COL, RZ", TENSOR_CORE, NumberFormat.FP8),
    ("OMMA.SF.16864.F32.E2M1.E2M1.E8", "R4, R4, R8, RZ, R0, R11, URZ", TENSOR_CORE, NumberFormat.FP4),
    ("IMMA.16816.S8.S8", "R4, R4.ROW, R8.COL, RZ", TENSOR_CORE, NumberFormat.INTEGER),
    ("IGMMA.64x8x32.S8.S8", "R24, gdesc[UR8], R24, gsb0", TENSOR_CORE, NumberFormat.INTEGER),
    ("BMMA.168256.AND.POPC", "R8, R4.ROW, R8.COL, RZ", TENSOR_CORE, NumberFormat.INTEGER),
    ("UTCHMMA", "gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", TENSOR_CORE, NumberFormat.UNSTATED),
    ("UTCQMMA", "gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", TENSOR_CORE, NumberFormat.FP8),
    ("UTCIMMA", "gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", TENSOR_CORE, NumberFormat.INTEGER),
    ("HFMA2", "R0, R2.H0_H0, 6.103515625e-05, 6.103515625e-05, R3.H0_H0", ARITHMETIC, NumberFormat.FP16),
    ("HFMA2.MMA.BF16_V2", "R0, R2, R5, -RZ", ARITHMETIC, NumberFormat.BF16),
    ("HADD2", "R2, R2, c[0x0] [0x168].H0_H0", ARITHMETIC, NumberFormat.FP16),
    ("HADD2.BF16_V2", "R2, R2.H0_H0, -R3.H0_H0", ARITHMETIC, NumberFormat.BF16),
    ("HMUL2.BF16_V2", "R2, R2.H0_H0, R3.H0_H0", ARITHMETIC, NumberFormat.BF16),
    ("MUFU.TANH.F16", "R5, R0", ARITHMETIC, NumberFormat.FP16),
    ("ATOM.E.ADD.F16x2.RN.STRONG.GPU", "P0, RZ, desc[UR4][R2.64], R5", ARITHMETIC, NumberFormat.FP16),
    ("IDP.4A.S8.S8", "R5, R2, R3, R4", ARITHMETIC, NumberFormat.INTEGER),
    ("F2F.F16.F32", "R0, R2", CONVERSION, NumberFormat.FP16),
    ("F2FP.PACK_AB", "R0, RZ, R0", CONVERSION, NumberFormat.FP16),
    ("F2FP.BF16.PACK_AB", "R0, RZ, R0", CONVERSION, NumberFormat.BF16),
    ("F2FP.TF32.F32.PACK_B", "R7, R7", CONVERSION, NumberFormat.TF32),
    ("F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", "R7, R0, R7, RZ", CONVERSION, NumberFormat.FP8),
    ("F2FP.F16.E4M3.UNPACK_B", "R11, R6", CONVERSION, NumberFormat.FP8),
    ("I2F.F16", "R0, R2", CONVERSION, NumberFormat.FP16),
]


@pytest.mark.parametrize(("name", "operands", "kind", "form"), REDUCED, ids=[each[0] for each in REDUCED])
def test_an_instruction_of_reduced_precision_is_known_on_each_architecture(name, operands, kind, form):
    assert meaning(name, operands) == Meaning(kind, form)
    line = f"        /*0240*/              @!P0 {name} {operands} ;    /* 0x000000000a04723c */\n"
    (kernel,) = machine_code(f"\t\tFunction : kernel\n{line}").reduced
    assert [(each.name, each.count) for each in kernel.instructions] == [(name, 1)]


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("HFMA2.MMA", "R4, -RZ, RZ, 0, 2.384185791015625e-07"),
        ("HFMA2", "R4, -RZ, RZ, 2.140625, -23600"),
        ("HFMA2.BF16_V2", "R0, -RZ.H0_H0, RZ.H0_H0, -R9.H0_H0"),
        ("HADD2.F32", "R0, -RZ, R2.H0_H0"),
        ("HADD2.F32", "R0, R3.H0_H0, R2.H0_H0"),
        ("HADD2.F32", "R0, R2.reuse.H0_H0, -RZ.H0_H0"),
        ("HADD2", "R0, -R2.H0_H0, -RZ.H0_H0"),
        ("HMNMX2", "R0, R2.H0_H0, R3.H0_H0, !PT"),
        ("HSETP2.GEU.AND", "P1, PT, |R2|.H0_H0, 8.5e-06, 8.5e-06, PT"),
        ("DMMA.8x8x4", "R4, R2, R6, RZ"),
        ("F2F.F64.F32", "R2, R4"),
        ("F2F.F32.F16", "R2, R4"),
        ("I2FP.F32.S32", "R2, R4"),
        ("MUFU.TANH", "R2, R4"),
        ("ATOM.E.ADD.F32.FTZ.RN.STRONG.GPU", "P0, RZ, desc[UR4][R2.64], R5"),
        ("ATOM.E.MAX.F16x2.RN", "P0, RZ, desc[UR4][R2.64], R5"),
    ],
)
def test_an_instruction_of_honest_fp32_is_none(name, operands):
    assert meaning(name, operands) is None


def test_a_card_has_few_kernels_and_short_names_however_many_there_are():
    line = "/*0010*/  HMMA.1688.F32.TF32 R4, R4, R8, RZ ;\n"
    conversion = "/*0010*/  F2F.F16.F32 R4, R4 ;\n"
    many = "".join(f"Function : {'k' * 300}{number}\n{conversion}" for number in range(40))
    code = machine_code(f"{many}Function : gemm\n{line}")
    both = together([code, code])
    assert (code.kernels, both.kernels) == (41, 82)
    # The names are the same once they are cut.
    assert [(kernel.name[:4], kernel.instructions[0].count) for kernel in code.reduced] == [("gemm", 1), ("kkkk", 40)]
    distinct = "".join(f"Function : k{number}\n{conversion * (number + 1)}" for number in range(40))
    cut = together([machine_code(distinct), machine_code(f"Function : gemm\n{line}")])
    assert [kernel.name for kernel in cut.reduced[:2]] == ["gemm", "k39"]
    assert (len(cut.reduced), cut.other_reduced) == (16, 25)


def test_a_library_that_was_not_looked_at_makes_the_whole_unknown():
    both = together([MachineCode(kernels=2), MachineCode(not_looked_at="cuobjdump not found")])
    assert both == MachineCode(kernels=2, not_looked_at="cuobjdump not found")


def test_a_library_of_too_many_functions_is_not_looked_at():
    many = "".join(f"Function : k{number}\n" for number in range(65_537))
    assert machine_code(many) == MachineCode(not_looked_at="the library has more than 65536 functions")
