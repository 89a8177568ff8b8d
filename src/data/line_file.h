#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"

namespace ds {

// A reader of a text, in a file or in memory, line by line. Of a file it keeps one line and at most
// a MiB more in memory.
class LineFile {
 public:
  // The largest size of a line, in bytes without its \n. A longer line is refused.
  static constexpr size_t kLongest = size_t{64} << 20;

  explicit LineFile(const std::string& path);
  // Reads the lines of `text`. Errors call it by `name`.
  LineFile(const std::string& name, std::string text);
  // Returns the first bytes of the text, at most `most` of them and at most a MiB. Must be called
  // before next().
  std::string_view head(size_t most);
  // Reads the next line without its end, \n or \r\n. Returns false at the end of the file. Throws
  // DS_ERROR_CORRUPT for a line that is too long (kLongest) and if the file is cut short meanwhile.
  bool next(std::string& line);
  // Returns the number of the line that next() has read, from 1.
  int64_t number() const { return number_; }
  // The path of the file, or the name of the text.
  const std::string& path() const { return path_; }

 private:
  void read_more();
  // Throws DS_ERROR_CORRUPT if a line with so many bytes is too long.
  void check_length(size_t bytes) const;

  std::string path_;
  // Empty for a text in memory, which is in buffer_ as a whole.
  std::optional<File> file_;
  int64_t size_ = 0, at_ = 0, number_ = 0;
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace ds
