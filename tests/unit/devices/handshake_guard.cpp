// Both ends of a window, with memory whose pages can only be read after a fault: the faults show the order of reads.

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "handshake.cpp"

static char* guarded;
static size_t guarded_bytes;
static useconds_t first_us;
static struct sigaction usual;
static int pages[1024];
static int count;

static void fault(int, siginfo_t* info, void*) {
  char* const at = static_cast<char*>(info->si_addr);
  if (at < guarded || at >= guarded + guarded_bytes) {
    sigaction(SIGSEGV, &usual, nullptr);  // The instruction fails again, as usual.
    return;
  }
  const size_t page = (at - guarded) / 4096;
  pages[count++] = static_cast<int>(page);
  if (count == 1) usleep(first_us);
  mprotect(guarded + page * 4096, 4096, PROT_READ);
}

extern "C" void guard(char* memory, size_t bytes, unsigned sleep_us) {
  guarded = memory, guarded_bytes = bytes, first_us = sleep_us, count = 0;
  struct sigaction action {};
  action.sa_sigaction = fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &usual);
  mprotect(memory, bytes, PROT_NONE);
}

extern "C" int unguard(int* order) {
  sigaction(SIGSEGV, &usual, nullptr);
  mprotect(guarded, guarded_bytes, PROT_READ | PROT_WRITE);
  std::memcpy(order, pages, count * sizeof(int));
  return count;
}
