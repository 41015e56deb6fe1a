// Kernel launches: targets of the rewritten `kernel<<<grid, block, shared, stream>>>(arguments)`.
#ifndef WARPGRADE_EMU_LAUNCH_H
#define WARPGRADE_EMU_LAUNCH_H

#include <cstddef>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "driver_types.h"
#include "emu/context.h"
#include "emu/error.h"

namespace emu {

// Launch configuration between <<< and >>>. The stream is accepted and ignored: everything runs in order.
struct Config {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_bytes;

  Config(dim3 grid_, dim3 block_, std::size_t dynamic_bytes_ = 0, cudaStream_t = nullptr)
      : grid(grid_), block(block_), dynamic_bytes(dynamic_bytes_) {}
};

// Type-erased kernel with arguments. `run` executes the kernel once per index of a list, in the list's order.
struct Kernel {
  const char* name;
  int line;            // line of the launch in the submission's text; 0: unknown
  bool waits;          // may reach a barrier or warp operation: every thread needs a stack
  bool marks_returns;  // `return;` statements call early_return()
  void* closure;
  void (*run)(void* closure, const uint3* first, const uint3* last);
};

// Checks the launch like the driver and runs all blocks. An invalid configuration runs nothing and sets the error of
// cudaGetLastError(). Throws KernelError, and exceptions of the kernel.
EMU_API cudaError_t run(const Kernel& kernel, const Config& config);

// Makes the calling kernel's launch fail because blocks have more than `bound` threads.
EMU_API void refuse_launch(long long bound);

// Rewritten form of `__launch_bounds__(bound)`. Each thread of the kernel checks the bound first and returns on true,
// so nothing runs, as on a GPU. The check is inside the kernel, where template parameters have values.
inline bool beyond_bounds(long long bound) {
  if (__builtin_expect(bound <= 0 || block_threads() <= bound, 1)) return false;
  refuse_launch(bound);
  return true;
}

#ifdef WARPGRADE_EMU_MARKS_RETURNS
static constexpr bool kMarksReturns = true;
#else
static constexpr bool kMarksReturns = false;
#endif

// Call of a kernel with its arguments, stored once for all threads.
template <class Call, class... Args>
struct Bound {
  Call& call;
  std::tuple<Args...> args;

  // Thread loop of a kernel without barriers. The kernel is inlined into the loop. The arguments are copied into local
  // variables without aliases, so they can stay in registers.
  __attribute__((flatten)) static void run(void* closure, const uint3* first, const uint3* last) {
    Bound& bound = *static_cast<Bound*>(closure);
    std::apply(
        [&](auto... args) {
          for (const uint3* index = first; index != last; ++index) {
            threadIdx = *index;
            bound.call(args...);
          }
        },
        bound.args);
  }
};

// Type of a kernel's parameter, for an argument that is a list in braces.
template <std::size_t kNumber, class Pointer>
struct ParameterOf;
template <std::size_t kNumber, class... Params>
struct ParameterOf<kNumber, void (*)(Params...)> {
  using type = std::tuple_element_t<kNumber, std::tuple<Params...>>;
};
template <std::size_t kNumber, class Pointer>
using Parameter = typename ParameterOf<kNumber, Pointer>::type;

// `Result` makes the compiler check the arguments of the kernel where the launch stands, before all templates of the
// unit.
template <bool kWaits, class Call, class... Args, class Result = std::invoke_result_t<Call&, Args&...>>
cudaError_t launch(const char* name, int line, const Config& config, Call call, Args... args) {
  Bound<Call, Args...> bound{call, std::tuple<Args...>(args...)};
  return run(Kernel{name, line, kWaits, kMarksReturns, &bound, &Bound<Call, Args...>::run}, config);
}

// Target of the rewritten `cudaLaunchKernel(kernel, grid, block, args, shared, stream)`.
template <bool kWaits, class... Params>
cudaError_t launch_function(const char* name, int line, void (*kernel)(Params...), dim3 grid, dim3 block, void** args,
                            std::size_t dynamic_bytes = 0, cudaStream_t stream = nullptr) {
  auto call = [kernel, args]() {
    std::size_t next = 0;
    // Braces guarantee the order of args[0], args[1] ...; a call's argument list would not.
    std::tuple<Params...> values{*static_cast<std::remove_reference_t<Params>*>(args[next++])...};
    std::apply(kernel, values);
  };
  return launch<kWaits>(name, line, Config(grid, block, dynamic_bytes, stream), call);
}

// Kernel cast to `void*`, with the typed launch function.
struct ErasedKernel {
  const char* name;
  cudaError_t (*launch)(const ErasedKernel& self, int line, void* kernel, const Config& config, void** args);
};

// Kernels registered by kernel_pointer(), per extension.
class ErasedKernels {
 public:
  static ErasedKernels& all() {
    static ErasedKernels kernels;
    return kernels;
  }

  void add(const void* kernel, const ErasedKernel& erased) {
    std::lock_guard lock(mutex_);
    known_.emplace(kernel, erased);
  }

  // Throws KernelError for an address without a registered kernel.
  ErasedKernel at(const void* kernel) {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(kernel);
    if (found == known_.end()) throw KernelError("emulator[unsupported]: cudaLaunchKernel with an unknown pointer");
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, ErasedKernel> known_;
};

// Target of the rewritten cast of a kernel address to `void*`.
template <bool kWaits, class... Params>
void* kernel_pointer(const char* name, void (*kernel)(Params...)) {
  void* address = reinterpret_cast<void*>(kernel);
  ErasedKernels::all().add(address, {name, [](const ErasedKernel& self, int line, void* typed, const Config& config,
                                              void** args) {
                             return launch_function<kWaits>(self.name, line, reinterpret_cast<void (*)(Params...)>(typed),
                                                            config.grid, config.block, args, config.dynamic_bytes);
                           }});
  return address;
}

template <bool kWaits>
cudaError_t launch_function(const char*, int line, const void* kernel, dim3 grid, dim3 block, void** args,
                            std::size_t dynamic_bytes = 0, cudaStream_t stream = nullptr) {
  const ErasedKernel erased = ErasedKernels::all().at(kernel);
  return erased.launch(erased, line, const_cast<void*>(kernel), Config(grid, block, dynamic_bytes, stream), args);
}

}  // namespace emu

#endif  // WARPGRADE_EMU_LAUNCH_H
