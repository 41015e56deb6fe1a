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
  // A place in a file of the submission's. Line 0: unknown.
  struct Place {
    std::string file;
    int line = 0;

    bool operator==(const Place&) const = default;
  };

  // The place in the submission's own code of, or around, the call that returns to `pc`: calls that were inlined from
  // our headers or the system's are looked through.
  const Place& at(const void* pc);

  // " (cuda.cu:12)", or nothing.
  std::string describe(const void* pc);

  // Whether two places are known to be in different lines.
  bool differ(const void* a, const void* b);

 private:
  std::map<const void*, Place> known_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_LINES_H
