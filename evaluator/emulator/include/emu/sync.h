// Synchronization between threads: the block barrier, and the rendezvous of a warp's lanes.
//
// All lane communication (shuffles, votes, match, reduce, __syncwarp, cooperative groups) uses one primitive,
// `exchange`: the lanes of a mask meet, each lane contributes a value, and each lane receives a result computed from
// all values.
#ifndef WARPGRADE_EMU_SYNC_H
#define WARPGRADE_EMU_SYNC_H

#include <cstring>
#include <type_traits>
#include <utility>

#include "emu/context.h"

namespace emu {

constexpr unsigned kFullMask = 0xffffffffu;

// The runtime derives the line of a wait from the return address. A tail call would leave no return address; the empty
// instruction behind the call prevents tail calls.
#define EMU_NO_TAIL_CALL() asm volatile("")

// __syncthreads() and its variants: wait for all threads of the block that have not returned. The variants return the
// number of threads with a nonzero predicate, whether all predicates were nonzero, or whether any predicate was.
EMU_API void wait_for_block(const char* name);
__attribute__((always_inline)) inline void barrier(const char* name = "__syncthreads") {
  wait_for_block(name);
  EMU_NO_TAIL_CALL();
}
EMU_API int barrier_count(int predicate);
EMU_API int barrier_and(int predicate);
EMU_API int barrier_or(int predicate);

// __activemask(): lanes of the warp at the same program location. Lanes wait until no other lane of the warp can run,
// so the result is the largest mask possible on a GPU.
EMU_API unsigned active_mask();

// Marks an intentional return: the rewriter inserts the call into each `return;` of a kernel. Later barriers do not
// wait for the thread. See "Barriers" in docs/emulator.md.
EMU_API void early_return();

// Computes an operation for the `lanes` of a rendezvous from their frames. frames[i] is undefined for other lanes.
using Resolve = void(void* const* frames, unsigned lanes);

// Meets the lanes of `mask` that have not returned; the last arriving lane calls `resolve`. Throws KernelError if the
// caller is not in `mask`.
EMU_API void rendezvous(const char* name, unsigned mask, void* frame, Resolve* resolve);

// Values contributed to one exchange, as seen by one lane.
template <class T>
class Peers {
 public:
  Peers(const T* const* values, unsigned lanes, unsigned lane) : values_(values), lanes_(lanes), lane_(lane) {}

  // Mask of the participating lanes, and the number of the observing lane.
  unsigned lanes() const { return lanes_; }
  unsigned lane() const { return lane_; }

  bool has(unsigned lane) const { return lane < warpSize && (lanes_ >> lane & 1u); }

  // Returns another lane's value. Reading an absent lane is undefined on a GPU. Here the result consists of 0xFF bytes
  // (NaN), which exposes results that depend on the value.
  T operator[](unsigned lane) const {
    if (has(lane)) return *values_[lane];
    alignas(T) unsigned char bytes[sizeof(T)];
    std::memset(bytes, 0xff, sizeof(T));
    T poison(*values_[lane_]);  // T may lack a default constructor
    std::memcpy(static_cast<void*>(&poison), bytes, sizeof(T));
    return poison;
  }

  // Folds the values of the participating lanes in lane order.
  template <class F>
  T fold(F f) const {
    unsigned rest = lanes_;
    T sum = *values_[__builtin_ctz(rest)];
    for (rest &= rest - 1; rest != 0; rest &= rest - 1) sum = f(sum, *values_[__builtin_ctz(rest)]);
    return sum;
  }

 private:
  const T* const* values_;
  unsigned lanes_;
  unsigned lane_;
};

// Meets the lanes of `mask`, contributes `value`, and returns `pick(peers)`. `name` is CUDA's name of the operation,
// for messages. The last arriving lane calls `pick` for every lane: `pick` must not use threadIdx or lane().
template <class T, class Pick>
auto exchange(const char* name, unsigned mask, T value, Pick pick) {
  using Result = std::decay_t<decltype(pick(std::declval<const Peers<T>&>()))>;
  struct Frame {
    T value;
    Pick pick;
    alignas(Result) unsigned char result[sizeof(Result)];
  };
  Frame frame{value, pick, {}};
  // Waiting lanes are suspended on their own stacks, so their frames are accessible.
  rendezvous(name, mask, &frame, [](void* const* frames, unsigned lanes) {
    const T* const* values = reinterpret_cast<const T* const*>(frames);  // first member of each frame
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
      const unsigned lane = __builtin_ctz(rest);
      Frame* own = static_cast<Frame*>(frames[lane]);
      new (own->result) Result(own->pick(Peers<T>(values, lanes, lane)));
    }
  });
  return *reinterpret_cast<Result*>(frame.result);
}

// __syncwarp().
inline void warp_barrier(unsigned mask = kFullMask, const char* name = "__syncwarp") {
  rendezvous(name, mask, nullptr, [](void* const*, unsigned) {});
  EMU_NO_TAIL_CALL();
}

// Array of one pointer per thread of the block, by rank. The caller provides the barriers.
EMU_API void** block_slots();

// Meets the whole block with two barriers, contributes `value`, and returns `pick(get, count)`. `get(rank)` is the
// value of the thread with the rank; `came(rank)` is false for threads that have returned.
template <class T>
class BlockPeers {
 public:
  explicit BlockPeers(void* const* slots) : slots_(slots) {}
  unsigned count() const { return block_threads(); }
  unsigned rank() const { return thread_rank(); }
  bool has(unsigned rank) const { return slots_[rank] != nullptr; }
  const T& operator[](unsigned rank) const { return *static_cast<const T*>(slots_[rank]); }

 private:
  void* const* slots_;
};

template <class T, class Pick>
auto block_exchange(T value, Pick pick, const char* name = "block exchange") {
  void** slots = block_slots();
  slots[thread_rank()] = &value;
  barrier(name);
  auto result = pick(BlockPeers<T>(slots));
  barrier(name);
  slots[thread_rank()] = nullptr;
  return result;
}

}  // namespace emu

#endif  // WARPGRADE_EMU_SYNC_H
