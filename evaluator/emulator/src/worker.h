// One OS thread that runs blocks, and everything it keeps from one launch to the next.
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
  Block* waiting_block = nullptr;  // `block` while it runs, or null where the kernel's threads cannot wait
  StackPool stacks;
  Block block{stacks};
  SharedArena shared;
  FaultCatcher faults;
  Lines lines;
  long long broken_bound = 0;  // of the launch that runs, in threads of a block; 0: none was broken
};

// The worker that runs a kernel on this OS thread; null in host code.
extern EMU_THREAD_LOCAL Worker* worker;

// Throws a KernelError about the current block, where no thread is to blame.
[[noreturn]] void fail_in_block(const char* code, const std::string& detail);

// Throws a KernelError about a launch whose blocks have all run.
[[noreturn]] void fail_after(const Kernel& kernel, const char* code, const std::string& detail);

}  // namespace emu

#endif  // WARPGRADE_EMU_WORKER_H
