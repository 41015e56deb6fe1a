// Both ends of a window on a host: calls that the judge releases one at a time.
//
//     judge:   early words | t0 | descriptor 1, go |                   | t1 | late words | early words | t0 | ...
//     runner:                                      | map 1 | forward 1 | done |
//
// The inputs of a call are a memory file of their own. The runner gets the descriptor at the release, so nothing can
// read them earlier, and the release takes the same time for small and large inputs but for the page table.
//
// Early words lie anywhere in the runner's output region. A word of an output that has its final value already was not
// computed in the call. Late words lie in the blocks that the call allocated: a word that changes after `done` was not
// computed in the call either.

#include "handshake.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace {

using handshake::kEnd;
using handshake::kMostBlocks;
using handshake::Page;

constexpr int kFewestWords = 16;        // late words of each block
constexpr int64_t kSpins = 1 << 10;     // between two looks at the clock: some 40 us
constexpr int64_t kLongNs = 4'000'000;  // the judge releases the next call much sooner, unless it has no core
constexpr uint64_t kLongestPauseNs = 1 << 16;

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A wait that gives its core away only if it is long: then the other side may need this core.
class Wait {
 public:
  explicit Wait(int64_t long_ns) : long_ns_(long_ns) {}

  void spin() {
    relax();
    if (++spins_ % kSpins != 0) return;
    if (now_ns() - start_ns_ > long_ns_) sched_yield();
  }

  bool is_time_to_look() const { return spins_ % kSpins == 0; }

 private:
  const int64_t start_ns_ = now_ns();
  const int64_t long_ns_;
  int64_t spins_ = 0;
};

uint64_t next(uint64_t& state) {  // xorshift64*; the seed is the judge's secret
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * UINT64_C(2685821657736338717);
}

bool send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

int receive_descriptor(int socket) {
  char byte = 0;
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(head), sizeof(int));
  return descriptor;
}

// Whether the runner has sent a frame or closed the connection: it will not end the call.
bool has_spoken(int socket) {
  char byte;
  const ssize_t count = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace

// What the judge observes in each call of a window. `early_at` holds `early` places in words, the same for all calls.
// The other arrays have a row for each call: `early` words, `late` places and words of which `late_count` are used, and
// `kMostBlocks` blocks (offset and size in bytes) of which `block_count` are used.
extern "C" struct WarpgradeObserved {
  const int64_t* early_at;
  int32_t* early_words;
  int64_t* late_at;
  int32_t* late_words;
  int32_t* late_count;
  uint64_t* blocks;
  int32_t* block_count;
  int64_t* elapsed_ns;
  int32_t early;
  int32_t late;
};

namespace {

// Notes the blocks of a call, and words in them.
void look_late(Page* page, const int32_t* words, uint64_t region_bytes, uint64_t& random, const WarpgradeObserved& seen,
               int call) {
  const uint32_t told = page->blocks.load(std::memory_order_acquire);
  const int count = static_cast<int>(told < kMostBlocks ? told : kMostBlocks);
  int64_t* at = seen.late_at + static_cast<int64_t>(call) * seen.late;
  int32_t* found = seen.late_words + static_cast<int64_t>(call) * seen.late;
  uint64_t* bounds = seen.blocks + static_cast<int64_t>(call) * kMostBlocks * 2;
  int words_noted = 0, blocks_noted = 0;
  const int share = count > 0 && seen.late / count > kFewestWords ? seen.late / count : kFewestWords;
  for (int number = 0; number < count; ++number) {
    const uint64_t offset = page->block[number].offset.load(std::memory_order_relaxed);
    const uint64_t bytes = page->block[number].bytes.load(std::memory_order_relaxed);
    if (offset > region_bytes || bytes > region_bytes - offset) continue;
    const int64_t first = static_cast<int64_t>((offset + 3) / 4);
    const int64_t length = static_cast<int64_t>((offset + bytes) / 4) - first;
    if (length <= 0) continue;
    const int64_t wanted = length < share ? length : share;
    if (words_noted + wanted > seen.late) break;
    for (int64_t each = 0; each < wanted; ++each, ++words_noted) {
      const int64_t place = first + (wanted == length ? each : static_cast<int64_t>(next(random) % length));
      at[words_noted] = place;
      found[words_noted] = __atomic_load_n(words + place, __ATOMIC_RELAXED);
    }
    bounds[2 * blocks_noted] = offset;
    bounds[2 * blocks_noted + 1] = bytes;
    ++blocks_noted;
  }
  seen.late_count[call] = words_noted;
  seen.block_count[call] = blocks_noted;
}

}  // namespace

// Judge: releases `calls` calls, each when the one before has ended, and returns how many ended within `patience_ns`.
// A call beyond `long_ns` is disturbed: its time is -1, and more than a quarter of such calls end the window.
extern "C" int warpgrade_release(int socket, const int32_t* descriptors, int calls, void* shared, uint32_t ticket,
                                 const void* region, uint64_t region_bytes, uint64_t random, int64_t patience_ns,
                                 int64_t long_ns, const WarpgradeObserved* seen) {
  Page* page = static_cast<Page*>(shared);
  const int32_t* words = static_cast<const int32_t*>(region);
  const int64_t give_up_ns = now_ns() + patience_ns;
  int disturbed = 0;
  for (int call = 0; call < calls; ++call) {
    // Nobody can foresee when the early words are read.
    const int64_t begin_ns = now_ns() + static_cast<int64_t>(next(random) % kLongestPauseNs);
    while (now_ns() < begin_ns) relax();
    int32_t* early = seen->early_words + static_cast<int64_t>(call) * seen->early;
    for (int each = 0; each < seen->early; ++each) {
      early[each] = __atomic_load_n(words + seen->early_at[each], __ATOMIC_RELAXED);
    }
    const int64_t start_ns = now_ns();
    if (!send_descriptor(socket, descriptors[call])) return call;
    page->go.store(ticket + call, std::memory_order_release);
    const auto is_done = [&] { return page->done.load(std::memory_order_acquire) == ticket + call; };
    Wait wait(long_ns);
    while (!is_done()) {
      wait.spin();
      // The runner may have ended the last call just now, and answered.
      if (wait.is_time_to_look() && (now_ns() > give_up_ns || has_spoken(socket)) && !is_done()) return call;
    }
    // A side that waits for the core of the other one takes as long as the scheduler likes.
    const int64_t elapsed_ns = now_ns() - start_ns;
    seen->elapsed_ns[call] = elapsed_ns > long_ns ? -1 : elapsed_ns;
    look_late(page, words, region_bytes, random, *seen, call);
    disturbed += elapsed_ns > long_ns;
    if (disturbed > calls / 4) return call + 1;
  }
  return calls;
}

// Judge: tells the runner that the window has no further call.
extern "C" void warpgrade_end_window(void* shared) {
  static_cast<Page*>(shared)->go.store(kEnd, std::memory_order_release);
}

// Python's own functions, which this library does not link.
extern "C" struct WarpgradePython {
  void* (*call)(void* callable);                            // PyObject_CallNoArgs
  int (*set_item)(void* list, intptr_t index, void* item);  // PyList_SetItem, which takes the reference over
};

// Runner: makes the calls of a window, at most `most`, and stores their results in `results`. The inputs of a call are
// mapped at `base` + its offset. Without `python`, each call ends at once. Returns the number of calls, -1 for a failed
// system call, -2 for an exception of the call. The caller holds the GIL.
extern "C" int warpgrade_answer(int socket, void* shared, uint32_t ticket, char* base, const uint64_t* offsets,
                                const uint64_t* sizes, int most, void* const* callables, void* results,
                                const WarpgradePython* python) {
  Page* page = static_cast<Page*>(shared);
  for (int number = 0; number < most; ++number) {
    Wait wait(kLongNs);
    for (;;) {
      const uint32_t go = page->go.load(std::memory_order_acquire);
      if (go == ticket + number) break;
      if (go == kEnd) return number;
      wait.spin();
    }
    const int descriptor = receive_descriptor(socket);
    if (descriptor < 0) return -1;
    page->blocks.store(0, std::memory_order_relaxed);
    char* const address = base + offsets[number];
    const int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    void* const mapped = mmap(address, sizes[number], access, kind, descriptor, 0);
    close(descriptor);
    if (mapped != address) return -1;
    void* const result = python == nullptr ? nullptr : python->call(callables[number]);
    page->done.store(ticket + number, std::memory_order_release);
    if (python == nullptr) continue;
    if (result == nullptr || python->set_item(results, number, result) != 0) return -2;
  }
  return most;
}
