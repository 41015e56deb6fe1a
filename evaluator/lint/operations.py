"""PyTorch operations by name: computing, or only creating, moving and describing tensors."""

import re

from evaluator.lint.names import word_set

_HOUSEKEEPING = word_set("""
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor as_tensor from_numpy from_blob
    arange scalar_tensor new_empty rand randn randint rand_like randn_like Generator manual_seed
    is_tensor is_floating_point is_complex is_grad_enabled numel finfo iinfo result_type promote_types can_cast
    get_default_dtype set_default_dtype get_num_threads set_num_threads get_float32_matmul_precision
    set_float32_matmul_precision device dtype layout size Size requires_grad options typeMetaToScalarType
    no_grad enable_grad inference_mode set_grad_enabled autocast
    reshape transpose permute squeeze unsqueeze flatten narrow split chunk t unbind movedim swapaxes view_as_real
    broadcast_to broadcast_tensors expand_copy atleast_1d atleast_2d atleast_3d as_strided select detach clone
    cat concat stack save load device_of compile
    ScalarType parallel_for get_thread_num elementSize isIntegralType isFloatingType
    """)
"""Names in `torch` and `at` that cannot replace a kernel's work."""
_COMPUTING_SPACES = (
    "torch.nn.functional.",
    "torch.linalg.",
    "torch.fft.",
    "torch.special.",
    "torch.ops.aten.",
    "torch._C._nn.",
    "torch._C._VariableFunctions.",
)
_MOVING = frozenset(("pad", "unfold", "fold", "pixel_shuffle", "one_hot", "embedding"))
METHODS = word_set("""
    matmul mm bmm mv addmm addmv baddbmm addbmm dot inner outer einsum
    relu relu_ sigmoid sigmoid_ tanh tanh_ softmax log_softmax gelu silu exp exp_ log log_ sqrt sqrt_ rsqrt rsqrt_
    abs abs_ neg pow pow_ square clamp clamp_ clamp_min clamp_min_ clamp_max sum mean var std prod cumsum cumprod
    amax amin argmax argmin max min sort topk norm logsumexp div div_ mul mul_ add_ sub_ addcmul addcdiv
    masked_fill masked_fill_ where lerp erf sin cos maximum minimum
    """)
"""Computing tensor methods."""
_UNMISTAKABLE = word_set("""
    matmul mm bmm mv addmm addmv baddbmm addbmm einsum relu relu_ sigmoid softmax log_softmax gelu silu logsumexp
    layer_norm group_norm batch_norm conv1d conv2d conv3d cumsum
    """)
_LIBRARY_FUNCTION = re.compile(
    r"(?:cublas|cublasLt|cudnn|cusolver|cusparse|cufft|mkldnn|mkl|cblas)_?\w*"
    r"(?i:gemm|gemv|matmul|forward|backward|conv|exec|mm|mv|syrk|trsm|axpy|dot|nrm2|scal)\w*"
)


def computes(dotted: str) -> bool:
    """Return whether a PyTorch function, given by its full name, does a kernel's work.

    >>> computes("torch.relu"), computes("torch.empty_like"), computes("torch.nn.functional.gelu"), computes("mine.f")
    (True, False, True, False)
    """
    for space in _COMPUTING_SPACES:
        if dotted.startswith(space):
            return dotted.removeprefix(space).partition(".")[0] not in _HOUSEKEEPING | _MOVING
    if dotted.startswith("torch.Tensor."):
        return dotted.removeprefix("torch.Tensor.") in METHODS
    top, _, name = dotted.partition(".")
    return top == "torch" and _is_function(name)


def computes_in_cpp(name: str) -> bool:
    """Return whether `at::name` or `torch::name` does a kernel's work.

    >>> computes_in_cpp("relu"), computes_in_cpp("empty_like"), computes_in_cpp("Tensor")
    (True, False, False)
    """
    return _is_function(name)


def method_in_cpp(name: str) -> bool:
    """Return whether a method name identifies a computing tensor method of any object."""
    return name in _UNMISTAKABLE


def of_library(name: str) -> bool:
    """Return whether a C function is a computing function of an NVIDIA or BLAS library.

    >>> of_library("cublasSgemm"), of_library("cublasCreate"), of_library("cublasLtMatmul")
    (True, False, True)
    """
    return _LIBRARY_FUNCTION.fullmatch(name) is not None


def _is_function(name: str) -> bool:
    return name.isidentifier() and name[0].islower() and name not in _HOUSEKEEPING and not _is_constant(name)


def _is_constant(name: str) -> bool:
    """Return whether a name is a type or constant: `float32`, `kFloat`, `preserve_format`, `strided`."""
    return (
        re.fullmatch(r"k[A-Z]\w*|b?float\d*|u?int\d*|half|double|long|bool|complex\d+|\w+_format|strided", name)
        is not None
    )
