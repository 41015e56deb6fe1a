// CUDA's atomics, also atomic between the worker threads of a launch. Templates, so that a submission's own
// `atomicAdd(double*, double)` or `atomicMax(float*, float)` is preferred instead of ambiguous. Only for the types that
// nvcc supports.
#ifndef WARPGRADE_EMU_ATOMICS_H
#define WARPGRADE_EMU_ATOMICS_H

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emu/context.h"
#include "vector_types.h"

namespace emu {

template <std::size_t N>
struct Word;
template <>
struct Word<1> {
  using type = std::uint8_t;
};
template <>
struct Word<2> {
  using type = std::uint16_t;
};
template <>
struct Word<4> {
  using type = std::uint32_t;
};
template <>
struct Word<8> {
  using type = std::uint64_t;
};

// Replaces *address by f(*address) atomically and returns the old value. For types of 1, 2, 4 or 8 bytes.
template <class T, class F>
inline T atomic_update(T* address, F f) {
  orders_memory = true;
  using Bits = typename Word<sizeof(T)>::type;
  Bits* word = reinterpret_cast<Bits*>(address);
  Bits seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T before;
    std::memcpy(static_cast<void*>(&before), &seen, sizeof(T));
    const T after = f(before);
    Bits wanted;
    std::memcpy(&wanted, static_cast<const void*>(&after), sizeof(T));
    if (__atomic_compare_exchange_n(word, &seen, wanted, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return before;
  }
}

// CUDA converts the operand, as in atomicAdd(float*, int). Only the address determines the type.
template <class T>
using Operand = std::common_type_t<T>;

// T if T is one of the allowed types; otherwise substitution fails.
template <class T, class... Allowed>
using OneOf = std::enable_if_t<(std::is_same_v<T, Allowed> || ...), T>;

}  // namespace emu

#define WARPGRADE_EMU_ATOMIC(NAME, EXPRESSION, ...)                                 \
  template <class T>                                                                \
  inline emu::OneOf<T, __VA_ARGS__> NAME(T* address, emu::Operand<T> value) {       \
    return emu::atomic_update(address, [value](T old) -> T { return EXPRESSION; }); \
  }                                                                                 \
  template <class T>                                                                \
  inline emu::OneOf<T, __VA_ARGS__> NAME##_block(T* address, emu::Operand<T> value) { \
    return NAME(address, value);                                                    \
  }                                                                                 \
  template <class T>                                                                \
  inline emu::OneOf<T, __VA_ARGS__> NAME##_system(T* address, emu::Operand<T> value) { \
    return NAME(address, value);                                                    \
  }
#define WARPGRADE_EMU_32 int, unsigned
#define WARPGRADE_EMU_INTEGERS int, unsigned, long long, unsigned long long

WARPGRADE_EMU_ATOMIC(atomicAdd, old + value, WARPGRADE_EMU_32, unsigned long long, float, double)
WARPGRADE_EMU_ATOMIC(atomicSub, old - value, WARPGRADE_EMU_32)
WARPGRADE_EMU_ATOMIC(atomicExch, ((void)old, value), WARPGRADE_EMU_32, unsigned long long, float)
WARPGRADE_EMU_ATOMIC(atomicMin, value < old ? value : old, WARPGRADE_EMU_INTEGERS)
WARPGRADE_EMU_ATOMIC(atomicMax, old < value ? value : old, WARPGRADE_EMU_INTEGERS)
WARPGRADE_EMU_ATOMIC(atomicAnd, old& value, WARPGRADE_EMU_INTEGERS)
WARPGRADE_EMU_ATOMIC(atomicOr, old | value, WARPGRADE_EMU_INTEGERS)
WARPGRADE_EMU_ATOMIC(atomicXor, old ^ value, WARPGRADE_EMU_INTEGERS)
WARPGRADE_EMU_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1), unsigned)
WARPGRADE_EMU_ATOMIC(atomicDec, (old == 0 || old > value) ? value : T(old - 1), unsigned)

#undef WARPGRADE_EMU_ATOMIC
#undef WARPGRADE_EMU_INTEGERS
#undef WARPGRADE_EMU_32

// Atomic per element of the vector, as on the hardware.
inline float2 atomicAdd(float2* address, float2 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
inline float4 atomicAdd(float4* address, float4 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
          atomicAdd(&address->w, value.w)};
}

namespace emu {
template <class T>
using CasWord = OneOf<T, int, unsigned, unsigned long long, unsigned short>;
}  // namespace emu

// Compares bytes instead of values, like the hardware: a NaN equals itself.
template <class T>
inline emu::CasWord<T> atomicCAS(T* address, emu::Operand<T> expected, emu::Operand<T> wanted) {
  return emu::atomic_update(
      address, [&](T old) -> T { return std::memcmp(&old, &expected, sizeof(T)) == 0 ? static_cast<T>(wanted) : old; });
}
template <class T>
inline emu::CasWord<T> atomicCAS_block(T* address, emu::Operand<T> expected, emu::Operand<T> wanted) {
  return atomicCAS(address, expected, wanted);
}
template <class T>
inline emu::CasWord<T> atomicCAS_system(T* address, emu::Operand<T> expected, emu::Operand<T> wanted) {
  return atomicCAS(address, expected, wanted);
}

#endif  // WARPGRADE_EMU_ATOMICS_H
