#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A file descriptor with whole-transfer reads and writes. Errors are DS_ERROR_IO (NOT_FOUND when it
// does not exist) with path and errno text.
class File {
 public:
  // Only regular files are opened, and nothing waits: a folder, pipe, socket or device is
  // DS_ERROR_CORRUPT.
  enum class Mode {
    read,    // through symbolic links, as the hub's cache needs
    create,  // a file that was not there: a name that is taken, also by a link that leads nowhere,
             // is refused
    write  // to read and write, made where there is none; refused: a symbolic link, a file with two
           // names
  };
  File() = default;
  File(const std::string& path, Mode mode, bool direct = false);
  // An unnamed file in `folder` that vanishes with the process (O_TMPFILE), for scratch.
  static File scratch(const std::string& folder, bool direct = false);
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

// A whole file of at most `limit` bytes; a longer one is DS_ERROR_CORRUPT before it is read.
inline constexpr int64_t kMostText = int64_t{256} << 20;
std::string read_file(const std::string& path, int64_t limit = kMostText);
// A name beside `path` that nobody can guess, for what will replace it.
std::string fresh_name(const std::string& path);
// Replaces path, be it a link: writes a file of a fresh name, syncs, renames, syncs the folder.
void write_file_atomic(const std::string& path, std::string_view bytes);
void rename_file(const std::string& from, const std::string& to);  // the folder is not synced
void sync_folder(const std::string& path);
void sync_parents(const std::string& path);  // all folders above it that may be read
// Like mkdir and mkdir -p; each new name is on disk when they return. make_folder: false when it is
// taken.
bool make_folder(const std::string& path);
void make_folders(const std::string& path);
// What the system knows of a file without reading it: who wrote to it or replaced it changed this.
struct FileState {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, modified_ns = 0, changed_ns = 0;
  bool operator==(const FileState&) const = default;
};
FileState state_of(const std::string& path);  // throws as File does
bool exists(const std::string& path);
bool is_absent(
    const std::string& path);  // for certain: a file system that fails to say does not make it so
bool name_exists(const std::string& path);  // also when it is a symbolic link that leads nowhere
std::vector<std::string> list_folder(const std::string& path);  // sorted names without . and ..

}  // namespace ds
