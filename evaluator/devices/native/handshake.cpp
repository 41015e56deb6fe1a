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
#include <vector>

namespace {

using handshake::kEnd;
using handshake::kMostBlocks;
using handshake::Page;

constexpr int kFewestWords = 16;        // late words of each block
constexpr int64_t kSpins = 1 << 10;     // between two looks at the clock: some 40 us
constexpr int64_t kLongNs = 4'000'000;  // the judge releases the next call much sooner, unless it has no core
constexpr uint64_t kLongestPauseNs = 1 << 16;
constexpr int64_t kLongestReadNs = 100'000;  // of the late words; the runner may work meanwhile, so more is its time
constexpr int kPopulateRead = 22;            // MADV_POPULATE_READ, which older headers lack

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
// `written` holds start and end in bytes of the memory that was written before the window, ascending. The other arrays
// have a row for each call: `early` words, `late` places and words of which `late_count` are used, and `kMostBlocks`
// blocks (offset and size in bytes) of which `block_count` are used.
extern "C" struct WarpgradeObserved {
  const int64_t* early_at;
  int32_t* early_words;
  const uint64_t* written;
  int64_t* late_at;
  int32_t* late_words;
  int32_t* late_count;
  uint64_t* blocks;
  int32_t* block_count;
  int64_t* elapsed_ns;
  int32_t early;
  int32_t late;
  int32_t written_count;
};

// State of a window between two calls of `warpgrade_release`. `random` must not be 0.
extern "C" struct WarpgradeProgress {
  uint64_t random;
  int64_t start_ns;
  int32_t call;  // calls that ended
  int32_t is_released;  // the next call
  int32_t disturbed;
};

namespace {

struct Bounds {
  uint64_t offset;
  uint64_t bytes;
};

// Words read when a call ends. The runner writes the list of blocks, and may order it, or add blocks, so that an output
// is read as late as possible. The words of all blocks are therefore read in one order, drawn before the release.
class LateWords {
 public:
  LateWords(const WarpgradeObserved& seen, const int32_t* words)
      : seen_(seen), words_(words), draws_(seen.late), order_(seen.late), span_of_(seen.late) {}

  void draw(uint64_t& random) {
    for (int number = 0; number < seen_.late; ++number) {
      draws_[number] = next(random);
      const int other = below(next(random), number + 1);
      order_[number] = order_[other];
      order_[other] = number;
    }
  }

  // Copies the list, which may change meanwhile. The clock still runs: a runner can make this slow.
  void copy_list(const Page* page) {
    const uint32_t told = page->blocks.load(std::memory_order_acquire);
    listed_ = static_cast<int>(told < kMostBlocks ? told : kMostBlocks);
    for (int number = 0; number < listed_; ++number) {
      list_[number].offset = page->block[number].offset.load(std::memory_order_relaxed);
      list_[number].bytes = page->block[number].bytes.load(std::memory_order_relaxed);
    }
  }

  void read(int call) {
    const int total = assign(call);
    int64_t* at = seen_.late_at + static_cast<int64_t>(call) * seen_.late;
    int32_t* found = seen_.late_words + static_cast<int64_t>(call) * seen_.late;
    int noted = 0;
    for (const int number : order_) {
      if (number >= total) continue;
      const Span& span = spans_[span_of_[number]];
      const bool whole = span.wanted == span.length;
      at[noted] = span.first + (whole ? number - span.start : below(draws_[number], span.length));
      found[noted] = __atomic_load_n(words_ + at[noted], __ATOMIC_RELAXED);
      ++noted;
    }
    seen_.late_count[call] = noted;
  }

 private:
  struct Span {
    int64_t first, length;  // in words
    int start, wanted;      // in late words
  };

  static int64_t below(uint64_t random, int64_t limit) {
    return static_cast<int64_t>(static_cast<unsigned __int128>(random) * static_cast<uint64_t>(limit) >> 64);
  }

  // Divides the late words among the listed blocks in written memory, notes these blocks, and returns how many words
  // have a block. A read elsewhere would allocate a page.
  int assign(int call) {
    int count = 0;
    for (int number = 0; number < listed_; ++number) {
      const Bounds block = list_[number];
      if (!was_written(block)) continue;
      const int64_t first = static_cast<int64_t>((block.offset + 3) / 4);
      const int64_t length = static_cast<int64_t>((block.offset + block.bytes) / 4) - first;
      if (length <= 0) continue;
      list_[count] = block;
      spans_[count++] = {first, length, 0, 0};
    }
    const int share = count > 0 && seen_.late / count > kFewestWords ? seen_.late / count : kFewestWords;
    uint64_t* bounds = seen_.blocks + static_cast<int64_t>(call) * kMostBlocks * 2;
    int total = 0, noted = 0;
    for (; noted < count; ++noted) {
      Span& span = spans_[noted];
      span.start = total;
      span.wanted = static_cast<int>(span.length < share ? span.length : share);
      if (total + span.wanted > seen_.late) break;
      for (int each = 0; each < span.wanted; ++each) span_of_[total++] = noted;
      bounds[2 * noted] = list_[noted].offset;
      bounds[2 * noted + 1] = list_[noted].bytes;
    }
    seen_.block_count[call] = noted;
    return total;
  }

  bool was_written(const Bounds& block) const {
    int low = 0, high = seen_.written_count;  // The last range that begins at or before the block lies below `low`.
    while (low < high) {
      const int middle = (low + high) / 2;
      if (seen_.written[2 * middle] <= block.offset) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low == 0) return false;
    const uint64_t end = seen_.written[2 * low - 1];
    return block.offset <= end && block.bytes <= end - block.offset;
  }

  const WarpgradeObserved& seen_;
  const int32_t* const words_;
  std::vector<uint64_t> draws_;
  std::vector<int> order_;
  std::vector<int> span_of_;
  int listed_ = 0;
  Bounds list_[kMostBlocks];
  Span spans_[kMostBlocks];
};

// Maps written memory here, so that no read waits for a page fault. Older kernels, which cannot, read more slowly.
void map_written(const char* region, uint64_t region_bytes, const WarpgradeObserved& seen) {
  for (int number = 0; number < seen.written_count; ++number) {
    const uint64_t start = seen.written[2 * number], bytes = seen.written[2 * number + 1] - start;
    // Without holes, the kernel may not know what was written.
    if (bytes < region_bytes) madvise(const_cast<char*>(region) + start, bytes, kPopulateRead);
  }
}

}  // namespace

// Judge: releases `calls` calls, each when the one before has ended. Returns 1 when no call is left, when the runner
// will not end the call, or when more than a quarter of the calls took over `long_ns`; 0 when `slice_ns` are over.
extern "C" int warpgrade_release(int socket, const int32_t* descriptors, int calls, void* shared, uint32_t ticket,
                                 const void* region, uint64_t region_bytes, int64_t slice_ns, int64_t long_ns,
                                 const WarpgradeObserved* seen, WarpgradeProgress* progress) {
  Page* page = static_cast<Page*>(shared);
  const int32_t* words = static_cast<const int32_t*>(region);
  LateWords late(*seen, words);
  if (progress->call == 0 && !progress->is_released) map_written(static_cast<const char*>(region), region_bytes, *seen);
  const int64_t pause_ns = now_ns() + slice_ns;
  for (; progress->call < calls; ++progress->call) {
    const int call = progress->call;
    late.draw(progress->random);
    if (!progress->is_released) {
      // The time at which the early words are read cannot be foreseen.
      const int64_t begin_ns = now_ns() + static_cast<int64_t>(next(progress->random) % kLongestPauseNs);
      while (now_ns() < begin_ns) relax();
      int32_t* early = seen->early_words + static_cast<int64_t>(call) * seen->early;
      for (int each = 0; each < seen->early; ++each) {
        early[each] = __atomic_load_n(words + seen->early_at[each], __ATOMIC_RELAXED);
      }
      progress->start_ns = now_ns();
      if (!send_descriptor(socket, descriptors[call])) return 1;
      page->go.store(ticket + call, std::memory_order_release);
      progress->is_released = 1;
    }
    const auto is_done = [&] { return page->done.load(std::memory_order_acquire) == ticket + call; };
    Wait wait(long_ns);
    while (!is_done()) {
      wait.spin();
      if (!wait.is_time_to_look()) continue;
      // The runner may have ended the last call just now, and answered.
      if (has_spoken(socket) && !is_done()) return 1;
      if (now_ns() > pause_ns && !is_done()) return 0;
    }
    late.copy_list(page);
    const int64_t end_ns = now_ns();
    late.read(call);
    const int64_t excess_ns = now_ns() - end_ns - kLongestReadNs;
    const int64_t elapsed_ns = end_ns - progress->start_ns + (excess_ns > 0 ? excess_ns : 0);
    seen->elapsed_ns[call] = elapsed_ns;
    progress->is_released = 0;
    // A side that waits for the core of the other one takes as long as the scheduler likes.
    progress->disturbed += elapsed_ns > long_ns;
    if (progress->disturbed > calls / 4) {
      ++progress->call;
      return 1;
    }
  }
  return 1;
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
// mapped at `base` + its offset. Without `python`, nothing is mapped, and each call ends at once. Returns the number of calls, -1 for a failed
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
    if (python == nullptr) {
      page->done.store(ticket + number, std::memory_order_release);
      close(descriptor);
      continue;
    }
    char* const address = base + offsets[number];
    const int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    void* const mapped = mmap(address, sizes[number], access, kind, descriptor, 0);
    close(descriptor);
    if (mapped != address) return -1;
    void* const result = python->call(callables[number]);
    page->done.store(ticket + number, std::memory_order_release);
    if (result == nullptr || python->set_item(results, number, result) != 0) return -2;
  }
  return most;
}
