// Error checks for CUDA libraries, with PyTorch's messages.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <cublas_v2.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)

#define TORCH_CUDABLAS_CHECK(EXPR)                                                                    \
  do {                                                                                                \
    const cublasStatus_t emu_status = EXPR;                                                           \
    TORCH_CHECK(emu_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(emu_status), \
                " when calling `" #EXPR "`");                                                         \
  } while (0)
