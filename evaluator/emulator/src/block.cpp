#include "block.h"

#include <cstdio>

#include "emu/sync.h"
#include "worker.h"

namespace emu {

void Block::begin_launch(const Kernel& kernel, const ThreadOrder& order) {
  kernel_ = &kernel;
  order_ = &order;
  const std::size_t count = order.indices.size();
  threads_.resize(count);
  warps_.resize(order.warps.size());
  slots_.resize(count);
  for (std::size_t i = 0; i < count; ++i) threads_[order.ranks[i]].index = order.indices[i];
}

void Block::run() {
  live_ = static_cast<unsigned>(threads_.size());
  at_barrier_ = 0;
  votes_ = {};
  thrown_ = nullptr;
  slots_.assign(slots_.size(), nullptr);
  for (unsigned rank = 0; rank < live_; ++rank) {
    Thread& thread = threads_[rank];
    thread.state = State::kReady;
    thread.returned_early = false;
    thread.passed = 0;
    prepare(thread.context, stacks_.stack_end(rank), StackPool::kUsableBytes, &Block::thread_main);
  }
  for (unsigned number = 0; number < warps_.size(); ++number) {
    const unsigned lanes = live_ - number * 32;
    const unsigned all = lanes >= 32 ? kFullMask : (1u << lanes) - 1;
    warps_[number] = {all, all, 0};
  }
  for (;;) {
    for (const ThreadOrder::Warp& turn : order_->warps) run_warp(turn);
    if (live_ == 0) return;
    if (!release_barrier()) stalled();
  }
}

// Where every fiber starts. It is never left: a finished thread's stack is prepared anew for the next block.
void Block::thread_main() {
  Block& block = worker->block;
  Thread& self = block.threads_[block.running_];
  try {
    block.kernel_->run(block.kernel_->closure, &self.index, &self.index + 1);
  } catch (...) {
    block.thrown_ = std::current_exception();
  }
  self.state = State::kDone;
  --block.live_;
  block.warps_[block.running_ / 32].live &= ~(1u << block.running_ % 32);
  switch_context(self.context, block.scheduler_);
  __builtin_unreachable();
}

inline void Block::resume(unsigned rank) {
  running_ = rank;
  Thread& thread = threads_[rank];
  threadIdx = thread.index;
  switch_context(scheduler_, thread.context);
  if (thrown_) std::rethrow_exception(thrown_);
}

// Stops the running thread until somebody makes it ready.
inline void Block::wait(State state, const char* name, const void* site) {
  Thread& self = threads_[running_];
  self.state = state;
  self.name = name;
  self.site = site;
  switch_context(self.context, scheduler_);
}

// Runs a warp until each of its lanes waits for another warp, or is done.
void Block::run_warp(const ThreadOrder::Warp& turn) {
  Warp& warp = warps_[turn.number];
  do {
    while (warp.ready != 0) {
      for (unsigned i = turn.first; i != turn.last; ++i) {
        const unsigned rank = order_->ranks[i];
        const unsigned bit = 1u << rank % 32;
        if (i + 2 < turn.last) prefetch(threads_[order_->ranks[i + 2]].context);
        if ((warp.ready & bit) == 0) continue;
        warp.ready &= ~bit;
        resume(rank);
      }
    }
  } while (unblock_warp(turn.number));
}

Block::Votes Block::wait_at_barrier(const char* name, const void* site, bool predicate) {
  ++at_barrier_;
  ++votes_.voters;
  votes_.count += predicate;
  wait(State::kAtBarrier, name, site);
  return released_;
}

// Opens the barrier when every thread that has not returned is there.
bool Block::release_barrier() {
  if (at_barrier_ != live_) return false;
  check_barrier();
  for (unsigned rank = 0; rank < threads_.size(); ++rank) {
    Thread& thread = threads_[rank];
    if (thread.state == State::kDone) continue;
    thread.state = State::kReady;
    ++thread.passed;
    warps_[rank / 32].ready |= 1u << rank % 32;
  }
  at_barrier_ = 0;
  released_ = votes_;
  votes_ = {};
  return true;
}

// Describes and throws what compute-sanitizer's synccheck calls divergent threads; README.md says what counts.
void Block::check_barrier() {
  unsigned waiting = 0;
  unsigned skipped = 0;
  for (unsigned rank = 0; rank < threads_.size(); ++rank) {
    const Thread& thread = threads_[rank];
    if (thread.state != State::kDone) {
      waiting = rank;
      continue;
    }
    const bool excused = kernel_->marks_returns ? thread.returned_early : thread.passed == 0;
    skipped += !excused;
  }
  if (skipped != 0) {
    fail_as(waiting, "divergent-barrier",
            std::to_string(live_) + " threads wait at " + threads_[waiting].name + ", which " +
                std::to_string(skipped) + " threads of the block passed by before they finished");
  }
  unsigned first = 0;  // a lane of the warp at hand
  for (unsigned rank = 0; rank < threads_.size(); ++rank) {
    if (rank % 32 == 0 || threads_[first].state == State::kDone) first = rank;
    const Thread& thread = threads_[rank];
    const Thread& other = threads_[first];
    if (thread.state == State::kDone || thread.site == other.site) continue;
    // The compiler may have made two copies of one call. Only places in different lines are different barriers.
    if (worker->lines.differ(thread.site, other.site)) {
      fail_as(rank, "divergent-barrier",
              "lanes of one warp wait at different barriers, this one at " + std::string(thread.name) +
                  ", another at " + other.name + worker->lines.describe(other.site));
    }
  }
}

// Makes progress in a warp of which no lane can run: lanes whose partners have returned, then lanes that ask who is
// with them.
bool Block::unblock_warp(unsigned number) {
  Warp& warp = warps_[number];
  for (unsigned rest = warp.meeting; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
    if ((warp.meeting >> lane & 1u) != 0 && complete_meeting(number, lane)) {
      warp.ready |= 1u << lane;
      threads_[number * 32 + lane].state = State::kReady;
      return true;
    }
  }
  return release_converging(number);
}

unsigned Block::wait_for_convergence(const void* site) {
  wait(State::kConverging, "__activemask", site);
  return threads_[running_].converged;
}

// Lanes at the same place of the program are one group, which goes on together.
bool Block::release_converging(unsigned number) {
  Warp& warp = warps_[number];
  for (unsigned rest = warp.live; rest != 0; rest &= rest - 1) {
    const Thread& first = threads_[number * 32 + static_cast<unsigned>(__builtin_ctz(rest))];
    if (first.state != State::kConverging) continue;
    unsigned group = 0;
    for (unsigned lanes = rest; lanes != 0; lanes &= lanes - 1) {
      const unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
      const Thread& thread = threads_[number * 32 + lane];
      if (thread.state == State::kConverging && thread.site == first.site) group |= 1u << lane;
    }
    for (unsigned lanes = group; lanes != 0; lanes &= lanes - 1) {
      Thread& thread = threads_[number * 32 + static_cast<unsigned>(__builtin_ctz(lanes))];
      thread.state = State::kReady;
      thread.converged = group;
    }
    warp.ready |= group;
    return true;
  }
  return false;
}

void Block::meet(const char* name, const void* site, unsigned mask, void* frame,
                 void (*resolve)(void* const* frames, unsigned lanes)) {
  const unsigned number = running_ / 32;
  const unsigned lane = running_ % 32;
  Thread& self = threads_[running_];
  self.mask = mask;
  self.frame = frame;
  self.resolve = resolve;
  Warp& warp = warps_[number];
  warp.meeting |= 1u << lane;
  // The last lane to come does the work for all, and goes on without a switch.
  if (!complete_meeting(number, lane)) wait(State::kMeeting, name, site);
}

// Lets the lanes that `lane` waits for meet, if all of them are there with the same mask and the same operation.
// Everybody but `lane` itself is made ready.
bool Block::complete_meeting(unsigned number, unsigned lane) {
  Warp& warp = warps_[number];
  const Thread& self = threads_[number * 32 + lane];
  const unsigned lanes = self.mask & warp.live;
  if ((lanes & ~warp.meeting) != 0) return false;
  void* frames[32] = {};
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const unsigned other = static_cast<unsigned>(__builtin_ctz(rest));
    const Thread& thread = threads_[number * 32 + other];
    if (thread.mask != self.mask || thread.resolve != self.resolve) return false;
    frames[other] = thread.frame;
  }
  self.resolve(frames, lanes);
  warp.meeting &= ~lanes;
  const unsigned others = lanes & ~(1u << lane);
  for (unsigned rest = others; rest != 0; rest &= rest - 1) {
    threads_[number * 32 + static_cast<unsigned>(__builtin_ctz(rest))].state = State::kReady;
  }
  warp.ready |= others;
  return true;
}

// Says what everybody waits for when nobody can go on.
void Block::stalled() {
  for (unsigned rank = 0; rank < threads_.size(); ++rank) {
    if (threads_[rank].state == State::kMeeting) fail_as(rank, "deadlock", "nobody can go on: " + waiting_text());
  }
  fail_as(0, "deadlock", "nobody can go on: " + waiting_text());
}

std::string Block::waiting_text() const {
  struct Group {
    const Thread* example;
    unsigned count;
  };
  std::vector<Group> groups;
  for (const Thread& thread : threads_) {
    if (thread.state == State::kDone) continue;
    bool known = false;
    for (Group& group : groups) {
      const Thread& example = *group.example;
      const bool same_mask = thread.state != State::kMeeting || thread.mask == example.mask;
      if (thread.state != example.state || thread.site != example.site || !same_mask) continue;
      ++group.count;
      known = true;
    }
    if (!known) groups.push_back({&thread, 1});
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < 4; ++i) {
    const Thread& thread = *groups[i].example;
    text += (i == 0 ? "" : ", ") + std::to_string(groups[i].count) + " threads wait at " + thread.name;
    if (thread.state == State::kMeeting) {
      char mask[32];
      std::snprintf(mask, sizeof mask, " with mask 0x%08x", thread.mask);
      text += mask;
    }
    text += worker->lines.describe(thread.site);
  }
  return text + (groups.size() > 4 ? ", and others elsewhere" : "");
}

void Block::fail_as(unsigned rank, const char* code, const std::string& detail) {
  threadIdx = threads_[rank].index;
  fail(code, detail, threads_[rank].site);
}

}  // namespace emu
