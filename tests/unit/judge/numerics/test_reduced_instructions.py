"""The finding about instructions of fewer bits: for each precision its own, and never for an honest kernel."""

import pytest

from evaluator.findings import Code
from evaluator.judge.exhibits.reduced_instructions import about_machine_code, name_format, with_library_kernels
from evaluator.records import (
    ElementFormat,
    Formats,
    InstructionCount,
    InstructionKind,
    KernelInstructions,
    KernelUse,
    MachineCode,
    NumberFormat,
    OutputFormat,
    Precision,
    Profiling,
)
from tests.unit.compile.test_sass import recorded


def code_in(form, *, other_dtype=False):
    counts = [InstructionCount("HMMA", InstructionKind.TENSOR_CORE, form, 4)]
    return MachineCode(kernels=1, reduced=[KernelInstructions("gemm", counts, other_dtype)])


ACCUSED = {
    Precision.FP32: set(NumberFormat),
    Precision.TF32: set(NumberFormat) - {NumberFormat.TF32, NumberFormat.UNSTATED},
    Precision.BF16: {NumberFormat.FP8, NumberFormat.FP4, NumberFormat.INTEGER},
    Precision.FP16: {NumberFormat.FP8, NumberFormat.FP4, NumberFormat.INTEGER},
}


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("form", NumberFormat)
def test_fewer_bits_than_the_problem_asks_for_are_a_finding(precision, form):
    accused = bool(about_machine_code(code_in(form), precision))
    assert accused is (form in ACCUSED[precision])


@pytest.mark.parametrize("form", ElementFormat)
def test_instructions_for_declared_formats_are_no_finding(form):
    asked = {"int8": "integer", "int4": "integer", "mxfp4": "fp4", "nvfp4": "fp4", "e8m0": None}.get(form.value, "fp8")
    declared = [Formats(inputs={"x": form}), Formats(outputs={"output": OutputFormat(form)})]
    for formats in declared:
        accused = {each for each in NumberFormat if about_machine_code(code_in(each), Precision.BF16, formats)}
        assert NumberFormat(asked) not in accused if asked else accused == ACCUSED[Precision.BF16]
        assert NumberFormat.INTEGER in accused or asked == "integer"


def test_the_message_names_what_was_asked_for_the_instructions_and_the_kernel():
    (said,) = about_machine_code(recorded("tensor_cores"), Precision.FP32)
    assert said.code == Code.REDUCED_INSTRUCTIONS.value
    assert said.message == ("the problem asks for fp32, and the machine code has HMMA.1684.F32.TF32 (4) in gemm_tf32")
    assert 'precision = "tf32"' in said.next_step
    assert about_machine_code(recorded("tensor_cores"), Precision.TF32) == []


def test_honest_kernels_and_unknown_machine_code_are_no_finding():
    for code in (recorded("honest"), MachineCode(not_looked_at="cuobjdump not found"), None):
        assert about_machine_code(code, Precision.FP32) == []


def test_an_instance_for_another_dtype_is_no_finding():
    assert about_machine_code(code_in(NumberFormat.FP16, other_dtype=True), Precision.FP32) == []
    (said,) = about_machine_code(recorded("half"), Precision.FP32)
    assert "scale" not in said.message
    assert "HFMA2.MMA (1), F2FP.F16.F32.PACK_AB (1) in hidden_half" in said.message
    assert "F2F.BF16.F32 (1) in hidden_bf16" in said.message


def test_only_a_few_kernels_are_in_the_message():
    kernels = code_in(NumberFormat.TF32).reduced * 9
    (said,) = about_machine_code(MachineCode(kernels=9, reduced=kernels), Precision.FP32)
    assert said.message.count("HMMA (4) in gemm") == 3
    assert said.message.endswith("; and 6 more kernels")


NAMES = [
    ("cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4", NumberFormat.TF32),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16", NumberFormat.TF32),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", NumberFormat.TF32),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nn", NumberFormat.BF16),
    ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT", NumberFormat.BF16),
    ("ampere_h16816gemm_128x64_ldg8_stages_32x6_nn", NumberFormat.FP16),
    ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n", NumberFormat.FP16),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", NumberFormat.FP16),
    ("cutlass_80_tensorop_i16816gemm_s8_256x128_64x3_tn_align16", NumberFormat.INTEGER),
    ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<c10::BFloat16>>", NumberFormat.BF16),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", None),
    ("ampere_sgemm_128x64_nn", None),
    ("cutlass_80_simt_sgemm_128x256_8x4_nn_align1", None),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4", None),
    ("void cudnn::cnn::implicit_convolve_sgemm<float, float, 128, 5, 5>", None),
    ("triton_poi_fused_add_0f16c3", None),
]


@pytest.mark.parametrize(("name", "form"), NAMES)
def test_names_of_library_kernels_are_recognised(name, form):
    assert name_format(name) is form


def profile(*uses):
    return Profiling(list(uses), 0, len(uses), 1.0, None, [])


def test_names_of_a_profile_are_on_the_card_as_names():
    tf32, plain = NAMES[0][0], "ampere_sgemm_128x64_nn"
    uses = [KernelUse(name, 1, 1.0, own) for name, own in ((tf32, False), (plain, False), ("own_tf32_gemm", True))]
    code = with_library_kernels(MachineCode(), profile(*uses, uses[0]))
    assert code.library_kernels == [tf32]
    (said,) = about_machine_code(code, Precision.FP32)
    assert said.message == f"the problem asks for fp32, and the machine code has library kernels by their names: {tf32}"
    assert about_machine_code(code, Precision.TF32) == []


def test_a_hostile_profile_does_not_fill_the_card():
    uses = [KernelUse(f"tf32{number}{'x' * 1000}", 1, 1.0, False) for number in range(32)]
    code = with_library_kernels(MachineCode(), profile(*uses))
    assert len(code.library_kernels) == 8
    assert max(map(len, code.library_kernels)) == 200
    (said,) = about_machine_code(code, Precision.FP32)
    assert len(said.message) < 400


def test_without_a_profile_or_machine_code_nothing_is_added():
    assert with_library_kernels(None, profile()) is None
    assert with_library_kernels(recorded("half"), None) == recorded("half")
