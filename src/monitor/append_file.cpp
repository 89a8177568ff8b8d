#include "monitor/append_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

namespace ds {
namespace {

// At most this many bytes are kept in memory for a later write. If there would be more, no more is
// written to the file.
constexpr size_t kMostWaiting = size_t{16} << 20;

}  // namespace

AppendFile::AppendFile(File file, int64_t begin) : file_(std::move(file)), end_(begin) {
  if (file_.size() > end_) file_.resize(end_);
}

AppendFile::~AppendFile() { give_up(); }

// A failed write may have written a part of the bytes. The next write starts at end_ again and
// overwrites this part.
void AppendFile::append(std::string_view bytes) {
  if (!file_.open()) return;
  waiting_ += bytes;
  try {
    // Another program may have truncated the file.
    end_ = std::min(end_, file_.size());
    file_.write(waiting_.data(), waiting_.size(), end_);
    end_ += static_cast<int64_t>(waiting_.size());
    waiting_.clear();
  } catch (const Error& error) {
    warn(error.what());
    if (waiting_.size() <= kMostWaiting) return;
    log_line(LogLevel::warning,
             fmt::format("{}: writing is given up; {} bytes could not be written", path(),
                         waiting_.size()));
    give_up();
  }
}

// Removes bytes that a refused write has left at the end of the file, so that the file ends with a
// complete line.
void AppendFile::give_up() noexcept {
  try {
    if (file_.open() && !waiting_.empty()) file_.resize(end_);
  } catch (const std::exception&) {
    // A warning was logged when the file system first refused a write.
  }
  file_ = File();
  waiting_ = {};
}

void AppendFile::sync() {
  append({});
  if (!file_.open()) return;
  try {
    file_.sync();
  } catch (const Error& error) {
    warn(error.what());
  }
}

void AppendFile::warn(std::string_view reason) {
  if (std::exchange(warned_, true)) return;
  log_line(LogLevel::warning,
           fmt::format("{}; training goes on, and the write is tried again", reason));
}

}  // namespace ds
