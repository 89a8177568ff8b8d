#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace ds {

// A program that runs, and its standard output and standard error as one text.
class Capture {
 public:
  // Starts the program, which is searched for on PATH. Throws std::invalid_argument, "PURPOSE,
  // which cannot be run: ...", if the program cannot be run, and std::system_error if the system
  // refuses a pipe or a process.
  Capture(const std::vector<std::string>& words, const std::string& purpose);
  // Waits until the program has ended.
  ~Capture();
  Capture(Capture&& other) noexcept;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Reads the output until the program has ended.
  void finish();

  // The exit code (255 after a signal) and the output. Valid after finish().
  int code = 0;
  std::string text;

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

// Returns the lines of a text that are not blank, trimmed.
std::vector<std::string> lines_of(const std::string& text);

// Returns the last line of a text that is not blank, or "" if all lines are.
std::string last_line(const std::string& text);

}  // namespace ds
