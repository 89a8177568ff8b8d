#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "io/file.h"

namespace ds {

// A file of a monitor, which grows at its end. Training does not depend on it, so nothing throws
// once it is open: bytes that the file system refuses wait for the next append and then take their
// place, so that the file has everything once and in order when, say, a full disk has room again.
// The first refusal is a warning.
class AppendFile {
 public:
  // Goes on behind the first `begin` bytes of the file; what is there behind them is dropped.
  AppendFile(File file, int64_t begin);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  void sync();  // what waits, and then all of it, to the disk
  const std::string& path() const { return file_.path(); }

 private:
  void warn(std::string_view reason);
  void give_up() noexcept;
  File file_;  // closed when given up
  int64_t end_ = 0;
  std::string waiting_;  // belongs at end_
  bool warned_ = false;
};

}  // namespace ds
