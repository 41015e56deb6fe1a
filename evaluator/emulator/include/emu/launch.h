// Launches: what the rewriter makes of `kernel<<<grid, block, shared, stream>>>(arguments)`.
#ifndef WARPGRADE_EMU_LAUNCH_H
#define WARPGRADE_EMU_LAUNCH_H

#include <cstddef>
#include <tuple>

#include "driver_types.h"
#include "emu/context.h"

namespace emu {

// What stands between <<< and >>>. The stream only has to be there: everything runs in order.
struct Config {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_bytes;

  Config(dim3 grid_, dim3 block_, std::size_t dynamic_bytes_ = 0, cudaStream_t = nullptr)
      : grid(grid_), block(block_), dynamic_bytes(dynamic_bytes_) {}
};

// A kernel with its arguments, its type erased. `run` calls it once for each index of a list, in the list's order.
struct Kernel {
  const char* name;
  int line;            // of the launch, in the submission's text; 0: unknown
  bool waits;          // it may reach a barrier or a warp operation: its threads need stacks of their own
  bool marks_returns;  // its `return;` statements call early_return()
  void* closure;
  void (*run)(void* closure, const uint3* first, const uint3* last);
};

// Checks the launch as the driver does, then runs every block. A bad configuration runs nothing and sets what
// cudaGetLastError() gives. Throws KernelError, and what the kernel itself throws.
EMU_API cudaError_t run(const Kernel& kernel, const Config& config);

#ifdef WARPGRADE_EMU_MARKS_RETURNS
static constexpr bool kMarksReturns = true;
#else
static constexpr bool kMarksReturns = false;
#endif

// A kernel's call and its arguments, kept once for all threads.
template <class Call, class... Args>
struct Bound {
  Call& call;
  std::tuple<Args...> args;

  // The threads of a kernel without barriers are this loop. The kernel is inlined into it, and the arguments are
  // copied into variables that nothing points to, so that they can stay in registers.
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

template <bool kWaits, class Call, class... Args>
cudaError_t launch(const char* name, int line, const Config& config, Call call, Args... args) {
  Bound<Call, Args...> bound{call, std::tuple<Args...>(args...)};
  return run(Kernel{name, line, kWaits, kMarksReturns, &bound, &Bound<Call, Args...>::run}, config);
}

}  // namespace emu

// The typed form of cudaLaunchKernel: nothing says whether the kernel waits, so it is run as if it did.
template <class... Params>
inline cudaError_t cudaLaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, void** args,
                                    std::size_t dynamic_bytes = 0, cudaStream_t stream = nullptr) {
  auto call = [kernel, args]() {
    std::size_t next = 0;
    // Braces order the reads of args[0], args[1] ..., as a call's parentheses would not.
    std::tuple<Params...> values{*static_cast<std::remove_reference_t<Params>*>(args[next++])...};
    std::apply(kernel, values);
  };
  return emu::launch<true>("kernel", 0, emu::Config(grid, block, dynamic_bytes, stream), call);
}

// A kernel behind `const void*` has lost its parameters, which nothing here can give back.
EMU_API cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, std::size_t dynamic_bytes,
                                     cudaStream_t stream);

#endif  // WARPGRADE_EMU_LAUNCH_H
