"""PyTorch operations by name; detection of them in forward, of an inherited forward, and of suppressed failures."""

import ast
import re
from collections.abc import Iterator

from evaluator.findings import Code
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import root_name, word_set
from evaluator.lint.reachable import Body, Module

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
IN_CPP = word_set("""
    matmul mm bmm mv addmm addmv baddbmm addbmm einsum relu relu_ sigmoid softmax log_softmax gelu silu logsumexp
    layer_norm group_norm batch_norm conv1d conv2d conv3d cumsum
    """)
"""Names that identify a computing tensor method of any object in C++."""
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
    return top == "torch" and is_function(name)


def of_library(name: str) -> bool:
    """Return whether a C function is a computing function of an NVIDIA or BLAS library.

    >>> of_library("cublasSgemm"), of_library("cublasCreate"), of_library("cublasLtMatmul")
    (True, False, True)
    """
    return _LIBRARY_FUNCTION.fullmatch(name) is not None


def is_function(name: str) -> bool:
    """Return whether `torch.name`, or `at::name` in C++, does a kernel's work.

    >>> is_function("relu"), is_function("empty_like"), is_function("Tensor")
    (True, False, False)
    """
    return name.isidentifier() and name[0].islower() and name not in _HOUSEKEEPING and not _is_constant(name)


def _is_constant(name: str) -> bool:
    """Return whether a name is a type or constant: `float32`, `kFloat`, `preserve_format`, `strided`."""
    return (
        re.fullmatch(r"k[A-Z]\w*|b?float\d*|u?int\d*|half|double|long|bool|complex\d+|\w+_format|strided", name)
        is not None
    )


_BUILDS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_REFERENCE = "model.Model"
_PLAIN_MODULE = "torch.nn.Module"


def library_calls(module: Module, bodies: list[Body]) -> Iterator[Remark]:
    """Find computing PyTorch calls in `bodies`, the functions reachable from forward."""
    yield from _inherited(module)
    for body in bodies:
        tensors = _tensors_of(body)
        for node in ast.walk(body):
            match node:
                case ast.Call():
                    if (call := _called(node, module, tensors)) is not None:
                        yield Remark(Code.LIBRARY_IN_FORWARD, node.lineno, f"forward calls {call}")
                case ast.BinOp(op=ast.MatMult()):
                    yield Remark(Code.LIBRARY_IN_FORWARD, node.lineno, "forward multiplies matrices with @")
                case _:
                    continue


def _called(call: ast.Call, module: Module, tensors: set[str]) -> str | None:
    """Return a description of the call if the callee is a computing PyTorch function."""
    dotted = module.names.dotted(call.func)
    if dotted is not None and computes(dotted):
        return shown(dotted)
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="forward"):
            model = module.model()
            return None if model is None or (base := _foreign_base(model, module)) is None else f"forward of {base}"
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return _member(name, module)
        case ast.Attribute(value=value, attr=name) if name in METHODS and root_name(value) in tensors:
            return f"a tensor's {name}"
        case _:
            return None


def _member(name: str, module: Module) -> str | None:
    """Describe `self.name` if its class is a PyTorch module or the reference."""
    for value in module.members.get(name, []):
        dotted = module.names.dotted(value.func) if isinstance(value, ast.Call) else None
        if dotted is not None and (dotted == _REFERENCE or (dotted.startswith("torch.nn.") and dotted[9:10].isupper())):
            return f"self.{shown(name)}, which is {shown(dotted)}" if dotted != "torch.nn.Parameter" else None
    return None


def _inherited(module: Module) -> Iterator[Remark]:
    model = module.model()
    if model is None or any(isinstance(node, ast.FunctionDef) and node.name == "forward" for node in model.body):
        return
    if (base := _foreign_base(model, module)) is not None:
        yield Remark(Code.LIBRARY_IN_FORWARD, model.lineno, f"{shown(model.name)} inherits its forward from {base}")


def _foreign_base(model: ast.ClassDef, module: Module) -> str | None:
    """Return the PyTorch or reference base class that provides forward."""
    for base in model.bases:
        dotted = module.names.dotted(base)
        if dotted == _REFERENCE or (dotted and dotted.startswith("torch.nn.") and dotted != _PLAIN_MODULE):
            return shown(dotted)
    return None


def _tensors_of(body: Body) -> set[str]:
    """Return the names of tensors: parameters, and variables assigned from known tensors."""
    arguments = body.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]
    tensors = {argument.arg for argument in every if argument is not None} - {"self", "cls", "ctx"}
    assignments = [node for node in ast.walk(body) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda node: node.lineno):
        names = {leaf.id for leaf in ast.walk(node.value) if isinstance(leaf, ast.Name)}
        if names & tensors:
            tensors |= {leaf.id for target in node.targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
    return tensors - {"self", "cls", "ctx"}


def fallbacks(module: Module, bodies: list[Body]) -> Iterator[Remark]:
    """Find a `try` or `suppress` around a build, or around a call in forward, that swallows the failure."""
    in_forward = {id(node) for body in bodies for node in ast.walk(body)}
    for node in module.nodes:
        match node:
            case ast.Try(body=body) | ast.TryStar(body=body):
                risk = _risked(body, module, in_forward=id(node) in in_forward)
                swallowing = [handler for handler in node.handlers if _goes_on(handler)]
                if risk is not None and swallowing:
                    line = swallowing[0].lineno
                    before = f"the try is {line - node.lineno} above"
                    yield Remark(Code.FAILURE_WORKED_AROUND, line, f"continues after {risk} fails ({before})")
            case ast.With(items=items, body=body):
                dotted = [
                    module.names.dotted(i.context_expr.func) for i in items if isinstance(i.context_expr, ast.Call)
                ]
                risk = _risked(body, module, in_forward=id(node) in in_forward)
                if "contextlib.suppress" in dotted and risk is not None:
                    yield Remark(Code.FAILURE_WORKED_AROUND, node.lineno, f"continues after {risk} fails")
            case _:
                continue


def _risked(body: list[ast.stmt], module: Module, *, in_forward: bool) -> str | None:
    """Describe the operation in a block whose failure should be visible."""
    calls = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    if any(module.names.dotted(call.func) in _BUILDS for call in calls):
        return "a build"
    return "a call in forward" if in_forward and calls else None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(node, ast.Raise) for node in handler.body)
