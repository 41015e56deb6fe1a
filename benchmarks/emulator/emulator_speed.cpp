// Kernels as the emulator runs them, and the same loops in plain C++, compiled together with the same flags.
#include <ctime>
#include <limits>

#include "cuda_runtime.h"

namespace {

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The CPU time of the fastest of seven calls: the machine may be busy with something else.
template <class F>
double fastest_ms(F f) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) {
    const double start = cpu_seconds();
    f();
    best = min(best, cpu_seconds() - start);
  }
  return 1e3 * best;
}

__device__ float relu(float x) { return x > 0.0f ? x : 0.0f; }
__device__ float gelu(float x) { return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }

template <float (*F)(float)>
__global__ void map_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = F(x[i]);
}

template <float (*F)(float)>
__attribute__((noinline)) void map_loop(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = F(x[i]);
}

constexpr int kTile = 16;

__global__ void matmul_kernel(const float* a, const float* b, float* c, int n) {
  float (&tile_a)[kTile][kTile] = emu::shared<float[kTile][kTile]>(0);
  float (&tile_b)[kTile][kTile] = emu::shared<float[kTile][kTile]>(1);
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < n; t += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__attribute__((noinline)) void matmul_loop(const float* a, const float* b, float* c, int n) {
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0.0f;
      for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
      c[row * n + column] = sum;
    }
  }
}

constexpr int kThreads = 256;

__global__ void reduction_kernel(const float* x, float* y) {
  float (&s)[kThreads] = emu::shared<float[kThreads]>(2);
  s[threadIdx.x] = x[blockIdx.x * kThreads + threadIdx.x];
  __syncthreads();
  for (int k = kThreads / 2; k > 0; k >>= 1) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = s[0];
}

__global__ void shuffle_kernel(const float* x, float* y) {
  float sum = x[blockIdx.x * kThreads + threadIdx.x];
  for (int k = 16; k > 0; k >>= 1) sum += __shfl_down_sync(0xffffffff, sum, k);
  if (threadIdx.x % 32 == 0) y[blockIdx.x * kThreads / 32 + threadIdx.x / 32] = sum;
}

// The tree of both kernels, level by level.
template <int kWidth>
__attribute__((noinline)) void tree_loop(const float* x, float* y, int n) {
  float s[kWidth];
  for (int block = 0; block < n / kWidth; ++block) {
    for (int i = 0; i < kWidth; ++i) s[i] = x[block * kWidth + i];
    for (int k = kWidth / 2; k > 0; k >>= 1) {
      for (int i = 0; i < k; ++i) s[i] += s[i + k];
    }
    y[block] = s[0];
  }
}

float *x, *y, *z;

// As the rewriter writes a launch: the kernel's name inside of a function, its arguments outside.
template <bool kWaits, class Call, class... Args>
double launched_ms(dim3 grid, dim3 block, Call call, Args... args) {
  return fastest_ms([&] { emu::launch<kWaits>("kernel", 0, emu::Config(grid, block), call, args...); });
}

}  // namespace

// Writes milliseconds: relu, gelu, matmul, block reduction, warp reduction; each emulated, then plain.
extern "C" EMU_API void measure(int n, int matmul_size, double* ms) {
  for (float** array : {&x, &y, &z}) cudaMalloc(array, static_cast<size_t>(n) * sizeof(float));
  for (int i = 0; i < n; ++i) x[i] = y[i] = static_cast<float>(i % 1000 - 500) / 100.0f;
  const dim3 tiles(matmul_size / kTile, matmul_size / kTile);
  ms[0] = launched_ms<false>(n / kThreads, kThreads, [](auto&&... a) { map_kernel<relu>(a...); }, x, y, n);
  ms[1] = fastest_ms([n] { map_loop<relu>(x, y, n); });
  ms[2] = launched_ms<false>(n / kThreads, kThreads, [](auto&&... a) { map_kernel<gelu>(a...); }, x, y, n);
  ms[3] = fastest_ms([n] { map_loop<gelu>(x, y, n); });
  ms[4] = launched_ms<true>(tiles, dim3(kTile, kTile), [](auto&&... a) { matmul_kernel(a...); }, x, y, z, matmul_size);
  ms[5] = fastest_ms([=] { matmul_loop(x, y, z, matmul_size); });
  ms[6] = launched_ms<true>(n / kThreads, kThreads, [](auto&&... a) { reduction_kernel(a...); }, x, y);
  ms[7] = fastest_ms([n] { tree_loop<kThreads>(x, y, n); });
  ms[8] = launched_ms<true>(n / kThreads, kThreads, [](auto&&... a) { shuffle_kernel(a...); }, x, y);
  ms[9] = fastest_ms([n] { tree_loop<32>(x, y, n); });
}
