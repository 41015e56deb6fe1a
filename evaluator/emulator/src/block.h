// One block of a kernel that waits: its threads as fibers, its barrier, and the meetings of its warps' lanes.
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

// Runs blocks one after the other on one OS thread. Threads take turns, each until it waits; nobody is interrupted,
// so what a thread does between two barriers happens at once, as seen by the others of its block.
class Block {
 public:
  explicit Block(StackPool& stacks) : stacks_(stacks), threads_(limits::kThreadsPerBlock) {}

  void begin_launch(const Kernel& kernel, const ThreadOrder& order);

  // Runs the block that blockIdx names. Throws KernelError and what the kernel throws; the block's other threads are
  // then abandoned where they wait, without destructors, and this object can run nothing more.
  void run();

  // What follows is called on the stack of the running thread.

  struct Votes {
    unsigned count;   // threads with a predicate that is not 0
    unsigned voters;  // threads that came
  };

  // Waits for the block; then votes() has what everybody brought. Inline, as are meet() and wait(), and with nothing to
  // do after the switch: each frame between a kernel and the switch is more memory to touch for every thread.
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

  // Meets the lanes of `mask`, which names the running thread: see rendezvous().
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

  // What every switch touches fits one line of the cache.
  struct alignas(64) Thread {
    Context context;
    uint3 index;
    unsigned bit;  // of the lane
    Warp* warp;
    // Why it waits.
    const char* name;
    const void* site;    // the address that called, to find the line
    unsigned mask;       // of the lanes that it meets
    unsigned converged;  // the answer to wait_for_convergence()
  };

  // Lanes of a warp by what they do. A lane that runs, or has returned, is in none but perhaps `live`.
  struct Warp {
    unsigned live;        // exist and have not returned
    unsigned ready;       // can run
    unsigned at_barrier;  // wait for the block
    unsigned predicates;  // of those, the ones with a predicate that is not 0
    unsigned meeting;     // wait for the other lanes of a mask
    unsigned converging;  // wait to see who else comes here
    const void* site;     // of the first at the barrier
    Thread* first;        // in the order of their turns
    Thread* end;
    Thread* lanes[32];    // by number
    // Of the first that waits to meet, and whether all others have the same.
    unsigned mask;
    Resolve* operation;
    bool uniform;
    // What the lanes that meet brought.
    void* frames[32];
    Resolve* operations[32];
  };

  static void thread_main();

  // Stops the running thread, which is in one of its warp's masks, until somebody makes it ready.
  void wait(Thread& self, const char* name, const void* site) {
    self.name = name;
    self.site = site;
    if (self.warp->ready != 0) {
      pass_on(self);
    } else {
      switch_context(self.context, scheduler_);
    }
  }

  // Goes from one thread straight to its warp's next that can run: there is one. The scheduler in between would be a
  // second switch for each wait.
  void pass_on(Thread& self) {
    switch_context(self.context, take_turn(*self.warp, &self + 1));
  }

  // Makes a thread the running one, but for the switch to it: the warp's first that can run, from `next` on and around.
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
  // In the order of their turns, so that the one after a thread is known without a look at memory. As many as there can
  // be, since contexts must not move.
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;      // of this launch, by number
  std::vector<void*> slots_;     // see block_slots(); null between two exchanges
  unsigned count_ = 0;           // threads in a block of this launch
  unsigned prepared_ = 0;        // threads whose contexts stand in thread_main()
  Context scheduler_;
  Thread* running_ = nullptr;
  unsigned live_ = 0;
  unsigned opened_ = 0;          // barriers so far
  unsigned skipped_ = 0;         // threads that ran to their end, and now miss at the barrier
  bool sites_differ_ = false;    // lanes of one warp came to the barrier from different places
  bool returned_early_ = false;  // the running thread is about to return on purpose
  Votes votes_{};                // of the last barrier that opened
  std::exception_ptr thrown_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_BLOCK_H
