// The engine's calls from kernels: emu/sync.h, emu/context.h and emu/shared.h.
#include "emu/sync.h"

#include "emu/shared.h"
#include "limits.h"
#include "worker.h"

namespace emu {
namespace {

// An address inside of the calling instruction: the one it returns to can belong to the next line.
#define CALL_SITE (static_cast<const char*>(__builtin_return_address(0)) - 1)

// The block whose threads can wait; null where there is nobody to wait for.
Block* waiting_block(const char* name, const void* site) {
  if (worker == nullptr) throw KernelError(std::string("emulator[unsupported]: ") + name + " outside of a kernel");
  if (worker->kernel->waits) return &worker->block;
  if (block_threads() == 1) return nullptr;
  fail("unsupported", std::string(name) + " in a kernel that was taken for one without barriers", site);
}

Block::Votes vote(const char* name, const void* site, bool predicate) {
  Block* block = waiting_block(name, site);
  return block == nullptr ? Block::Votes{predicate, 1} : block->wait_at_barrier(name, site, predicate);
}

}  // namespace

bool in_kernel() { return worker != nullptr; }

unsigned live_lanes() {
  if (worker != nullptr && worker->kernel->waits) return worker->block.live_lanes();
  return lane_bit();
}

void wait_for_block(const char* name) { vote(name, CALL_SITE, false); }

int barrier_count(int predicate) {
  return static_cast<int>(vote("__syncthreads_count", CALL_SITE, predicate != 0).count);
}

int barrier_and(int predicate) {
  const Block::Votes votes = vote("__syncthreads_and", CALL_SITE, predicate != 0);
  return votes.count == votes.voters;
}

int barrier_or(int predicate) { return vote("__syncthreads_or", CALL_SITE, predicate != 0).count != 0; }

unsigned active_mask() {
  // Threads of a kernel that never waits are not seen together by anybody.
  if (worker == nullptr || !worker->kernel->waits) return lane_bit();
  return worker->block.wait_for_convergence(CALL_SITE);
}

void early_return() {
  if (worker != nullptr && worker->kernel->waits) worker->block.mark_early_return();
}

void rendezvous(const char* name, unsigned mask, void* frame, void (*resolve)(void* const* frames, unsigned lanes)) {
  const char* site = CALL_SITE;
  Block* block = waiting_block(name, site);
  if ((mask & lane_bit()) == 0) {
    char text[96];
    std::snprintf(text, sizeof text, "lane %u calls with mask 0x%08x, which does not name it: ", lane(), mask);
    fail("lane-outside-mask", text + std::string(name), site);
  }
  if (block != nullptr) {
    block->meet(name, site, mask, frame, resolve);
  } else {
    resolve(&frame, 1);
  }
}

void** block_slots() {
  Block* block = waiting_block("block exchange", CALL_SITE);
  static thread_local void* alone;
  return block == nullptr ? &alone : block->slots();
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
