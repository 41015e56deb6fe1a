// Runtime entry points for kernels: emu/sync.h, emu/context.h and emu/shared.h.
#include "emu/sync.h"

#include "emu/shared.h"
#include "limits.h"
#include "worker.h"

namespace emu {
namespace {

// Address inside the calling instruction. The return address may belong to the next line.
#define CALL_SITE (static_cast<const char*>(__builtin_return_address(0)) - 1)

// Wait without a block of fibers: returns for a block of a single thread, throws otherwise.
void wait_alone(const char* name, const void* site) {
  if (worker == nullptr) throw KernelError(std::string("emulator[unsupported]: ") + name + " outside of a kernel");
  if (block_threads() == 1) return;
  fail("unsupported", std::string(name) + " in a kernel that was taken for one without barriers", site);
}

// Returns the current block of fibers; null for kernels without synchronization, and outside kernels.
Block* waiting_block() { return worker == nullptr ? nullptr : worker->waiting_block; }

Block::Votes vote(const char* name, const void* site, bool predicate) {
  if (Block* block = waiting_block(); block != nullptr) {
    block->wait_at_barrier(name, site, predicate);
    return block->votes();
  }
  wait_alone(name, site);
  return {predicate, 1};
}

[[noreturn, gnu::noinline]] void fail_outside_mask(const char* name, const void* site, unsigned mask) {
  char text[96];
  std::snprintf(text, sizeof text, "lane %u calls with mask 0x%08x, which does not name it: ", lane(), mask);
  fail("lane-outside-mask", text + std::string(name), site);
}

// Separate function because the address of `frame` escapes: rendezvous() would otherwise need a stack frame.
[[gnu::noinline]] void meet_alone(const char* name, const void* site, unsigned mask, void* frame, Resolve* resolve) {
  wait_alone(name, site);
  if ((mask & lane_bit()) == 0) fail_outside_mask(name, site, mask);
  resolve(&frame, 1);
}

}  // namespace

bool in_kernel() { return worker != nullptr; }

unsigned live_lanes() {
  const Block* block = waiting_block();
  return block == nullptr ? lane_bit() : block->live_lanes();
}

// wait_for_block() and rendezvous() end in the switch. The tail jump leaves no frame on the thread's stack and no
// `ret`, which the processor would predict from the suspended thread's calls.
void wait_for_block(const char* name) {
  if (Block* block = waiting_block(); block != nullptr) return block->wait_at_barrier(name, CALL_SITE, false);
  wait_alone(name, CALL_SITE);
}

int barrier_count(int predicate) {
  return static_cast<int>(vote("__syncthreads_count", CALL_SITE, predicate != 0).count);
}

int barrier_and(int predicate) {
  const Block::Votes votes = vote("__syncthreads_and", CALL_SITE, predicate != 0);
  return votes.count == votes.voters;
}

int barrier_or(int predicate) { return vote("__syncthreads_or", CALL_SITE, predicate != 0).count != 0; }

unsigned active_mask() {
  // In a kernel without synchronization, no two threads run together.
  Block* block = waiting_block();
  return block == nullptr ? lane_bit() : block->wait_for_convergence(CALL_SITE);
}

void early_return() {
  if (Block* block = waiting_block(); block != nullptr) block->mark_early_return();
}

void rendezvous(const char* name, unsigned mask, void* frame, Resolve* resolve) {
  Block* block = waiting_block();
  if (block == nullptr) return meet_alone(name, CALL_SITE, mask, frame, resolve);
  if ((mask & block->lane_bit()) == 0) fail_outside_mask(name, CALL_SITE, mask);
  block->meet(name, CALL_SITE, mask, frame, resolve);
}

void** block_slots() {
  if (Block* block = waiting_block(); block != nullptr) return block->slots();
  wait_alone("block exchange", CALL_SITE);
  static thread_local void* alone;
  return &alone;
}

void* shared_storage(const void* unit, int id, std::size_t bytes, std::size_t alignment) {
  if (worker == nullptr) throw KernelError("emulator[unsupported]: shared memory outside of a kernel");
  void* data = worker->shared.statically(unit, id, bytes, alignment);
  if (data == nullptr) {
    fail("too-much-shared",
         "static shared arrays of more than " + std::to_string(limits::kStaticSharedBytes) + " bytes", CALL_SITE);
  }
  return data;
}

void* dynamic_shared_storage() {
  if (worker == nullptr) throw KernelError("emulator[unsupported]: shared memory outside of a kernel");
  return worker->shared.dynamically();
}

std::size_t dynamic_shared_bytes() { return worker == nullptr ? 0 : worker->shared.dynamic_bytes(); }

}  // namespace emu
