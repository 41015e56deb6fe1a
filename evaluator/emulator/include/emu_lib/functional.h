// Functors for cub: cub's own, and those of cuda/functional required by newer versions of cub.
#ifndef WARPGRADE_EMU_LIB_FUNCTIONAL_H
#define WARPGRADE_EMU_LIB_FUNCTIONAL_H

namespace emu::lib {

struct Sum {
  template <class A, class B>
  auto operator()(const A& a, const B& b) const {
    return a + b;
  }
};
// Without a type argument, for any type; with a type argument, CUDA's cuda::maximum<T>.
template <class T = void>
struct Maximum {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <>
struct Maximum<void> {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};
template <class T = void>
struct Minimum {
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <>
struct Minimum<void> {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return b < a ? b : a;
  }
};

}  // namespace emu::lib

#endif  // WARPGRADE_EMU_LIB_FUNCTIONAL_H
