#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A file descriptor whose reads and writes transfer all bytes or throw. Unless a function says
// otherwise, errors are DS_ERROR_IO with path and errno text, or DS_ERROR_NOT_FOUND if the file
// does not exist.
class File {
 public:
  // How to open a file. Only regular files are opened, and opening never blocks: for a folder,
  // pipe, socket or device it throws DS_ERROR_CORRUPT.
  enum class Mode {
    // Follows symbolic links, as the Hugging Face cache needs.
    read,
    // Creates a new file. Refuses a name that exists, even as a dangling symbolic link.
    create,
    // Opens for reading and writing, and creates the file if it does not exist. Refuses a symbolic
    // link and a file with several hard links.
    write
  };
  File() = default;
  File(const std::string& path, Mode mode, bool direct = false);
  // Creates an unnamed temporary file in `folder` that vanishes when it is closed (O_TMPFILE).
  static File scratch(const std::string& folder, bool direct = false);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }
  int64_t size() const;
  // Sets the size of the file. Also reserves the space if the file system supports it, so that a
  // full disk is reported here and not by a write.
  void resize(int64_t bytes);
  // Reads exactly `bytes` bytes; throws DS_ERROR_CORRUPT if the file ends earlier.
  void read(void* data, size_t bytes, int64_t offset) const;
  void write(const void* data, size_t bytes, int64_t offset);
  // Waits until the data is on the disk (fdatasync).
  void sync();

 private:
  int fd_ = -1;
  bool direct_ = false;
  std::string path_;
};

// Default limit of the functions that read an entire file, in bytes.
inline constexpr int64_t kMostText = int64_t{256} << 20;
// Reads an entire file. Throws DS_ERROR_CORRUPT without reading it if it has more than `limit`
// bytes.
std::string read_file(const std::string& path, int64_t limit = kMostText);
// Returns `path` with a random suffix, for a temporary file that will replace it.
std::string fresh_name(const std::string& path);
// Returns whether fresh_name() may have returned this path.
bool is_fresh_name(std::string_view path);
// Replaces `path`, even if it is a link: writes a temporary file, syncs it, renames it and syncs
// the folder. After a crash the path has either the old or the new content.
void write_file_atomic(const std::string& path, std::string_view bytes);
// Renames a file without syncing the folder.
void rename_file(const std::string& from, const std::string& to);
// Syncs a folder, so that the names in it are on the disk. Does nothing if the file system cannot
// sync folders.
void sync_folder(const std::string& path);
// Syncs all folders above `path` that this process may read.
void sync_parents(const std::string& path);
// Creates a folder, whose name is on the disk when the function returns. Returns false if the name
// exists.
bool make_folder(const std::string& path);
// Throws DS_ERROR_INVALID_ARGUMENT for a path that made_hint() explains, such as "s3://..." or
// "~/run".
void require_makeable(const std::string& path);
// Creates a folder and the folders above it that do not exist, like mkdir -p. Throws as
// require_makeable() does.
void make_folders(const std::string& path);
// Metadata of a file, which differs after the file was written or replaced.
struct FileState {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, modified_ns = 0, changed_ns = 0;
  bool operator==(const FileState&) const = default;
};
// Returns the state of a file; throws as File does.
FileState state_of(const std::string& path);
// Returns whether the path exists, following symbolic links.
bool exists(const std::string& path);
// Returns whether the name certainly does not exist. If the file system cannot tell, returns false.
bool is_absent(const std::string& path);
// Returns whether the name exists, even as a dangling symbolic link.
bool name_exists(const std::string& path);
// Returns the names in a folder, sorted and without "." and "..".
std::vector<std::string> list_folder(const std::string& path);

}  // namespace ds
