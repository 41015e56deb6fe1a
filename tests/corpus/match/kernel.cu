#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void matches_kernel(const int* __restrict__ keys, int* __restrict__ peers, bool* __restrict__ uniform) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    const int key = keys[i];
    peers[i] = __popc(__match_any_sync(0xffffffffu, key));
    int all_equal = 0;
    const unsigned members = __match_all_sync(0xffffffffu, key, &all_equal);
    if (threadIdx.x == 0) uniform[blockIdx.x] = all_equal != 0 && members == 0xffffffffu;
}

std::vector<torch::Tensor> matches(const torch::Tensor& keys) {
    auto peers = torch::empty_like(keys);
    auto uniform = torch::empty({keys.size(0)}, keys.options().dtype(torch::kBool));
    matches_kernel<<<keys.size(0), 32, 0, at::cuda::getCurrentCUDAStream()>>>(
        keys.data_ptr<int>(), peers.data_ptr<int>(), uniform.data_ptr<bool>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {peers, uniform};
}
