// cooperative_groups::reduce and its functors.
#ifndef WARPGRADE_EMU_COOPERATIVE_GROUPS_REDUCE_H
#define WARPGRADE_EMU_COOPERATIVE_GROUPS_REDUCE_H

#include <cooperative_groups.h>

namespace cooperative_groups {

#define EMU_FUNCTOR(Name, Expression)                                 \
  template <class T>                                                  \
  struct Name {                                                       \
    T operator()(const T& a, const T& b) const { return Expression; } \
  };
EMU_FUNCTOR(plus, a + b)
EMU_FUNCTOR(less, b < a ? b : a)
EMU_FUNCTOR(greater, a < b ? b : a)
EMU_FUNCTOR(bit_and, a& b)
EMU_FUNCTOR(bit_or, a | b)
EMU_FUNCTOR(bit_xor, a ^ b)
#undef EMU_FUNCTOR

// Reduces the values of all ranks; every rank receives the result. The pairing is a butterfly, so rounding errors stay
// as small as on a GPU.
template <class Group, class T, class Op>
EMU_INLINE T reduce(const Group& group, T value, Op op) {
  const unsigned size = group.size();
  const unsigned mask = group.emu_mask();
  return emu::exchange("reduce", mask, value, [=](const emu::Peers<T>& peers) -> T {
    const auto tree = [&](const auto& self, unsigned first, unsigned length) -> T {
      if (length == 1) return peers[details::lane_of(mask, first)];
      const unsigned left = (length + 1) / 2;
      return op(self(self, first, left), self(self, first + left, length - left));
    };
    return tree(tree, 0, size);
  });
}

}  // namespace cooperative_groups

#endif  // WARPGRADE_EMU_COOPERATIVE_GROUPS_REDUCE_H
