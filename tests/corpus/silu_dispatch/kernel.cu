#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void silu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ out, int64_t count) {
    using wide_t = at::opmath_type<scalar_t>;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        const wide_t value = static_cast<wide_t>(x[i]);
        out[i] = static_cast<scalar_t>(value / (wide_t(1) + exp(-value)));
    }
}

torch::Tensor silu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "silu_forward", [&] {
        silu_kernel<scalar_t><<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), count);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
