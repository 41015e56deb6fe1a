"""Misspelt CUDA names and headers, told apart from those that CUDA has and the emulator lacks.

A name close to one of the emulator's is a mistake of the submission, unless CUDA has the name too. The lists hold all
names of CUDA 13.0 and of PyTorch's CUDA headers that the emulator lacks and that are close to one of its names.
"""

import difflib
import posixpath
import re

from evaluator.emulator.headers import header_names, names_of_pytorch

_CLOSE = 0.88
_SPELLED = re.compile(r"__[a-z]\w+|cuda[A-Z]\w*")
"""Names whose close neighbours are listed below."""
_MEANT = re.compile(r"did you mean [\u2018'](?:\w+::)*(?P<meant>\w+)[\u2019']")
_MEMBER = re.compile(r"is not a member of [\u2018'](?:at|c10)::cuda[\u2019']")
_NAMES = """
__address __assert2 __assertfail __builtin_alt_va_start __dadd_rd __dadd_ru __dadd_rz __ddiv_rd __ddiv_ru __ddiv_rz
__device __dmul_rd __dmul_ru __dmul_rz __drcp_rd __drcp_ru __drcp_rz __dsqrt_rd __dsqrt_ru __dsqrt_rz __dsub_rd
__dsub_ru __dsub_rz __fadd2_rd __fadd2_rn __fadd2_ru __fadd2_rz __ffma2_rn __fmaf_rd __fmaf_ru __fmaf_rz __fmul2_rd
__fmul2_rn __fmul2_ru __fmul2_rz __forceinline __funnelshift_lc __funnelshift_rc __inline__ __isinfd __isnand
__ll2double_rd __ll2double_ru __ll2double_rz __ll2float_rd __ll2float_ru __ll2float_rz __location__
__match32_all_sync __match32_any_sync __match64_all_sync __match64_any_sync __math __no_return__
__nv_cvt_bfloat16raw2_to_fp4x2 __nv_cvt_bfloat16raw2_to_fp6x2 __nv_cvt_bfloat16raw2_to_fp8x2
__nv_cvt_bfloat16raw_to_e8m0 __nv_cvt_bfloat16raw_to_fp4 __nv_cvt_bfloat16raw_to_fp6 __nv_cvt_double2_to_fp4x2
__nv_cvt_double2_to_fp6x2 __nv_cvt_double2_to_fp8x2 __nv_cvt_double_to_e8m0 __nv_cvt_double_to_fp4
__nv_cvt_double_to_fp6 __nv_cvt_float2_to_e8m0x2 __nv_cvt_float2_to_fp4x2 __nv_cvt_float2_to_fp6x2
__nv_cvt_float_to_e8m0 __nv_cvt_float_to_fp4 __nv_cvt_float_to_fp6 __nv_cvt_fp4_to_halfraw __nv_cvt_fp4x2_to_halfraw2
__nv_cvt_fp6_to_halfraw __nv_cvt_fp6x2_to_halfraw2 __nv_cvt_halfraw2_to_fp4x2 __nv_cvt_halfraw2_to_fp6x2
__nv_cvt_halfraw2_to_fp8x2 __nv_cvt_halfraw_to_fp4 __nv_cvt_halfraw_to_fp6 __nv_fp4_interpretation_t
__nv_fp4_storage_t __nv_fp4x2_storage_t __nv_fp4x4_storage_t __nv_fp6_interpretation_t __nv_fp6_storage_t
__nv_fp6x2_storage_t __nv_fp6x4_storage_t __nv_fp8_e8m0 __nv_fp8x2_e8m0 __nv_fp8x4_e8m0 __shared__ __signbitd
__thread__ __ull2double_rd __ull2double_ru __ull2double_rz __ull2float_rd __ull2float_ru __ull2float_rz __urhadd
cudaDevAttrHostMemoryPoolsSupported cudaDeviceCount cudaDeviceGetCacheConfig cudaDeviceGetLimit
cudaDeviceGetP2PAttribute cudaDeviceGetSharedMemConfig cudaDeviceP2PAttr cudaErrorCdpNotSupported
cudaEventWaitDefault cudaFuncAttributeMax cudaLaunchAttribute cudaLaunchAttributePreferredSharedMemoryCarveout
cudaLaunchKernelEx cudaLaunchKernelExC cudaMalloc3D cudaMemAdviseUnsetAccessedBy
cudaMemAdviseUnsetPreferredLocation cudaMemAdviseUnsetReadMostly cudaMemcpy3D cudaMemcpy3DAsync cudaMemcpy3DPeer
cudaMemcpyFlagDefault cudaMemcpyFromSymbolAsync cudaMemcpyPeerAsync cudaMemset2DAsync cudaMemset3D
cudaMemset3DAsync cudaOccDeviceProp cudaOccError_enum cudaOccFuncAttributes cudaStream
getCurrentCUDABlasLtHandle getCurrentCUDASparseHandle getCurrentCUDASolverDnHandle
"""

_HEADERS = """
c10/cuda/CUDAMiscFunctions.h cuda_bf16.hpp cuda_fp16.hpp cuda_fp4.h cuda_fp6.h cuda_fp8.hpp nvtx3/nvToolsExtMem.h
vector_functions.hpp
"""


def meant_name(name: str, message: str) -> str | None:
    """Return the emulator's name that a compiler's `message` about the unknown `name` means; None for names of CUDA.

    >>> meant_name("__syncthread", "'__syncthread' was not declared in this scope; did you mean '__syncthreads'?")
    '__syncthreads'
    """
    if name in _NAMES.split():
        return None
    if _MEMBER.search(message):
        names = names_of_pytorch()
        near = [] if name in names else difflib.get_close_matches(name, names, 1, _CLOSE)
        return near[0] if near else None
    suggested = _MEANT.search(message)
    if suggested is None or _SPELLED.fullmatch(name) is None:
        return None
    is_close = difflib.SequenceMatcher(None, name, suggested["meant"]).ratio() >= _CLOSE
    return suggested["meant"] if is_close else None


def meant_header(name: str) -> str | None:
    """Return the emulator's header with nearly the same name in the same folder; None for headers of CUDA.

    >>> meant_header("ATen/cuda/CUDAContex.h"), meant_header("cuda_fp6.h")
    ('ATen/cuda/CUDAContext.h', None)
    """
    if name in _HEADERS.split():
        return None
    folder, last = posixpath.split(name)
    beside = [posixpath.basename(each) for each in header_names() if posixpath.dirname(each) == folder]
    near = difflib.get_close_matches(last, beside, 1, _CLOSE)
    return posixpath.join(folder, near[0]) if near else None
