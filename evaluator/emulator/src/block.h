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
  Votes wait_at_barrier(const char* name, const void* site, bool predicate);
  void meet(const char* name, const void* site, unsigned mask, void* frame,
            void (*resolve)(void* const* frames, unsigned lanes));
  unsigned wait_for_convergence(const void* site);
  unsigned live_lanes() const { return warps_[running_ / 32].live; }
  void mark_early_return() { threads_[running_].returned_early = true; }
  void** slots() { return slots_.data(); }

 private:
  enum class State : unsigned char { kReady, kAtBarrier, kMeeting, kConverging, kDone };

  // What every switch touches comes first and fits one line of the cache.
  struct alignas(64) Thread {
    Context context;
    uint3 index;
    State state;
    bool returned_early;
    unsigned passed;  // barriers so far
    // Why it waits.
    const char* name;
    const void* site;  // the address that called, to find the line
    // For State::kMeeting and State::kConverging.
    unsigned mask;
    void* frame;
    void (*resolve)(void* const* frames, unsigned lanes);
    unsigned converged;  // the answer to wait_for_convergence()
  };

  struct Warp {
    unsigned live;     // lanes that exist and have not returned
    unsigned ready;    // lanes that can run
    unsigned meeting;  // lanes in State::kMeeting
  };

  static void thread_main();
  void resume(unsigned rank);
  void wait(State state, const char* name, const void* site);
  void run_warp(const ThreadOrder::Warp& turn);
  bool complete_meeting(unsigned warp, unsigned lane);
  bool unblock_warp(unsigned warp);
  bool release_converging(unsigned warp);
  bool release_barrier();
  void check_barrier();
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
  Votes votes_{};     // of the barrier that fills
  Votes released_{};  // of the last one that opened
  std::exception_ptr thrown_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_BLOCK_H
