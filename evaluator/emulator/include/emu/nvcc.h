// Predefined macros of nvcc, for the submission's own lines of CUDA files: code that no GPU runs must not be able to
// detect the emulator by testing for nvcc. `emulator/frontend/nvcc_macros.py` hides the macros where a host compiler would lack them.
#ifndef WARPGRADE_EMU_NVCC_H
#define WARPGRADE_EMU_NVCC_H

#define __NVCC__ 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_LIST__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#define CUDA_DOUBLE_MATH_FUNCTIONS 1
// Toolkit version that matches CUDART_VERSION of the emulator's headers.
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define __CUDACC_VER_BUILD__ 93
#define __CUDA_API_VER_MAJOR__ 12
#define __CUDA_API_VER_MINOR__ 8
#define __NVCC_DIAG_PRAGMA_SUPPORT__ 1
// PyTorch passes --expt-relaxed-constexpr to nvcc.
#define __CUDACC_RELAXED_CONSTEXPR__ 1

#endif  // WARPGRADE_EMU_NVCC_H
