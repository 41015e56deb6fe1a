// The kernels of spot.cu on the CPU: the threads of a block are threads, its barrier is a barrier.

#include <barrier>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx;
static Index gridDim, blockDim;
static std::barrier<>* block_barrier;
static std::mutex atomics;

static void __syncthreads() { block_barrier->arrive_and_wait(); }
static void __threadfence() {}
static void __threadfence_system() {}
static unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  std::lock_guard lock(atomics);
  const auto before = *at;
  *at += value;
  return before;
}
static unsigned long long atomicExch(unsigned long long* at, unsigned long long value) {
  std::lock_guard lock(atomics);
  const auto before = *at;
  *at = value;
  return before;
}

#include "spot.cu"

template <typename Kernel>
static void launch(unsigned blocks, unsigned threads, Kernel kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned block = 0; block < blocks; ++block) {
    std::barrier<> barrier(threads);
    block_barrier = &barrier;
    std::vector<std::thread> running;
    for (unsigned thread = 0; thread < threads; ++thread) {
      running.emplace_back([=] {
        blockIdx.x = block;
        threadIdx.x = thread;
        kernel();
      });
    }
    for (auto& each : running) each.join();
  }
}

extern "C" void wait_on_host(const std::uint32_t* word, std::uint32_t least, const std::uint64_t* from,
                             std::uint64_t* key) {
  launch(1, 1, [=] { warpgrade_await(word, least, from, key); });
}

extern "C" void mask_on_host(unsigned blocks, unsigned threads, std::uint32_t* memory, std::uint64_t words,
                             const std::uint64_t* key) {
  launch(blocks, threads, [=] { warpgrade_mask(memory, words, key); });
}

extern "C" void digest_on_host(unsigned blocks, unsigned threads, const unsigned char* memory, std::uint64_t size_bytes,
                               std::uint64_t part, std::uint64_t* state, std::uint64_t* slot, int last) {
  launch(blocks, threads, [=] { warpgrade_digest(memory, size_bytes, part, state, slot, last); });
}
