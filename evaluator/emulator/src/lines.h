// From an address in the code to the line of the submission.
#ifndef WARPGRADE_EMU_LINES_H
#define WARPGRADE_EMU_LINES_H

#include <map>
#include <string>

namespace emu {

// Reads the line tables of the libraries in this process (they are compiled with -g1), the first time that a line is
// asked for. Where the compiler comes without libbacktrace, no line is known.
class Lines {
 public:
  // The line of the submission's own code at, or around, the call that returns to `pc`: calls that were inlined from
  // our headers or the system's are looked through. 0: unknown.
  int at(const void* pc);

  // " (line 12)", or nothing.
  std::string describe(const void* pc);

  // Whether two places are known to be in different lines.
  bool differ(const void* a, const void* b);

 private:
  std::map<const void*, int> known_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_LINES_H
