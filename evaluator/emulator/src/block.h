// One block of a kernel that waits: its threads as fibers, its barrier, and the meetings of its warps' lanes.
#ifndef WARPGRADE_EMU_BLOCK_H
#define WARPGRADE_EMU_BLOCK_H

#include <exception>
#include <string>
#include <vector>

#include "emu/launch.h"
#include "fiber.h"
#include "order.h"

namespace emu {

// Runs blocks one after the other on one OS thread. Threads take turns, each until it waits; nobody is interrupted,
// so what a thread does between two barriers happens at once, as seen by the others of its block.
class Block {
 public:
  explicit Block(StackPool& stacks) : stacks_(stacks) {}

  void begin_launch(const Kernel& kernel, const ThreadOrder& order);

  // Runs the block that blockIdx names. Throws KernelError and what the kernel throws; the block's other threads are
  // then abandoned where they wait, without destructors.
  void run();

  // What follows is called on the stack of the running thread.

  struct Votes {
    unsigned count;   // threads with a predicate that is not 0
    unsigned voters;  // threads that came
  };
  // Inline, as is wait(): each frame between a kernel and the switch is more memory to touch for every thread.
  Votes wait_at_barrier(const char* name, const void* site, bool predicate) {
    Warp& warp = warps_[running_ / 32];
    if (warp.at_barrier == 0) warp.site = site;
    warp.at_barrier |= 1u << running_ % 32;
    sites_differ_ |= warp.site != site;
    ++at_barrier_;
    votes_.voters += 1;
    votes_.count += predicate;
    wait(name, site);
    return released_;
  }
  void meet(const char* name, const void* site, unsigned mask, void* frame,
            void (*resolve)(void* const* frames, unsigned lanes));
  unsigned wait_for_convergence(const void* site);
  unsigned live_lanes() const { return warps_[running_ / 32].live; }
  void mark_early_return() { returned_early_ = true; }
  void** slots() { return slots_.data(); }

 private:
  // What every switch touches comes first and fits one line of the cache.
  struct alignas(64) Thread {
    Context context;
    uint3 index;
    // Why it waits.
    const char* name;
    const void* site;  // the address that called, to find the line
    // For a lane that meets others.
    unsigned mask;
    void* frame;
    void (*resolve)(void* const* frames, unsigned lanes);
    unsigned converged;  // the answer to wait_for_convergence()
  };

  // Lanes of a warp by what they do. A lane that runs, or has returned, is in none but perhaps `live`.
  struct Warp {
    unsigned live;        // exist and have not returned
    unsigned ready;       // can run
    unsigned at_barrier;  // wait for the block
    unsigned meeting;     // wait for the other lanes of a mask
    unsigned converging;  // wait to see who else comes here
    const void* site;     // of the first at the barrier
  };

  static void thread_main();
  void resume(unsigned rank);
  // Stops the running thread, which is in one of its warp's masks, until somebody makes it ready.
  void wait(const char* name, const void* site) {
    Thread& self = threads_[running_];
    self.name = name;
    self.site = site;
    switch_context(self.context, scheduler_);
  }
  void run_warp(const ThreadOrder::Warp& turn);
  bool complete_meeting(unsigned warp, unsigned lane);
  bool unblock_warp(unsigned warp);
  bool release_converging(unsigned warp);
  void open_barrier();
  void check_sites();
  unsigned last_waiting() const;
  [[noreturn]] void stalled();
  [[noreturn]] void fail_as(unsigned rank, const char* code, const std::string& detail);
  std::string waiting_text() const;

  StackPool& stacks_;
  const Kernel* kernel_ = nullptr;
  const ThreadOrder* order_ = nullptr;
  std::vector<Thread> threads_;  // by rank
  std::vector<Warp> warps_;      // by number
  std::vector<void*> slots_;     // see block_slots()
  Context scheduler_;
  unsigned running_ = 0;
  unsigned live_ = 0;
  unsigned at_barrier_ = 0;
  unsigned opened_ = 0;          // barriers so far
  unsigned skipped_ = 0;         // threads that ran to their end, and now miss at the barrier
  bool sites_differ_ = false;    // lanes of one warp came to the barrier from different places
  bool returned_early_ = false;  // the running thread is about to return on purpose
  Votes votes_{};                // of the barrier that fills
  Votes released_{};             // of the last one that opened
  std::exception_ptr thrown_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_BLOCK_H
