// One block of a kernel with synchronization: threads as fibers, the block barrier, and the rendezvous of warp lanes.
#ifndef WARPGRADE_EMU_BLOCK_H
#define WARPGRADE_EMU_BLOCK_H

#include <exception>
#include <string>
#include <vector>

#include "emu/launch.h"
#include "emu/sync.h"
#include "fiber.h"
#include "limits.h"
#include "order.h"

namespace emu {

// Runs blocks sequentially on one OS thread. Scheduling is cooperative: a thread runs until it waits. For the other
// threads of the block, the code between two barriers is therefore atomic.
class Block {
 public:
  explicit Block(StackPool& stacks) : stacks_(stacks), threads_(limits::kThreadsPerBlock) {}

  void begin_launch(const Kernel& kernel, const ThreadOrder& order);

  // Runs the block with index blockIdx. Throws KernelError and any exception of the kernel. After an exception, the
  // block's other threads are abandoned without running destructors, and the object is unusable.
  void run();

  // The following functions run on the stack of the current thread.

  struct Votes {
    unsigned count;   // threads with a nonzero predicate
    unsigned voters;  // threads that arrived
  };

  // Waits for the block; afterwards votes() holds the result. Inline, like meet() and wait(), and without code after
  // the switch: every frame between kernel and switch is memory touched by every thread.
  void wait_at_barrier(const char* name, const void* site, bool predicate) {
    Thread& self = *running_;
    Warp& warp = *self.warp;
    if (warp.at_barrier == 0) warp.site = site;
    warp.at_barrier |= self.bit;
    if (predicate) warp.predicates |= self.bit;
    sites_differ_ |= warp.site != site;
    wait(self, name, site);
  }
  Votes votes() const { return votes_; }

  // Meets the lanes of `mask`, which includes the current thread: see rendezvous().
  void meet(const char* name, const void* site, unsigned mask, void* frame, Resolve* resolve) {
    Thread& self = *running_;
    Warp& warp = *self.warp;
    if (warp.meeting == 0) {
      warp.mask = mask;
      warp.operation = resolve;
      warp.uniform = true;
    }
    warp.uniform &= warp.mask == mask && warp.operation == resolve;
    warp.meeting |= self.bit;
    const int lane = __builtin_ctz(self.bit);
    warp.frames[lane] = frame;
    warp.operations[lane] = resolve;
    self.mask = mask;
    if ((mask & warp.live & ~warp.meeting) != 0) {
      wait(self, name, site);
    } else {
      come_last(self, name, site);
    }
  }

  unsigned wait_for_convergence(const void* site);
  unsigned lane_bit() const { return running_->bit; }
  unsigned live_lanes() const { return running_->warp->live; }
  void mark_early_return() { returned_early_ = true; }
  void** slots() { return slots_.data(); }

 private:
  struct Warp;

  // The data touched by every switch fits in one cache line.
  struct alignas(64) Thread {
    Context context;
    uint3 index;
    unsigned bit;  // of the lane
    Warp* warp;
    // Reason for waiting.
    const char* name;
    const void* site;    // address of the call, for the line number
    unsigned mask;       // lanes of the rendezvous
    unsigned converged;  // result of wait_for_convergence()
  };

  // Lane sets of a warp by state. A running or finished lane is in none of the sets except `live`.
  struct Warp {
    unsigned live;        // existing and not returned
    unsigned ready;       // runnable
    unsigned at_barrier;  // waiting for the block
    unsigned predicates;  // at the barrier with a nonzero predicate
    unsigned meeting;     // waiting for the other lanes of a mask
    unsigned converging;  // waiting for convergence
    const void* site;     // location of the first lane at the barrier
    Thread* first;        // first in scheduling order
    Thread* end;
    Thread* lanes[32];    // by lane number
    // Mask and operation of the first lane in a rendezvous, and whether all other lanes have the same.
    unsigned mask;
    Resolve* operation;
    bool uniform;
    // Arguments of the lanes in a rendezvous.
    void* frames[32];
    Resolve* operations[32];
  };

  static void thread_main();

  // Suspends the current thread, which is in one of its warp's waiting sets, until another thread makes it ready.
  void wait(Thread& self, const char* name, const void* site) {
    self.name = name;
    self.site = site;
    if (self.warp->ready != 0) {
      pass_on(self);
    } else {
      switch_context(self.context, scheduler_);
    }
  }

  // Switches directly to the next ready thread of the warp, which must exist. A detour through the scheduler would cost
  // a second switch per wait.
  void pass_on(Thread& self) {
    switch_context(self.context, take_turn(*self.warp, &self + 1));
  }

  // Selects the warp's first ready thread, starting at `next` and wrapping around, as the current thread. The caller
  // switches.
  const Context& take_turn(Warp& warp, Thread* next) {
    const unsigned ready = warp.ready;
    for (;; ++next) {
      if (next == warp.end) next = warp.first;
      if ((ready & next->bit) != 0) break;
    }
    warp.ready = ready & ~next->bit;
    running_ = next;
    threadIdx = next->index;
    return next->context;
  }

  void run_warp(Warp& warp);
  void finish(Thread& self);
  void come_last(Thread& self, const char* name, const void* site);
  static bool can_meet(const Warp& warp, const Thread& self);
  static void complete_meeting(Warp& warp, const Thread& self);
  static bool unblock(Warp& warp);
  static bool release_converging(Warp& warp);
  bool all_at_barrier() const;
  void open_barrier();
  void check_sites();
  const Thread& last_waiting() const;
  [[noreturn]] void stalled();
  [[noreturn]] void fail_as(const Thread& thread, const char* code, const std::string& detail);
  std::string waiting_text() const;

  StackPool& stacks_;
  const Kernel* kernel_ = nullptr;
  const ThreadOrder* order_ = nullptr;
  // In scheduling order: the successor of a thread needs no memory access. Allocated for the maximal block size,
  // because contexts must not move.
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;      // of the current launch, by number
  std::vector<void*> slots_;     // see block_slots(); null between two exchanges
  unsigned count_ = 0;           // threads per block of the current launch
  unsigned prepared_ = 0;        // threads with a context in thread_main()
  Context scheduler_;
  Thread* running_ = nullptr;
  unsigned live_ = 0;
  unsigned opened_ = 0;          // opened barriers
  unsigned skipped_ = 0;         // threads that finished past a barrier
  bool sites_differ_ = false;    // lanes of one warp arrived from different locations
  bool returned_early_ = false;  // the current thread is about to return intentionally
  Votes votes_{};                // of the last opened barrier
  std::exception_ptr thrown_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_BLOCK_H
