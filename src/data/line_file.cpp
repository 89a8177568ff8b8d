// Reads a MiB at a time. The rest of a line moves to the front of the buffer before more is read.
#include "data/line_file.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace ds {

LineFile::LineFile(const std::string& path)
    : path_(path), file_(std::in_place, path, File::Mode::read), size_(file_->size()) {}

LineFile::LineFile(const std::string& name, std::string text)
    : path_(name), buffer_(std::move(text)) {}

// Appends up to a MiB. A file that grows is read up to its size at opening.
void LineFile::read_more() {
  constexpr int64_t kRead = 1 << 20;
  const size_t old = buffer_.size();
  const auto count = static_cast<size_t>(std::min(kRead, size_ - at_));
  buffer_.resize(old + count);
  file_->read(buffer_.data() + old, count, at_);
  at_ += static_cast<int64_t>(count);
}

std::string_view LineFile::head(size_t most) {
  if (buffer_.empty() && file_) read_more();
  return std::string_view(buffer_).substr(0, most);
}

void LineFile::check_length(size_t bytes) const {
  if (bytes <= kLongest) return;
  raise(DS_ERROR_CORRUPT, "'{}' line {} has more than {} bytes", path(), number_ + 1, kLongest);
}

// The last line may lack its end.
bool LineFile::next(std::string& line) {
  size_t end = buffer_.find('\n', begin_);
  while (end == std::string::npos && at_ < size_) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    check_length(buffer_.size());
    const size_t old = buffer_.size();
    read_more();
    end = buffer_.find('\n', old);
  }
  if (end == std::string::npos && begin_ == buffer_.size()) return false;
  size_t last = std::min(end, buffer_.size());
  check_length(last - begin_);
  line.assign(buffer_, begin_, last - begin_);
  if (line.ends_with('\r')) line.pop_back();
  begin_ = end == std::string::npos ? buffer_.size() : end + 1;
  ++number_;
  // Removes the byte order mark of UTF-8.
  if (number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
  return true;
}

}  // namespace ds
