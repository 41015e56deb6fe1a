"""What the halves want of each other, read from nm's listings."""

import pytest

from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.symbols import instantiations, missing

HOST = """
                 U at::Tensor::defined() const
                 U float* at::TensorBase::data_ptr<float>() const
                 U cudaMalloc
                 U operator new(unsigned long)
                 U relu_kernel(float const*, float*, int)
                 U void ns::silu_kernel<c10::Half, 4>(c10::Half const*, c10::Half*, long)
                 U void apply<Op<float, (Mode)1> >(float*, void (*)(int))
                 U warpgrade_symbol_taps
                 U warpgrade::make_module(char const*, warpgrade::Function const*, unsigned long)
"""
DEVICE = """
0000000000000275 T relu_kernel(float const*, float*, int)
0000000000000000 W void ns::silu_kernel<c10::Half, 4>(c10::Half const*, c10::Half*, long)
"""


def test_the_kinds_of_kernels_that_the_host_calls_are_named():
    assert instantiations(HOST, {"silu_kernel", "apply"}) == [
        "ns::silu_kernel<c10::Half, 4>",
        "apply<Op<float, (Mode)1> >",
    ]
    assert instantiations(HOST, {"relu_kernel"}) == []


@pytest.mark.parametrize("argument", ["f()::{lambda(int)#1}", "(anonymous namespace)::Op", "f()::{unnamed type#1}"])
def test_a_type_without_a_name_cannot_be_asked_for(argument):
    with pytest.raises(NotSplittable):
        instantiations(f" U void k<{argument}>({argument})", {"k"})


def test_what_no_object_has_is_missing_unless_it_is_a_librarys():
    own = {"relu_kernel", "silu_kernel", "apply", "data_ptr", "cudaMalloc", "make_module", "defined"}
    assert missing(HOST, DEVICE, own) == [
        "void apply<Op<float, (Mode)1> >(float*, void (*)(int))",
        "warpgrade_symbol_taps",
    ]


def test_a_kernel_that_the_other_half_lacks_is_missing():
    assert missing(" U k(float*)", "0 T k(double*)", {"k"}) == ["k(float*)"]
    assert missing(" U k(float*)", "0 T k(float*)", {"k"}) == []
