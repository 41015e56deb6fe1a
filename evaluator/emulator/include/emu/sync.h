// Where threads wait for one another: the block's barrier, and the rendezvous of a warp's lanes.
//
// Everything that CUDA has for lanes that talk (shuffles, votes, match, reduce, __syncwarp, cooperative groups) is
// one primitive here, `exchange`: the lanes of a mask meet, each brings a value, each takes a result that is
// computed from all values.
#ifndef WARPGRADE_EMU_SYNC_H
#define WARPGRADE_EMU_SYNC_H

#include <cstring>
#include <type_traits>
#include <utility>

#include "emu/context.h"

namespace emu {

constexpr unsigned kFullMask = 0xffffffffu;

// The engine finds the line of a wait from the address that it returns to. A wait that is the last thing a function
// does would be a jump, which leaves no such address: this empty instruction after it keeps it a call.
#define EMU_NO_TAIL_CALL() asm volatile("")

// __syncthreads() and its three sisters: wait for every thread of the block that has not returned. They give how
// many threads brought a predicate that is not 0, whether all did, and whether any did.
EMU_API void wait_for_block(const char* name);
__attribute__((always_inline)) inline void barrier(const char* name = "__syncthreads") {
  wait_for_block(name);
  EMU_NO_TAIL_CALL();
}
EMU_API int barrier_count(int predicate);
EMU_API int barrier_and(int predicate);
EMU_API int barrier_or(int predicate);

// __activemask(): lanes of this warp that are at this place of the program together. Lanes wait here until no other
// lane of their warp can run, so the answer is the largest that a GPU could give.
EMU_API unsigned active_mask();

// Called by the rewriter's `return emu::early_return();` for each `return;` of a kernel: this thread leaves on
// purpose, and the barriers that others still reach do not wait for it. See "Barriers" in README.md.
EMU_API void early_return();

// Computes an operation for the `lanes` that met, from each one's frame; frames[i] of another lane means nothing.
using Resolve = void(void* const* frames, unsigned lanes);

// Meets the lanes of `mask` that have not returned; the last one to arrive calls `resolve`. Throws KernelError when
// the caller is not in `mask`.
EMU_API void rendezvous(const char* name, unsigned mask, void* frame, Resolve* resolve);

// What the lanes brought to one exchange, seen by one of them.
template <class T>
class Peers {
 public:
  Peers(const T* const* values, unsigned lanes, unsigned lane) : values_(values), lanes_(lanes), lane_(lane) {}

  // Lanes that met, as a mask, and the lane that looks.
  unsigned lanes() const { return lanes_; }
  unsigned lane() const { return lane_; }

  bool has(unsigned lane) const { return lane < warpSize && (lanes_ >> lane & 1u); }

  // The value of another lane. Reading a lane that did not come is undefined on a GPU; here it gives bytes of 0xFF
  // (a NaN), so that a result that depends on it is seen.
  T operator[](unsigned lane) const {
    if (has(lane)) return *values_[lane];
    alignas(T) unsigned char bytes[sizeof(T)];
    std::memset(bytes, 0xff, sizeof(T));
    T poison(*values_[lane_]);  // T need not have a default constructor
    std::memcpy(static_cast<void*>(&poison), bytes, sizeof(T));
    return poison;
  }

  // Folds the values of the lanes that came, in order of their lanes.
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

// Meets the lanes of `mask`: brings `value`, gives `pick(peers)`. `name` is CUDA's name of the operation, for
// messages. `pick` is called by the last lane to arrive, on behalf of each: it must not use threadIdx or lane().
template <class T, class Pick>
auto exchange(const char* name, unsigned mask, T value, Pick pick) {
  using Result = std::decay_t<decltype(pick(std::declval<const Peers<T>&>()))>;
  struct Frame {
    T value;
    Pick pick;
    alignas(Result) unsigned char result[sizeof(Result)];
  };
  Frame frame{value, pick, {}};
  // Lanes that wait lie still on their own stacks, so their frames can be read and written from here.
  rendezvous(name, mask, &frame, [](void* const* frames, unsigned lanes) {
    const T* const* values = reinterpret_cast<const T* const*>(frames);  // the first member of each frame
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

// One pointer for each thread of the block, by rank; whoever uses it puts barriers around.
EMU_API void** block_slots();

// Meets the whole block (two barriers): brings `value`, gives `pick(get, count)`, where `get(rank)` is the value of
// the thread with that rank; threads that have returned are skipped by `came(rank)`.
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
