#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/descriptor.h"
#include "core/base/error.h"

namespace ds {
namespace {

[[noreturn]] void raise_errno(const std::string& path, std::string_view action, int error) {
  ds_status status = error == ENOENT || error == ENOTDIR ? DS_ERROR_NOT_FOUND : DS_ERROR_IO;
  raise(status, "{}: {}: {}", path, action, std::generic_category().message(error));
}

std::string parent_folder(const std::string& path) {
  std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

File::File(const std::string& path, Mode mode, bool direct) : direct_(direct), path_(path) {
  int flags = O_CLOEXEC | (direct ? O_DIRECT : 0);
  if (mode == Mode::read) flags |= O_RDONLY;
  if (mode == Mode::write_new) flags |= O_RDWR | O_CREAT | O_TRUNC;
  if (mode == Mode::read_write) flags |= O_RDWR | O_CREAT;
  fd_ = above_standard(::open(path.c_str(), flags, 0666));
  if (fd_ < 0) raise_errno(path, direct ? "open with O_DIRECT" : "open", errno);
}

File File::scratch(const std::string& folder, bool direct) {
  File file;
  file.path_ = folder + "/(scratch)";
  file.direct_ = direct;
  int direct_flag = direct ? O_DIRECT : 0;
  file.fd_ = above_standard(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | direct_flag, 0600));
  if (file.fd_ >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR) raise_errno(folder, "open scratch file", errno);
  // A file system without O_TMPFILE: a named file that loses its name at once.
  std::string name = folder + "/.scratch-XXXXXX";
  file.fd_ = above_standard(::mkostemp(name.data(), O_CLOEXEC | direct_flag));
  if (file.fd_ < 0) raise_errno(folder, "open scratch file", errno);
  ::unlink(name.c_str());
  return file;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), direct_(other.direct_), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(direct_, other.direct_);
  std::swap(path_, other.path_);
  return *this;
}

int64_t File::size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) raise_errno(path_, "size", errno);
  return status.st_size;
}

void File::resize(int64_t bytes) {
  int64_t before = size();
  if (bytes > before) {
    if (::fallocate(fd_, 0, 0, bytes) == 0) return;
    if (errno != EOPNOTSUPP) raise_errno(path_, fmt::format("reserve {} bytes", bytes), errno);
  }
  if (bytes != before && ::ftruncate(fd_, bytes) != 0) {
    raise_errno(path_, fmt::format("resize to {} bytes", bytes), errno);
  }
}

void File::read(void* data, size_t bytes, int64_t offset) const {
  size_t have = 0;
  while (have < bytes) {
    int64_t at = offset + static_cast<int64_t>(have);
    ssize_t n = ::pread(fd_, static_cast<char*>(data) + have, bytes - have, at);
    if (n > 0) {
      have += static_cast<size_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    int error = n < 0 ? errno : 0;
    // With O_DIRECT the rest after an odd end is refused as misaligned, not as end of file.
    if (error == 0 || (error == EINVAL && at >= size())) {
      raise(DS_ERROR_CORRUPT, "{}: {} bytes wanted at offset {}, but the file has {} bytes", path_, bytes,
            offset, size());
    }
    raise_errno(path_, fmt::format("read {} bytes at offset {}", bytes, offset), error);
  }
}

void File::write(const void* data, size_t bytes, int64_t offset) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t n = ::pwrite(fd_, static_cast<const char*>(data) + done, bytes - done,
                         offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      raise_errno(path_, fmt::format("write {} bytes at offset {}", bytes, offset), n < 0 ? errno : ENOSPC);
    }
    done += static_cast<size_t>(n);
  }
}

void File::sync() {
  if (::fdatasync(fd_) != 0) raise_errno(path_, "sync", errno);
}

std::string read_file(const std::string& path) {
  File file(path, File::Mode::read);
  std::string bytes;
  size_t have = 0;
  bytes.resize(static_cast<size_t>(std::max<int64_t>(file.size(), 0)) + 1);  // one more, to see the end
  while (true) {
    ssize_t n = ::pread(file.fd(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) raise_errno(path, "read", errno);
    if (n == 0) break;
    have += static_cast<size_t>(n);
    if (have == bytes.size()) bytes.resize(have * 2);
  }
  bytes.resize(have);
  return bytes;
}

void require_regular_file(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) raise_errno(path, "open", errno);
  if (!S_ISREG(status.st_mode)) raise(DS_ERROR_CORRUPT, "{}: not a regular file", path);
}

std::string read_small_file(const std::string& path, int64_t limit) {
  require_regular_file(path);
  int64_t size = File(path, File::Mode::read).size();
  if (size > limit) raise(DS_ERROR_CORRUPT, "{}: at most {} bytes are possible, got {}", path, limit, size);
  return read_file(path);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  std::string temporary = path + ".tmp";
  try {
    File file(temporary, File::Mode::write_new);
    file.write(bytes.data(), bytes.size(), 0);
    file.sync();
    if (::rename(temporary.c_str(), path.c_str()) != 0) raise_errno(path, "rename from .tmp", errno);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(parent_folder(path));
}

void sync_folder(const std::string& path) {
  int fd = above_standard(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) raise_errno(path, "open folder", errno);
  int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0 && error != EINVAL) raise_errno(path, "sync folder", error);  // EINVAL: it has no fsync
}

void make_folders(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (!code && !std::filesystem::is_directory(path)) code = std::make_error_code(std::errc::not_a_directory);
  if (code) raise(DS_ERROR_IO, "{}: make folder: {}", path, code.message());
}

bool exists(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

bool name_exists(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

std::vector<std::string> list_folder(const std::string& path) {
  std::error_code code;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, code);
  while (!code && entry != std::filesystem::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(code);
  }
  if (code) raise_errno(path, "list folder", code.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ds
