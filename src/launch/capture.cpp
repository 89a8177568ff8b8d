#include "launch/capture.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "launch/rank.h"
#include "launch/strings.h"

namespace ds {

// Signals are unblocked for the program, which may rely on them.
Capture::Capture(const std::vector<std::string>& words, const std::string& purpose) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  output_ = ends[0];
  StartOptions start{.output = ends[1], .errors = ends[1]};
  sigemptyset(&start.mask);
  Started started = start_process(words, {}, start);
  close(ends[1]);
  if (started.error != 0) {
    close(output_);
    throw std::invalid_argument(
        fmt::format("{}, which cannot be run: {}", purpose, std::strerror(started.error)));
  }
  pid_ = started.pid;
}

Capture::Capture(Capture&& other) noexcept
    : code(other.code),
      text(std::move(other.text)),
      pid_(std::exchange(other.pid_, 0)),
      output_(std::exchange(other.output_, -1)) {}

Capture::~Capture() { finish(); }

// The destructor calls finish(), too, so a second call must be safe. The output is read to its end
// before the wait, because a program that has filled the pipe cannot end.
void Capture::finish() {
  if (pid_ == 0) return;
  char part[4096];
  for (ssize_t got = 1; got > 0 || (got < 0 && errno == EINTR);) {
    got = read(output_, part, sizeof part);
    if (got > 0) text.append(part, static_cast<size_t>(got));
  }
  close(output_);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = 0;
  constexpr int kKilled = 255;
  code = WIFEXITED(status) ? WEXITSTATUS(status) : kKilled;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::string_view line : split(text, '\n')) {
    if (!trimmed(line).empty()) lines.emplace_back(trimmed(line));
  }
  return lines;
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  return lines.empty() ? "" : lines.back();
}

}  // namespace ds
