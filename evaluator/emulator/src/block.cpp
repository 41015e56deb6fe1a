#include "block.h"

#include <algorithm>
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
  at_barrier_ = opened_ = skipped_ = 0;
  sites_differ_ = returned_early_ = false;
  votes_ = {};
  thrown_ = nullptr;
  slots_.assign(slots_.size(), nullptr);
  for (unsigned rank = 0; rank < live_; ++rank) {
    prepare(threads_[rank].context, stacks_.stack_end(rank), StackPool::kUsableBytes, &Block::thread_main);
  }
  for (unsigned number = 0; number < warps_.size(); ++number) {
    const unsigned lanes = live_ - number * 32;
    const unsigned all = lanes >= 32 ? kFullMask : (1u << lanes) - 1;
    warps_[number] = {all, all, 0, 0, 0, nullptr};
  }
  for (;;) {
    for (const ThreadOrder::Warp& turn : order_->warps) run_warp(turn);
    if (live_ == 0) return;
    if (at_barrier_ != live_) stalled();
    open_barrier();
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
  // Where returns are not marked, those before the first barrier are taken to be on purpose.
  const bool excused = block.kernel_->marks_returns ? block.returned_early_ : block.opened_ == 0;
  block.skipped_ += !excused;
  block.returned_early_ = false;
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

// Lets everybody go on, since every thread that has not returned is at the barrier.
void Block::open_barrier() {
  if (skipped_ != 0) {
    const unsigned rank = last_waiting();
    fail_as(rank, "divergent-barrier",
            std::to_string(live_) + " threads wait at " + threads_[rank].name + ", which " + std::to_string(skipped_) +
                " threads of the block passed by before they finished");
  }
  if (sites_differ_) check_sites();
  for (Warp& warp : warps_) {
    warp.ready = warp.live;
    warp.at_barrier = 0;
  }
  sites_differ_ = false;
  at_barrier_ = 0;
  ++opened_;
  released_ = votes_;
  votes_ = {};
}

unsigned Block::last_waiting() const {
  unsigned number = static_cast<unsigned>(warps_.size()) - 1;
  while (warps_[number].live == 0) --number;
  return number * 32 + 31 - static_cast<unsigned>(__builtin_clz(warps_[number].live));
}

// Throws where lanes of one warp came to different barriers. The compiler may have made two copies of one call, so only
// places in different lines count.
void Block::check_sites() {
  for (unsigned number = 0; number < warps_.size(); ++number) {
    unsigned first = 0;
    for (unsigned rest = warps_[number].live; rest != 0; rest &= rest - 1) {
      const unsigned rank = number * 32 + static_cast<unsigned>(__builtin_ctz(rest));
      if (rest == warps_[number].live) first = rank;
      const Thread& thread = threads_[rank];
      const Thread& other = threads_[first];
      if (!worker->lines.differ(thread.site, other.site)) continue;
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
      return true;
    }
  }
  return release_converging(number);
}

unsigned Block::wait_for_convergence(const void* site) {
  warps_[running_ / 32].converging |= 1u << running_ % 32;
  wait("__activemask", site);
  return threads_[running_].converged;
}

// Lanes at the same place of the program are one group, which goes on together.
bool Block::release_converging(unsigned number) {
  Warp& warp = warps_[number];
  if (warp.converging == 0) return false;
  const Thread* lanes = &threads_[number * 32];
  const void* site = lanes[__builtin_ctz(warp.converging)].site;
  unsigned group = 0;
  for (unsigned rest = warp.converging; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
    if (lanes[lane].site == site) group |= 1u << lane;
  }
  for (unsigned rest = group; rest != 0; rest &= rest - 1) {
    threads_[number * 32 + static_cast<unsigned>(__builtin_ctz(rest))].converged = group;
  }
  warp.converging &= ~group;
  warp.ready |= group;
  return true;
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
  if (!complete_meeting(number, lane)) wait(name, site);
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
  warp.ready |= lanes & ~(1u << lane);
  return true;
}

// Says what everybody waits for when nobody can go on, on behalf of a lane that meets others: there is one.
void Block::stalled() {
  unsigned number = 0;
  while (warps_[number].meeting == 0) ++number;
  const unsigned rank = number * 32 + static_cast<unsigned>(__builtin_ctz(warps_[number].meeting));
  fail_as(rank, "deadlock", "nobody can go on: " + waiting_text());
}

std::string Block::waiting_text() const {
  struct Group {
    const Thread* example;
    bool meets;
    unsigned count;
  };
  std::vector<Group> groups;
  for (unsigned rank = 0; rank < threads_.size(); ++rank) {
    const Thread& thread = threads_[rank];
    const Warp& warp = warps_[rank / 32];
    if ((warp.live >> rank % 32 & 1u) == 0) continue;
    const bool meets = (warp.meeting >> rank % 32 & 1u) != 0;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      const Thread& example = *group.example;
      return group.meets == meets && example.site == thread.site && (!meets || example.mask == thread.mask);
    });
    if (same == groups.end()) {
      groups.push_back({&thread, meets, 1});
    } else {
      ++same->count;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < 4; ++i) {
    const Thread& thread = *groups[i].example;
    text += (i == 0 ? "" : ", ") + std::to_string(groups[i].count) + " threads wait at " + thread.name;
    if (groups[i].meets) {
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
