#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "io/file.h"

namespace ds {

// The lines of a text file, in memory that one line needs.
class LineFile {
 public:
  static constexpr size_t kLongest = size_t{64} << 20;  // bytes of a line

  explicit LineFile(const std::string& path);
  // The first bytes, at most `most` of them and a MiB. To be called before next().
  std::string_view head(size_t most);
  // The next line without its end, \n or \r\n; false at the end of the file. DS_ERROR_CORRUPT for a
  // line above kLongest, or when the file is cut short meanwhile.
  bool next(std::string& line);
  int64_t number() const { return number_; }  // of the line that next() gave, from 1
  const std::string& path() const { return file_.path(); }

 private:
  void read_more();

  File file_;
  int64_t size_ = 0, at_ = 0, number_ = 0;
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace ds
