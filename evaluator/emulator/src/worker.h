// OS thread that runs blocks, with all state kept between launches.
#ifndef WARPGRADE_EMU_WORKER_H
#define WARPGRADE_EMU_WORKER_H

#include "block.h"
#include "emu/context.h"
#include "fault.h"
#include "fiber.h"
#include "lines.h"
#include "shared_arena.h"

namespace emu {

struct Worker {
  const Kernel* kernel = nullptr;
  Block* waiting_block = nullptr;  // `block` while it runs; null for kernels without synchronization
  StackPool stacks;
  Block block{stacks};
  SharedArena shared;
  FaultCatcher faults;
  Lines lines;
  long long broken_bound = 0;  // launch bound violated by the current launch, in threads per block; 0 without violation
};

// Worker that runs a kernel on the current OS thread; null in host code.
extern EMU_THREAD_LOCAL Worker* worker;

// Throws a KernelError about the current block, without blaming a thread.
[[noreturn]] void fail_in_block(const char* code, const std::string& detail);

// Throws a KernelError about a launch after all blocks have run.
[[noreturn]] void fail_after(const Kernel& kernel, const char* code, const std::string& detail);

}  // namespace emu

#endif  // WARPGRADE_EMU_WORKER_H
