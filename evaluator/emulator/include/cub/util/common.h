// Common parts of cub's collectives: functors, thread positions, undefined values.
#ifndef WARPGRADE_EMU_CUB_COMMON_H
#define WARPGRADE_EMU_CUB_COMMON_H

#include <cstring>
#include <type_traits>

#include "emu/context.h"
#include "emu/shared.h"
#include "emu/sync.h"
#include "emu/warp.h"
#include "emu_lib/functional.h"

namespace cub {

using Sum = emu::lib::Sum;
using Max = emu::lib::Maximum<>;
using Min = emu::lib::Minimum<>;

struct Equality {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return a == b;
  }
};
struct Inequality {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return !(a == b);
  }
};

template <class Key_, class Value_>
struct KeyValuePair {
  using Key = Key_;
  using Value = Value_;
  Key key;
  Value value;
  KeyValuePair() = default;
  KeyValuePair(const Key& k, const Value& v) : key(k), value(v) {}
  bool operator!=(const KeyValuePair& other) const { return key != other.key || value != other.value; }
};

// The pair with the largest (smallest) value; the smaller key breaks ties.
struct ArgMax {
  template <class Pair>
  Pair operator()(const Pair& a, const Pair& b) const {
    return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <class Pair>
  Pair operator()(const Pair& a, const Pair& b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};

inline unsigned LaneId() { return emu::lane(); }
inline unsigned WarpId() { return emu::warp_index(); }
inline int RowMajorTid(int, int, int) { return static_cast<int>(emu::thread_rank()); }

namespace detail {

constexpr int kWarp = 32;

// Value undefined in cub. All bits are set, as in poisoned memory, which exposes uses of the value.
template <class T>
T undefined(T value) {
  if constexpr (std::is_trivially_copyable_v<T>) std::memset(static_cast<void*>(&value), 0xff, sizeof(T));
  return value;
}

// Storage for collectives constructed without storage: one per collective type and block.
template <class Collective>
typename Collective::TempStorage& private_storage() {
  static const char site = 0;
  using Storage = typename Collective::TempStorage;
  return *static_cast<Storage*>(emu::shared_storage(&site, 0, sizeof(Storage), alignof(Storage)));
}

// First lane and lane mask of the current thread's logical warp of `Threads` lanes.
template <int Threads>
unsigned logical_warp_first() {
  return emu::lane() / Threads * Threads;
}
template <int Threads>
unsigned logical_warp_mask() {
  const unsigned low = Threads == 32 ? emu::kFullMask : (1u << Threads % 32) - 1;
  return low << logical_warp_first<Threads>();
}

// Folds a thread's own items in order.
template <class T, int Items, class Op>
T fold_items(const T (&items)[Items], Op op) {
  T sum = items[0];
  for (int i = 1; i < Items; ++i) sum = op(sum, items[i]);
  return sum;
}

}  // namespace detail

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_COMMON_H
