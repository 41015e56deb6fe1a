#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

struct Shape {
    int in_channels, out_channels, height, width, kernel, padding, out_height, out_width;

    __host__ __device__ int64_t outputs() const { return static_cast<int64_t>(out_channels) * out_height * out_width; }
};

__global__ void conv_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ out, const Shape shape, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int column = i % shape.out_width;
    const int row = i / shape.out_width % shape.out_height;
    const int channel = i / (shape.out_width * shape.out_height) % shape.out_channels;
    const int64_t image = i / shape.outputs();
    float sum = bias[channel];
    for (int in = 0; in < shape.in_channels; ++in) {
        const float* plane = x + (image * shape.in_channels + in) * shape.height * shape.width;
        const float* taps = weight + (channel * shape.in_channels + in) * shape.kernel * shape.kernel;
        for (int ky = 0; ky < shape.kernel; ++ky) {
            const int y = row + ky - shape.padding;
            if (y < 0 || y >= shape.height) continue;
            for (int kx = 0; kx < shape.kernel; ++kx) {
                const int from = column + kx - shape.padding;
                if (from < 0 || from >= shape.width) continue;
                sum += plane[y * shape.width + from] * taps[ky * shape.kernel + kx];
            }
        }
    }
    out[i] = fmaxf(sum, 0.0f);
}

torch::Tensor conv2d_bias_relu(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t padding) {
    Shape shape;
    shape.in_channels = x.size(1);
    shape.out_channels = weight.size(0);
    shape.height = x.size(2);
    shape.width = x.size(3);
    shape.kernel = weight.size(2);
    shape.padding = padding;
    shape.out_height = shape.height + 2 * shape.padding - shape.kernel + 1;
    shape.out_width = shape.width + 2 * shape.padding - shape.kernel + 1;
    auto out = torch::empty({x.size(0), shape.out_channels, shape.out_height, shape.out_width}, x.options());
    const int64_t count = x.size(0) * shape.outputs();
    conv_kernel<<<static_cast<unsigned>((count + 127) / 128), 128, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), shape, count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
