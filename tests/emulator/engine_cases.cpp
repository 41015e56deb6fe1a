// Kernels as the rewriter leaves them, each with a host function that test_engine.py calls by name. What a case finds
// out it prints into a buffer; an exception's text becomes the buffer's.
#include <cstdarg>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace {

char* out;
std::size_t room;

void say(const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int length = std::vsnprintf(out, room, format, args);
  va_end(args);
  out += length;
  room -= static_cast<std::size_t>(length);
}

template <class T>
T* device_array(std::size_t count) {
  T* data;
  cudaMalloc(&data, count * sizeof(T));
  return data;
}

}  // namespace

#define CASE(NAME)                                                           \
  static void NAME##_body(int a, int b, int c);                              \
  extern "C" EMU_API void NAME(char* text, int bytes, int a, int b, int c) { \
    out = text;                                                              \
    room = static_cast<std::size_t>(bytes);                                  \
    *text = 0;                                                               \
    try {                                                                    \
      NAME##_body(a, b, c);                                                  \
    } catch (const std::exception& error) {                                  \
      say("%s", error.what());                                               \
    }                                                                        \
  }                                                                          \
  static void NAME##_body([[maybe_unused]] int a, [[maybe_unused]] int b, [[maybe_unused]] int c)

// KERNEL<<<GRID, BLOCK, SHARED>>>(...), launched in line 7 of an unseen text.
#define LAUNCH(WAITS, KERNEL, GRID, BLOCK, SHARED, ...)            \
  emu::launch<WAITS>(#KERNEL, 7, emu::Config(GRID, BLOCK, SHARED), \
                     [&](auto&&... emu_a) { KERNEL(emu_a...); } __VA_OPT__(, ) __VA_ARGS__)

// Elementwise, in three dimensions.

__global__ void index_3d(int* y, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int plane = blockIdx.z * blockDim.z + threadIdx.z;
  const int i = (plane * gridDim.y * blockDim.y + row) * gridDim.x * blockDim.x + x;
  if (i < n) y[i] = i * 3 + 1;
}

CASE(elementwise) {
  const int n = 2 * 3 * 2 * 8 * 4 * 2;
  int* y = device_array<int>(n);
  LAUNCH(false, index_3d, dim3(2, 3, 2), dim3(8, 4, 2), 0, y, n);
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += y[i] != i * 3 + 1;
  say("wrong %d", wrong);
}

// Barriers.

__global__ void block_sum(const float* x, float* y) {
  float (&s)[256] = emu::shared<float[256]>(1);
  s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = s[0];
}

CASE(reduction) {
  float* x = device_array<float>(5 * 256);
  float* y = device_array<float>(5);
  for (int i = 0; i < 5 * 256; ++i) x[i] = static_cast<float>(i % 17);
  LAUNCH(true, block_sum, 5, 256, 0, x, y);
  int wrong = 0;
  for (int block = 0; block < 5; ++block) {
    float sum = 0;
    for (int i = 0; i < 256; ++i) sum += x[block * 256 + i];
    wrong += y[block] != sum;
  }
  say("wrong %d", wrong);
}

__global__ void reverse_without_barrier(int* y) {
  int (&s)[64] = emu::shared<int[64]>(2);
  s[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = s[63 - threadIdx.x];
}

CASE(race) {
  int* y = device_array<int>(64);
  LAUNCH(true, reverse_without_barrier, 1, 64, 0, y);
  int wrong = 0;
  for (int i = 0; i < 64; ++i) wrong += y[i] != 63 - i;
  say("wrong %d", wrong);
}

__global__ void counted(int* y) {
  y[threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0);
  y[64 + threadIdx.x] = __syncthreads_and(threadIdx.x < 60);
  y[128 + threadIdx.x] = __syncthreads_or(threadIdx.x == 60);
}

CASE(counting_barriers) {
  int* y = device_array<int>(192);
  LAUNCH(true, counted, 1, 64, 0, y);
  say("%d %d %d %d", y[0], y[63], y[64], y[128]);
}

__global__ void skipped_barrier(int threshold) {
  __syncthreads();
#line 101 "submission.cu"
  if (threadIdx.x < threshold) {
    __syncthreads();
  }
#line 106 "engine_cases.cpp"
}

CASE(divergent_barrier) { LAUNCH(true, skipped_barrier, 1, 64, 0, a); }

__global__ void guarded(int* y, int n) {
  if (threadIdx.x >= n) return emu::early_return();
  __syncthreads();
  y[threadIdx.x] = n;
}

__global__ void guarded_by_branch(int* y, int n) {
  if (threadIdx.x < n) {
    __syncthreads();
    y[threadIdx.x] = n;
  }
}

template <class Call>
void launch_marked(Call call) {
  emu::Bound<Call> bound{call, {}};
  emu::run(emu::Kernel{"marked", 7, true, true, &bound, &emu::Bound<Call>::run}, emu::Config(1, 64));
}

CASE(early_return) {
  int* y = device_array<int>(64);
  if (a == 0) LAUNCH(true, guarded, 1, 64, 0, y, 40);
  if (a == 1) launch_marked([y] { guarded(y, 40); });
  if (a == 2) launch_marked([y] { guarded_by_branch(y, 40); });
  say("%d", y[39]);
}

__global__ void two_barriers() {
#line 201 "submission.cu"
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
#line 150 "engine_cases.cpp"
}

CASE(barrier_in_both_branches) { LAUNCH(true, two_barriers, 1, 64, 0); }

__global__ void barrier_by_warp(int* y) {
  if (threadIdx.x < 32) {
    y[threadIdx.x] = 1;
    __syncthreads();
  } else {
    __syncthreads();
    y[threadIdx.x] = y[threadIdx.x - 32] + 1;
  }
}

CASE(barrier_in_warps_of_their_own) {
  int* y = device_array<int>(64);
  LAUNCH(true, barrier_by_warp, 1, 64, 0, y);
  say("%d %d", y[31], y[63]);
}

__global__ void stuck(float* y) {
#line 301 "submission.cu"
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __shfl_sync(0xffffffff, 1.0f, 3);
  } else {
    __syncthreads();
  }
#line 180 "engine_cases.cpp"
}

CASE(deadlock) { LAUNCH(true, stuck, 1, 32, 0, device_array<float>(32)); }

__global__ void waits_unannounced() { __syncthreads(); }

CASE(plain_kernel_with_barrier) { LAUNCH(false, waits_unannounced, 1, 32, 0); }

// Warps.

__global__ void shuffles(int* y) {
  const int lane = threadIdx.x;
  y[lane] = __shfl_sync(0xffffffff, lane * 10, 5);
  y[32 + lane] = __shfl_up_sync(0xffffffff, lane * 10, 2);
  y[64 + lane] = __shfl_down_sync(0xffffffff, lane * 10, 2, 8);
  y[96 + lane] = __shfl_xor_sync(0xffffffff, lane * 10, 9);
  y[128 + lane] = __shfl_sync(0xffffffff, lane * 10, lane + 3, 16);
}

CASE(warp_shuffles) {
  int* y = device_array<int>(160);
  LAUNCH(true, shuffles, 1, 32, 0, y);
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane) {
    wrong += y[lane] != 50;
    wrong += y[32 + lane] != (lane < 2 ? lane : lane - 2) * 10;
    wrong += y[64 + lane] != (lane % 8 > 5 ? lane : lane + 2) * 10;
    wrong += y[96 + lane] != (lane ^ 9) * 10;
    wrong += y[128 + lane] != (lane / 16 * 16 + (lane + 3) % 16) * 10;
  }
  say("wrong %d", wrong);
}

__global__ void votes(unsigned* y) {
  const unsigned lane = threadIdx.x;
  y[lane] = __ballot_sync(0xffffffff, lane % 2);
  y[32 + lane] = __any_sync(0xffffffff, lane == 31);
  y[64 + lane] = __all_sync(0xffffffff, lane != 31);
  y[96 + lane] = __match_any_sync(0xffffffff, lane / 8);
  y[128 + lane] = __reduce_add_sync(0xffffffff, lane);
  y[160 + lane] = lane < 8 ? __reduce_max_sync(0x000000ff, lane) : __reduce_max_sync(0xffffff00, lane);
  __syncwarp();
}

CASE(warp_votes) {
  unsigned* y = device_array<unsigned>(192);
  LAUNCH(true, votes, 1, 32, 0, y);
  say("%x %u %u %x %x %u %u %u", y[0], y[32], y[64], y[96], y[127], y[128], y[160], y[191]);
}

__global__ void converged(unsigned* y) {
  if (threadIdx.x % 4 == 0) {
    const unsigned mask = __activemask();
    y[threadIdx.x] = mask;
    y[32 + threadIdx.x] = __shfl_sync(mask, threadIdx.x, 8);
  } else {
    y[threadIdx.x] = __activemask();
  }
}

CASE(active_mask) {
  unsigned* y = device_array<unsigned>(64);
  LAUNCH(true, converged, 1, 32, 0, y);
  say("%x %x %u", y[4], y[5], y[32]);
}

__global__ void reads_missing_lane(float* y) { y[threadIdx.x] = __shfl_down_sync(0xffffffff, 1.0f, 8); }

CASE(missing_lane) {
  float* y = device_array<float>(24);
  LAUNCH(true, reads_missing_lane, 1, 24, 0, y);
  say("%g %d", y[15], isnan(y[16]));
}

__global__ void wrong_mask(float* y) {
#line 401 "submission.cu"
  y[threadIdx.x] = __shfl_sync(0x0000ffff, 1.0f, 0);
#line 260 "engine_cases.cpp"
}

CASE(lane_outside_mask) { LAUNCH(true, wrong_mask, 1, 32, 0, device_array<float>(32)); }

__global__ void lanes_leave(int* y) {
  if (threadIdx.x >= 20) return;
  y[threadIdx.x] = __popc(__ballot_sync(0xffffffff, 1));
}

CASE(lanes_that_left) {
  int* y = device_array<int>(32);
  LAUNCH(true, lanes_leave, 1, 32, 0, y);
  say("%d", y[19]);
}

// Global memory.

__global__ void reads_at(const float* x, float* y, int offset) {
#line 501 "submission.cu"
  const float value = __ldg(x + offset + static_cast<int>(threadIdx.x));
  y[threadIdx.x] = value;
#line 285 "engine_cases.cpp"
}

__global__ void writes_at(float* y, int offset) {
  if (threadIdx.x == 5)
#line 601 "submission.cu"
    y[offset] = 1.0f;
#line 292 "engine_cases.cpp"
}

__global__ void reads_vector_at(const float* x, float* y, int offset) {
#line 551 "submission.cu"
  float4 value = reinterpret_cast<const float4*>(x)[offset];
  value.x = fmaxf(value.x, 0.0f);
  value.y = fmaxf(value.y, 0.0f);
  *reinterpret_cast<float4*>(y) = value;
#line 305 "engine_cases.cpp"
}

// `a` is an offset in floats of an array of 1024; `b` says whether the kernel waits.
CASE(read_at) {
  float* x = device_array<float>(1024);
  float* y = device_array<float>(4);
  for (int i = 0; i < 1024; ++i) x[i] = 2.0f;
  b ? LAUNCH(true, reads_at, 1, 4, 0, x, y, a) : LAUNCH(false, reads_at, 1, 4, 0, x, y, a);
  say("%g", y[0]);
}

CASE(vector_read_at) {
  float* x = device_array<float>(1024);
  float* y = device_array<float>(4);
  b ? LAUNCH(true, reads_vector_at, 1, 1, 0, x, y, a) : LAUNCH(false, reads_vector_at, 1, 1, 0, x, y, a);
}

CASE(write_at) {
  float* y = device_array<float>(1024);
  b ? LAUNCH(true, writes_at, 2, 32, 0, y, a) : LAUNCH(false, writes_at, 2, 32, 0, y, a);
}

CASE(null_pointer) { LAUNCH(false, writes_at, 1, 32, 0, static_cast<float*>(nullptr), 2); }

CASE(use_after_free) {
  float* y = device_array<float>(1024);
  cudaFree(y);
  LAUNCH(false, writes_at, 1, 32, 0, y, 2);
}

CASE(fresh_memory) {
  float* y = device_array<float>(3);
  say("%d %d", isnan(y[0]), isnan(y[2]));
}

// An array of 4052 bytes has 12 behind it, and 32 before it, that are not yet a guard page.
CASE(write_into_slack) {
  float* y = device_array<float>(1013);
  if (b == 0) {
    LAUNCH(false, writes_at, 1, 32, 0, y, a);
  } else {
    y[a] = 1.0f;
  }
}

// Shared memory.

__global__ void reads_fresh_shared(int* y) {
  float (&s)[8] = emu::shared<float[8]>(3);
  float* d = emu::dynamic_shared<float>();
  y[blockIdx.x] = isnan(s[0]) && isnan(d[7]);
  s[0] = d[7] = 1.0f;
}

CASE(fresh_shared) {
  int* y = device_array<int>(3);
  LAUNCH(false, reads_fresh_shared, 3, 1, 32, y);
  say("%d %d %d", y[0], y[1], y[2]);
}

// The values of memory that was never written: of the heap, of a static shared array, of a dynamic one.
__global__ void copies_fresh(float* y) {
  float (&s)[8] = emu::shared<float[8]>(5);
  y[0] = s[5];
  y[1] = emu::dynamic_shared<float>()[5];
}

CASE(fresh_values) {
  const float* fresh = device_array<float>(4);
  float* y = device_array<float>(2);
  LAUNCH(false, copies_fresh, 1, 1, 32, y);
  say("%g %g %g", fresh[3], y[0], y[1]);
}

__global__ void shared_at(float* y, int offset) {
  float (&s)[9] = emu::shared<float[9]>(4);
#line 701 "submission.cu"
  y[0] = s[offset];
#line 350 "engine_cases.cpp"
}

CASE(static_shared_at) { LAUNCH(false, shared_at, 1, 1, 0, device_array<float>(1), a); }

__global__ void dynamic_at(int offset) {
  float* s = emu::dynamic_shared<float>();
#line 801 "submission.cu"
  s[offset] = 1.0f;
#line 360 "engine_cases.cpp"
}

CASE(dynamic_shared_at) { LAUNCH(true, dynamic_at, 2, 1, b, a); }

__global__ void much_shared() {
  emu::shared<float[8192]>(5);
  emu::shared<float[8192]>(6);
}

CASE(too_much_shared) { LAUNCH(false, much_shared, 1, 1, 0); }

// Launches.

__global__ void marks(int* y) { y[0] = 1; }

// A bad launch: grid, block.x and shared memory from outside.
CASE(launch_rules) {
  int* y = device_array<int>(1);
  y[0] = 0;
  LAUNCH(false, marks, dim3(1, a), b, c, y);
  const char* name = cudaGetErrorName(cudaPeekAtLastError());
  const char* text = cudaGetErrorString(cudaGetLastError());
  say("%d %s %s %d", y[0], name, text, cudaGetLastError());
}

CASE(big_block) {
  int* y = device_array<int>(1);
  LAUNCH(false, marks, 1, dim3(a, b, c), 0, y);
  say("%s", cudaGetErrorName(cudaGetLastError()));
}

// As the rewriter leaves a kernel with __launch_bounds__(N); it waits where `a` says so.
template <int N>
__global__ void bounded(int* y) {
  if (emu::beyond_bounds(N)) return;
  atomicAdd(y, 1);
}

CASE(launch_bounds) {
  int* y = device_array<int>(1);
  y[0] = 0;
  if (a != 0) {
    LAUNCH(true, bounded<128>, 4, dim3(b, c), 0, y);
  } else {
    LAUNCH(false, bounded<128>, 4, dim3(b, c), 0, y);
  }
  say("%d %s", y[0], cudaGetErrorName(cudaGetLastError()));
}

CASE(opt_in) {
  int* y = device_array<int>(1);
  y[0] = 0;
  const cudaError_t too_much = cudaFuncSetAttribute(marks, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024);
  cudaGetLastError();
  cudaFuncSetAttribute(marks, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024);
  LAUNCH(false, marks, 1, 1, 100 * 1024, y);
  say("%s %d %s", cudaGetErrorName(too_much), y[0], cudaGetErrorName(cudaGetLastError()));
}

template <int N, class T>
__global__ void adds(T* y, T value) {
  y[threadIdx.x] += value * N;
}

template <class T>
void add_twice(T* y) {
  // The comma of a template's arguments is one of the macro's, too.
  emu::launch<false>("adds<2, T>", 7, emu::Config(1, 4), [&](auto&&... emu_a) { adds<2, T>(emu_a...); }, y, T(3));
  void (*kernel)(T*, T) = adds<5, T>;
  T value = 1;
  void* args[] = {&y, &value};
  emu::launch_function<false>("adds<5, T>", 8, kernel, dim3(1), dim3(4), args, 0, nullptr);
  const void* erased = emu::kernel_pointer<false>("adds<7, T>", adds<7, T>);
  emu::launch_function<true>("erased", 9, erased, dim3(1), dim3(4), args);
}

CASE(devices) {
  cudaDeviceProp properties;
  say("%s %s %s %s", cudaGetErrorName(cudaSetDevice(0)), cudaGetErrorName(cudaSetDevice(-1)),
      cudaGetErrorName(cudaGetDeviceProperties(&properties, -1)), cudaGetErrorName(cudaSetDevice(1)));
}

CASE(templates) {
  double* y = device_array<double>(4);
  for (int i = 0; i < 4; ++i) y[i] = i;
  add_twice(y);
  say("%g %g", y[0], y[3]);
}

__global__ void throws(int waits) {
  if (waits) __syncthreads();
  if (blockIdx.x == 2 && threadIdx.x == 1) throw std::runtime_error("thrown by a kernel");
}

CASE(exception) { a ? LAUNCH(true, throws, 8, 4, 0, 1) : LAUNCH(false, throws, 8, 4, 0, 0); }

__global__ void traps() { __trap(); }
__global__ void asserts(int n) {
#line 901 "submission.cu"
  assert(threadIdx.x < n && "few threads");
#line 440 "engine_cases.cpp"
}
__global__ void divides(int* y, int zero) { y[0] = 7 / zero; }
__global__ void overflows(int* y) {
  volatile char local[1 << 20];
  for (int i = 0; i < 1 << 20; i += 1024) local[i] = 1;
  y[0] = local[1024];
}

CASE(trap) { LAUNCH(false, traps, 1, 1, 0); }
CASE(assertion) { LAUNCH(false, asserts, 1, 32, 0, 20); }
CASE(division_by_zero) { LAUNCH(false, divides, 1, 1, 0, device_array<int>(1), a); }
CASE(stack_overflow) { LAUNCH(true, overflows, 1, 1, 0, device_array<int>(1)); }

__global__ void launches_inside() { LAUNCH(false, traps, 1, 1, 0); }
CASE(nested_launch) { LAUNCH(false, launches_inside, 1, 1, 0); }

// Orders.

__global__ void notes_turn(int* turn, int* y) { y[atomicAdd(turn, 1)] = blockIdx.x * blockDim.x + threadIdx.x; }

CASE(turns) {
  int* turn = device_array<int>(1);
  int* y = device_array<int>(12);
  turn[0] = 0;
  a ? LAUNCH(true, notes_turn, 3, 4, 0, turn, y) : LAUNCH(false, notes_turn, 3, 4, 0, turn, y);
  for (int i = 0; i < 12; ++i) say("%d ", y[i]);
}

// Atomics.

__global__ void counts(int* sums, float* real, unsigned* wrapped) {
  atomicAdd(&sums[0], 1);
  atomicSub(&sums[1], 2);
  atomicMax(&sums[2], static_cast<int>(blockIdx.x));
  atomicMin(&sums[3], -static_cast<int>(threadIdx.x));
  atomicAdd(real, 0.5f);
  atomicInc(wrapped, 9);
  for (int seen = sums[4], expected;
       (expected = seen, seen = atomicCAS(&sums[4], expected, expected + 3)) != expected;) {
  }
}

CASE(atomics) {
  int* sums = device_array<int>(5);
  for (int i = 0; i < 5; ++i) sums[i] = 0;
  float* real = device_array<float>(1);
  real[0] = 0;
  unsigned* wrapped = device_array<unsigned>(1);
  wrapped[0] = 0;
  LAUNCH(false, counts, 500, 64, 0, sums, real, wrapped);
  say("%d %d %d %d %d %g %u", sums[0], sums[1], sums[2], sums[3], sums[4], real[0], wrapped[0]);
}

// The runtime API.

__constant__ float weights[4];

CASE(symbols) {
  const float values[4] = {1, 2, 3, 4};
  cudaMemcpyToSymbol(weights, values, sizeof values);
  const cudaError_t error = cudaMemcpyToSymbol(weights, values, sizeof values, 4);
  cudaGetLastError();
  say("%g %s", weights[3], cudaGetErrorName(error));
}

CASE(copies) {
  float* y = device_array<float>(4);
  const float values[8] = {};
  const cudaError_t fits = cudaMemcpy(y, values, 16, cudaMemcpyHostToDevice);
  const cudaError_t overruns = cudaMemcpy(y, values, 20, cudaMemcpyHostToDevice);
  cudaGetLastError();
  say("%s %s %s", cudaGetErrorName(fits), cudaGetErrorName(overruns), cudaGetErrorName(cudaFree(y + 1)));
  cudaGetLastError();
}

CASE(properties) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, marks, 256, 48 * 1024);
  say("%d %zu %d.%d %d", properties.multiProcessorCount, properties.sharedMemPerBlockOptin, properties.major,
      properties.minor, blocks);
}

CASE(intrinsics) {
  say("%x %d %d %d %x %x ", __brev(1u), __clz(0), __ffs(8), __popc(0xff), __byte_perm(0x33221100, 0x77665544, 0x7410),
      __funnelshift_l(0x80000000u, 1u, 1));
  say("%d %u %g %g ", __mulhi(1 << 30, 16), __umulhi(0xffffffffu, 2u), __saturatef(NAN), __int_as_float(0x3f800000));
  say("%d %d %d %d ", __float2int_rn(2.5f), __float2int_ru(2.1f), __float2int_rz(-2.9f),
      __float2int_rd(1e20f) == INT_MAX);
  say("%d %d ", __fadd_rd(1.0f, 1e-9f) == 1.0f, __fadd_ru(1.0f, 1e-9f) > 1.0f);
  say("%u %g %g", min(3u, -1), max(2.0, 1.0f), min(NAN, 1.0f));
}

// Threads without a barrier, each with elements of its own (form 0), with one element for all in static (1) and dynamic
// memory (2), with equal values in one element (3), with an atomic operation (4), and behind a fence (5).
__global__ void without_barrier(int form) {
  int (&s)[64] = emu::shared<int[64]>(7);
  int* const d = emu::dynamic_shared<int>();
  const int i = static_cast<int>(threadIdx.x);
  if (form == 0) s[i] = d[i] = i;
  if (form == 1) s[9] = i;
  if (form == 2) d[9] = i;
  if (form == 3) d[9] = 7;
  if (form == 4) atomicExch(&d[9], i);
  if (form == 5) __threadfence_block();
  if (form == 5) d[9] = i;
}

CASE(shared_without_barrier) {
  LAUNCH(false, without_barrier, 2, 64, 256, a);
  say("ran");
}

extern "C" EMU_API void crash_on_the_host() { *static_cast<volatile int*>(nullptr) = 1; }
