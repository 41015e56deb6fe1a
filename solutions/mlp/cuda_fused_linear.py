"""A linear layer of our own, tiled in shared memory, that adds the bias and applies ReLU before anything is stored."""

from torch import nn
from torch.utils.cpp_extension import load_inline

cpp_source = "torch::Tensor linear_tiled(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, bool relu);"

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

constexpr int kSide = 16;              // threads along each side of a block
constexpr int kMicro = 4;              // results of one thread along each side
constexpr int kTile = kSide * kMicro;  // results of one block along each side
constexpr int kDepth = 16;             // how many features one step takes
constexpr int kThreads = kSide * kSide;

// Copies kDepth features of kTile rows of a matrix, transposed, into shared memory; beyond its edges, zeros.
// The extra column puts the transposed writes of a warp into different banks.
__device__ void load_tile(
    float (&tile)[kDepth][kTile + 1], const float* __restrict__ matrix, int64_t first_row, int64_t rows,
    int64_t first_feature, int64_t features) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
        const int64_t row = first_row + i / kDepth;
        const int64_t feature = first_feature + i % kDepth;
        const bool exists = row < rows && feature < features;
        tile[i % kDepth][i / kDepth] = exists ? matrix[row * features + feature] : 0.0f;
    }
}

template <bool kRelu>
__global__ void linear_tiled_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int64_t rows, int64_t features, int64_t out_features) {
    __shared__ float tile_x[kDepth][kTile + 1];
    __shared__ float tile_weight[kDepth][kTile + 1];
    const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile;
    const int64_t first_column = static_cast<int64_t>(blockIdx.y) * kTile;
    const int thread_row = threadIdx.x / kSide;
    const int thread_column = threadIdx.x % kSide;

    float sums[kMicro][kMicro] = {};
    for (int64_t step = 0; step < features; step += kDepth) {
        load_tile(tile_x, x, first_row, rows, step, features);
        load_tile(tile_weight, weight, first_column, out_features, step, features);
        __syncthreads();
        for (int k = 0; k < kDepth; ++k) {
            float from_x[kMicro];
            float from_weight[kMicro];
            for (int i = 0; i < kMicro; ++i) {
                from_x[i] = tile_x[k][thread_row + i * kSide];
                from_weight[i] = tile_weight[k][thread_column + i * kSide];
            }
            for (int i = 0; i < kMicro; ++i) {
                for (int j = 0; j < kMicro; ++j) sums[i][j] += from_x[i] * from_weight[j];
            }
        }
        __syncthreads();  // all have read the tiles before the next step overwrites them
    }

    for (int i = 0; i < kMicro; ++i) {
        for (int j = 0; j < kMicro; ++j) {
            const int64_t row = first_row + thread_row + i * kSide;
            const int64_t column = first_column + thread_column + j * kSide;
            if (row < rows && column < out_features) {
                const float value = sums[i][j] + bias[column];
                y[row * out_features + column] = kRelu && value < 0.0f ? 0.0f : value;
            }
        }
    }
}

torch::Tensor linear_tiled(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, bool relu) {
    for (const auto& tensor : {x, weight, bias}) {
        TORCH_CHECK(tensor.is_cuda() && tensor.scalar_type() == torch::kFloat32, "all must be float32 CUDA tensors");
        TORCH_CHECK(tensor.device() == x.device(), "all must be on one device");
    }
    TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), "the shapes do not fit together");
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), "bias must have one value for each output");
    const at::cuda::CUDAGuard device_guard(x.device());
    const auto input = x.contiguous();
    const auto matrix = weight.contiguous();
    const auto added = bias.contiguous();
    const int64_t rows = input.size(0);
    const int64_t features = input.size(1);
    const int64_t out_features = matrix.size(0);
    auto output = torch::empty({rows, out_features}, input.options());
    if (output.numel() == 0) return output;

    const int64_t row_tiles = (rows + kTile - 1) / kTile;
    const int64_t column_tiles = (out_features + kTile - 1) / kTile;
    TORCH_CHECK(row_tiles <= INT32_MAX && column_tiles <= 65535, "too many tiles for one grid");
    const dim3 grid(static_cast<unsigned>(row_tiles), static_cast<unsigned>(column_tiles));
    const auto stream = at::cuda::getCurrentCUDAStream();
    const float* in = input.data_ptr<float>();
    const float* weights = matrix.data_ptr<float>();
    const float* biases = added.data_ptr<float>();
    float* out = output.data_ptr<float>();
    if (relu) {
        linear_tiled_kernel<true><<<grid, kThreads, 0, stream>>>(in, weights, biases, out, rows, features, out_features);
    } else {
        linear_tiled_kernel<false><<<grid, kThreads, 0, stream>>>(in, weights, biases, out, rows, features, out_features);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return output;
}
"""

extension = load_inline(
    name="mlp_cuda_fused_linear",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["linear_tiled"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden1_features, hidden2_features, out_features):
        super().__init__()
        self.linear1 = nn.Linear(in_features, hidden1_features)
        self.linear2 = nn.Linear(hidden1_features, hidden2_features)
        self.linear3 = nn.Linear(hidden2_features, out_features)

    def forward(self, x):
        x = extension.linear_tiled(x, self.linear1.weight, self.linear1.bias, True)  # noqa: FBT003 (pybind11 takes it by place)
        x = extension.linear_tiled(x, self.linear2.weight, self.linear2.bias, True)  # noqa: FBT003
        return extension.linear_tiled(x, self.linear3.weight, self.linear3.bias, False)  # noqa: FBT003
