#include "launch/strings.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

namespace ds {

constexpr size_t kMostSmall = size_t{16} << 20;

std::string_view trimmed(std::string_view text) {
  size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

// Only regular files are read, because a pipe would block, and a device may be endless.
std::optional<std::string> read_small_file(const std::string& path, std::string_view role) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  struct stat status;
  bool small = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
               status.st_size <= int64_t{kMostSmall};
  if (fd >= 0 && !small) {
    close(fd);
    throw std::runtime_error(
        fmt::format("{} '{}': must be a regular file of at most {} bytes", role, path, kMostSmall));
  }
  std::string text;
  char part[4096];
  ssize_t got = fd < 0 ? -1 : 1;
  while (got > 0 && text.size() <= kMostSmall) {
    got = read(fd, part, sizeof part);
    if (got > 0) text.append(part, static_cast<size_t>(got));
  }
  int error = errno;
  if (fd >= 0) close(fd);
  if (got < 0)
    throw std::system_error(error, std::generic_category(), fmt::format("{} '{}'", role, path));
  return text;
}

std::string shell_word(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t put = write(fd, text.data(), text.size());
    if (put < 0 && errno != EINTR) return;
    if (put > 0) text.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace ds
