#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "io/file.h"

namespace ds {

// A file of a monitor that is only appended to. Training does not depend on it, so nothing throws
// once it is open. Bytes that the file system refuses are kept in memory and written by the next
// append, so the file has all bytes once and in order as soon as, for example, a full disk has
// space again. If more than 16 MiB are kept, writing is given up. The first refusal is logged as a
// warning.
class AppendFile {
 public:
  // Continues after the first `begin` bytes of the file, and drops the bytes after them.
  AppendFile(File file, int64_t begin);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  // Writes the bytes that are kept in memory, then syncs the file.
  void sync();
  const std::string& path() const { return file_.path(); }

 private:
  void warn(std::string_view reason);
  void give_up() noexcept;
  // Closed once writing to the file has been given up.
  File file_;
  int64_t end_ = 0;
  // Refused bytes, to be written at offset end_.
  std::string waiting_;
  bool warned_ = false;
};

}  // namespace ds
