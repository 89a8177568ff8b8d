#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace ds {

// A program whose output and errors are collected as one text.
class Capture {
 public:
  // Starts it (found on PATH). Throws std::invalid_argument, "PURPOSE, which cannot be run: ...",
  // where the program cannot be, and std::system_error.
  Capture(const std::vector<std::string>& words, const std::string& purpose);
  ~Capture();  // waits for the program's end
  Capture(Capture&& other) noexcept;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Reads until the program has ended.
  void finish();

  // After finish(): the exit code, 255 after a signal, and what the program wrote.
  int code = 0;
  std::string text;

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

// The lines of a text that are not blank, without blanks at either end.
std::vector<std::string> lines_of(const std::string& text);

// The last line of a text that is not blank, "" where there is none.
std::string last_line(const std::string& text);

}  // namespace ds
