#include "block.h"

#include <algorithm>
#include <cstdio>

#include "worker.h"

namespace emu {

void Block::begin_launch(const Kernel& kernel, const ThreadOrder& order) {
  kernel_ = &kernel;
  order_ = &order;
  count_ = static_cast<unsigned>(order.indices.size());
  warps_.resize(order.warps.size());
  slots_.resize(count_);
  for (; prepared_ < count_; ++prepared_) {
    prepare(threads_[prepared_].context, stacks_.stack_end(prepared_), StackPool::kUsableBytes, &Block::thread_main);
  }
  for (const ThreadOrder::Warp& turn : order.warps) {
    Warp& warp = warps_[turn.number];
    warp.first = &threads_[turn.first];
    warp.end = warp.first + (turn.last - turn.first);
    for (unsigned i = turn.first; i != turn.last; ++i) {
      const unsigned lane = order.ranks[i] % 32;
      threads_[i].index = order.indices[i];
      threads_[i].bit = 1u << lane;
      threads_[i].warp = &warp;
      warp.lanes[lane] = &threads_[i];
    }
  }
}

void Block::run() {
  live_ = count_;
  opened_ = skipped_ = 0;
  sites_differ_ = returned_early_ = false;
  for (unsigned number = 0; number < warps_.size(); ++number) {
    Warp& warp = warps_[number];
    const unsigned lanes = count_ - number * 32;
    warp.live = warp.ready = lanes >= 32 ? kFullMask : (1u << lanes) - 1;
    warp.at_barrier = warp.predicates = warp.meeting = warp.converging = 0;
  }
  for (;;) {
    for (const ThreadOrder::Warp& turn : order_->warps) run_warp(warps_[turn.number]);
    if (live_ == 0) return;
    if (!all_at_barrier()) stalled();
    open_barrier();
  }
}

// Entry function of every fiber. A fiber never leaves the function: after a block the fiber waits here for the next
// block, possibly in another launch and on another OS thread. The loop must not read thread-local variables.
void Block::thread_main() {
  Block& block = worker->block;
  Thread& self = *block.running_;
  for (;;) {
    try {
      block.kernel_->run(block.kernel_->closure, &self.index, &self.index + 1);
    } catch (...) {
      block.thrown_ = std::current_exception();
    }
    block.finish(self);
  }
}

void Block::finish(Thread& self) {
  // Without marked returns, a return before the first barrier counts as intentional.
  const bool excused = kernel_->marks_returns ? returned_early_ : opened_ == 0;
  skipped_ += !excused;
  returned_early_ = false;
  --live_;
  self.warp->live &= ~self.bit;
  if (self.warp->ready != 0 && !thrown_) {
    pass_on(self);
  } else {
    switch_context(self.context, scheduler_);
  }
}

// Runs a warp until each lane waits for another warp or has finished.
void Block::run_warp(Warp& warp) {
  do {
    while (warp.ready != 0) {
      switch_context(scheduler_, take_turn(warp, warp.first));
      if (thrown_) std::rethrow_exception(thrown_);
    }
  } while (unblock(warp));
}

bool Block::all_at_barrier() const {
  return std::all_of(warps_.begin(), warps_.end(), [](const Warp& warp) { return warp.at_barrier == warp.live; });
}

// Opens the barrier after every thread that has not returned has arrived.
void Block::open_barrier() {
  if (skipped_ != 0) {
    const Thread& last = last_waiting();
    fail_as(last, "divergent-barrier",
            std::to_string(live_) + " threads wait at " + last.name + ", which " + std::to_string(skipped_) +
                " threads of the block passed by before they finished");
  }
  if (sites_differ_) check_sites();
  votes_ = {0, live_};
  for (Warp& warp : warps_) {
    votes_.count += static_cast<unsigned>(__builtin_popcount(warp.predicates));
    warp.ready = warp.live;
    warp.at_barrier = warp.predicates = 0;
  }
  sites_differ_ = false;
  ++opened_;
}

const Block::Thread& Block::last_waiting() const {
  const Warp* warp = &warps_.back();
  while (warp->live == 0) --warp;
  return *warp->lanes[31 - __builtin_clz(warp->live)];
}

// Throws if lanes of one warp arrived at different barriers. The compiler may duplicate a call, so only different lines
// count.
void Block::check_sites() {
  for (const Warp& warp : warps_) {
    if (warp.live == 0) continue;
    const Thread& first = *warp.lanes[__builtin_ctz(warp.live)];
    for (unsigned rest = warp.live; rest != 0; rest &= rest - 1) {
      const Thread& thread = *warp.lanes[__builtin_ctz(rest)];
      if (!worker->lines.differ(thread.site, first.site)) continue;
      fail_as(thread, "divergent-barrier",
              "lanes of one warp wait at different barriers, this one at " + std::string(thread.name) +
                  ", another at " + first.name + worker->lines.describe(first.site));
    }
  }
}

// Makes progress in a warp without runnable lanes: first lanes whose partners have returned, then lanes that wait for
// convergence.
bool Block::unblock(Warp& warp) {
  for (unsigned rest = warp.meeting; rest != 0; rest &= rest - 1) {
    const Thread& thread = *warp.lanes[__builtin_ctz(rest)];
    if (!can_meet(warp, thread)) continue;
    complete_meeting(warp, thread);
    warp.ready |= thread.bit;
    return true;
  }
  return release_converging(warp);
}

unsigned Block::wait_for_convergence(const void* site) {
  Thread& self = *running_;
  self.warp->converging |= self.bit;
  wait(self, "__activemask", site);
  return self.converged;
}

// Releases the group of lanes that wait at the same program location.
bool Block::release_converging(Warp& warp) {
  if (warp.converging == 0) return false;
  const void* site = warp.lanes[__builtin_ctz(warp.converging)]->site;
  unsigned group = 0;
  for (unsigned rest = warp.converging; rest != 0; rest &= rest - 1) {
    const Thread& thread = *warp.lanes[__builtin_ctz(rest)];
    if (thread.site == site) group |= thread.bit;
  }
  for (unsigned rest = group; rest != 0; rest &= rest - 1) warp.lanes[__builtin_ctz(rest)]->converged = group;
  warp.converging &= ~group;
  warp.ready |= group;
  return true;
}

// All partners of `self` wait in some rendezvous. If the rendezvous is the same, `self` computes the results of all
// lanes and continues without a switch.
void Block::come_last(Thread& self, const char* name, const void* site) {
  if (!can_meet(*self.warp, self)) return wait(self, name, site);
  complete_meeting(*self.warp, self);
}

// Returns whether all partners of `self` wait with the same mask and the same operation.
bool Block::can_meet(const Warp& warp, const Thread& self) {
  const unsigned lanes = self.mask & warp.live;
  if ((lanes & ~warp.meeting) != 0) return false;
  if (warp.uniform) return true;
  const Resolve* operation = warp.operations[__builtin_ctz(self.bit)];
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int other = __builtin_ctz(rest);
    if (warp.lanes[other]->mask != self.mask || warp.operations[other] != operation) return false;
  }
  return true;
}

// Completes the rendezvous of `self` and its partners. All lanes except `self` become ready. Requires can_meet().
void Block::complete_meeting(Warp& warp, const Thread& self) {
  const unsigned lanes = self.mask & warp.live;
  warp.operations[__builtin_ctz(self.bit)](warp.frames, lanes);
  warp.meeting &= ~lanes;
  warp.ready |= lanes & ~self.bit;
}

// Reports a deadlock, with the state of all threads, for a lane that waits in a rendezvous. Such a lane must exist.
void Block::stalled() {
  const Warp* warp = warps_.data();
  while (warp->meeting == 0) ++warp;
  fail_as(*warp->lanes[__builtin_ctz(warp->meeting)], "deadlock", "no thread can continue: " + waiting_text());
}

std::string Block::waiting_text() const {
  struct Group {
    const Thread* example;
    bool meets;
    unsigned count;
  };
  std::vector<Group> groups;
  for (unsigned rank = 0; rank < count_; ++rank) {
    const Warp& warp = warps_[rank / 32];
    const Thread& thread = *warp.lanes[rank % 32];
    if ((warp.live & thread.bit) == 0) continue;
    const bool meets = (warp.meeting & thread.bit) != 0;
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

void Block::fail_as(const Thread& thread, const char* code, const std::string& detail) {
  threadIdx = thread.index;
  fail(code, detail, thread.site);
}

}  // namespace emu
