// torch's headers for CUDA, together with its own light ones, in the way that submissions use them.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAApplyUtils.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAUtils.h>
#include <ATen/cuda/DeviceUtils.cuh>
#include <ATen/cuda/NumericLimits.cuh>
#include <ATen/cuda/detail/KernelUtils.h>
#include <ATen/cuda/detail/TensorInfo.cuh>
#include <ATen/native/cuda/block_reduce.cuh>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAMathCompat.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstring>
#include <exception>

namespace {

template <class T>
void add_one_kernel(T* data, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] + static_cast<T>(1);
}

template <class T>
void count_kernel(T* total) {
  gpuAtomicAdd(total, static_cast<T>(0.5));
}

char text[1024];

template <class Body>
const char* what(Body body) {
  text[0] = '\0';
  try {
    body();
  } catch (const c10::CUDAError& error) {
    std::strncpy(text, error.what_without_backtrace(), sizeof(text) - 1);
  } catch (const c10::Error& error) {
    std::strncpy(text, error.what_without_backtrace(), sizeof(text) - 1);
  }
  return text;
}

}  // namespace

// Adds 1 to every element, as a usual submission does it.
extern "C" void add_one(void* data, int count, int scalar_type) {
  const at::Tensor x = at::from_blob(data, {count}, at::TensorOptions(static_cast<at::ScalarType>(scalar_type)));
  const at::cuda::OptionalCUDAGuard optional_guard(at::device_of(x));
  const c10::cuda::CUDAGuard guard(x.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "add_one", [&] {
    emu::launch<false>("add_one_kernel<scalar_t>", 0, emu::Config((count + 63) / 64, 64, 0, stream),
                       add_one_kernel<scalar_t>, x.data_ptr<scalar_t>(), count);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

extern "C" float count_with_half_atomics() {
  c10::Half total = 0;
  emu::launch<false>("count_kernel", 0, emu::Config(2, 32), count_kernel<c10::Half>, &total);
  return total;
}

// Checks that are true or false, in one number each; all must be 1.
extern "C" int interoperation(int* passed) {
  int count = 0;
  const auto check = [&](bool good) { passed[count++] = good; };
  const c10::Half of_torch(1.5f);
  const __half of_cuda = of_torch;
  check(__half2float(of_cuda) == 1.5f);
  const c10::Half back = of_cuda;
  check(back == of_torch && static_cast<c10::Half>(of_cuda) == of_torch);
  check(__half2float(*reinterpret_cast<const __half*>(&of_torch)) == 1.5f);
  const c10::BFloat16 wide(-3.0f);
  check(__bfloat162float(static_cast<__nv_bfloat16>(wide)) == -3.0f && c10::BFloat16(__float2bfloat16(-3.0f)) == wide);
  check(at::cuda::getCurrentCUDAStream().stream() == nullptr && at::cuda::getCurrentCUDAStream().id() == 0);
  const auto stream = at::cuda::getStreamFromPool();
  {
    const at::cuda::CUDAStreamGuard guard(stream);
    check(at::cuda::getCurrentCUDAStream() == stream);
  }
  check(at::cuda::getCurrentCUDAStream() == at::cuda::getDefaultCUDAStream());
  at::cuda::CUDAEvent event;
  check(!event.isCreated());
  event.record(stream);
  event.synchronize();
  check(event.isCreated() && event.query());
  check(at::cuda::warp_size() == 32 && at::cuda::getCurrentDeviceProperties()->maxThreadsPerBlock == 1024);
  check(at::cuda::current_device() == 0 && c10::cuda::device_count() == 1);
  check(at::cuda::getCurrentCUDABlasHandle() == at::cuda::getCurrentCUDABlasHandle());
  void* memory = c10::cuda::CUDACachingAllocator::raw_alloc(64);
  std::memset(memory, 0, 64);
  c10::cuda::CUDACachingAllocator::raw_delete(memory);
  check(c10::cuda::compat::rsqrt(4.0f) == 0.5f && at::cuda::ATenCeilDiv(7, 2) == 4);
  return count;
}

extern "C" const char* bad_launch() {
  return what([] {
    float unused = 0;
    emu::launch<false>("add_one_kernel<float>", 0, emu::Config(1, 2048), add_one_kernel<float>, &unused, 1);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}
extern "C" const char* error_is_gone() {
  return what([] { AT_CUDA_CHECK(cudaGetLastError()); });
}
extern "C" const char* bad_cublas_call() {
  return what([] { TORCH_CUDABLAS_CHECK(cublasSetStream(nullptr, nullptr)); });
}
