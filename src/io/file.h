#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A file descriptor with whole-transfer reads and writes. Errors are DS_ERROR_IO (NOT_FOUND when it does not
// exist) with path and errno text.
class File {
 public:
  enum class Mode { read, write_new, read_write };  // write_new truncates; read_write creates
  File() = default;
  File(const std::string& path, Mode mode, bool direct = false);
  // An unnamed file in `folder` that vanishes with the process (O_TMPFILE), for scratch.
  static File scratch(const std::string& folder, bool direct);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }
  int64_t size() const;
  void resize(int64_t bytes);  // also reserves the space, so that a full disk is refused here
  void read(void* data, size_t bytes, int64_t offset) const;  // a short file is DS_ERROR_CORRUPT
  void write(const void* data, size_t bytes, int64_t offset);
  void sync();  // fdatasync

 private:
  int fd_ = -1;
  bool direct_ = false;
  std::string path_;
};

std::string read_file(const std::string& path);
// The same of a regular file of at most `limit` bytes; DS_ERROR_CORRUPT for anything else, before it is
// opened.
std::string read_small_file(const std::string& path, int64_t limit);
void require_regular_file(const std::string& path);  // DS_ERROR_CORRUPT for a folder, device or pipe
// Replaces path atomically: writes path.tmp, syncs, renames, syncs the folder.
void write_file_atomic(const std::string& path, std::string_view bytes);
void sync_folder(const std::string& path);
void make_folders(const std::string& path);  // like mkdir -p
bool exists(const std::string& path);
bool name_exists(const std::string& path);  // also when it is a symbolic link that leads nowhere
std::vector<std::string> list_folder(const std::string& path);  // sorted names without . and ..

}  // namespace ds
