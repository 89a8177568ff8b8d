#include "io/file.h"

#include <fcntl.h>
#include <fmt/core.h>
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
#include "core/base/interrupted.h"
#include "core/base/path_kind.h"
#include "core/base/signals.h"

namespace ds {
namespace {

// Throws DS_ERROR_NOT_FOUND, with a hint, if the errno says that the path does not exist; otherwise
// DS_ERROR_IO.
[[noreturn]] void raise_errno(const std::string& path, std::string_view action, int error) {
  ds_status status = error == ENOENT || error == ENOTDIR ? DS_ERROR_NOT_FOUND : DS_ERROR_IO;
  const std::string hint = status == DS_ERROR_NOT_FOUND ? open_hint(path) : "";
  raise(status, "{}: {}: {}{}", path, action, std::generic_category().message(error), hint);
}

std::string parent_folder(const std::string& path) {
  std::filesystem::path name(path);
  // Removes the slash at the end of "runs/".
  if (!name.has_filename()) name = name.parent_path();
  std::string parent = name.parent_path().string();
  return parent.empty() ? "." : parent;
}

void require_regular(const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return;
  const char* kind = S_ISDIR(mode)    ? "a folder"
                     : S_ISFIFO(mode) ? "a pipe"
                     : S_ISSOCK(mode) ? "a socket"
                     : S_ISLNK(mode)  ? "a symbolic link, which is not followed here"
                                      : "a device";
  raise(DS_ERROR_CORRUPT, "{}: must be a regular file, but is {}", path, kind);
}

int flags_of(File::Mode mode) {
  switch (mode) {
    case File::Mode::read:
      return O_RDONLY;
    case File::Mode::create:
      return O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
    case File::Mode::write:
      return O_RDWR | O_CREAT | O_NOFOLLOW;
  }
  return 0;
}

}  // namespace

// Checks the kind of the file twice: before opening it, because opening some devices has side
// effects, and afterwards, because another file may have taken the name in between. With
// O_NONBLOCK, the call does not block if that other file is a pipe.
File::File(const std::string& path, Mode mode, bool direct) : File() {
  direct_ = direct;
  path_ = path;
  struct stat status;
  bool there =
      (mode == Mode::read ? ::stat(path.c_str(), &status) : ::lstat(path.c_str(), &status)) == 0;
  if (there && mode != Mode::create) require_regular(path, status.st_mode);
  constexpr int kAlways = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int flags = flags_of(mode) | kAlways | (direct ? O_DIRECT : 0);
  fd_ = uninterrupted([&] { return above_standard(::open(path.c_str(), flags, 0666)); });
  const int error = errno;
  if (fd_ < 0 && mode != Mode::read) require_makeable(path);
  if (fd_ < 0) raise_errno(path, direct ? "open with O_DIRECT" : "open", error);
  if (::fstat(fd_, &status) != 0) raise_errno(path, "open", errno);
  require_regular(path, status.st_mode);
  if (mode == Mode::write && status.st_nlink > 1) {
    raise(DS_ERROR_CORRUPT, "{}: must have one name, but the file has {} (hard links)", path,
          status.st_nlink);
  }
  // O_NONBLOCK was needed only for the open.
  if (::fcntl(fd_, F_SETFL, direct ? O_DIRECT : 0) != 0) raise_errno(path, "open", errno);
}

File File::scratch(const std::string& folder, bool direct) {
  File file;
  file.path_ = folder + "/(scratch)";
  file.direct_ = direct;
  const int flags = O_CLOEXEC | (direct ? O_DIRECT : 0);
  file.fd_ = uninterrupted(
      [&] { return above_standard(::open(folder.c_str(), O_TMPFILE | O_RDWR | flags, 0600)); });
  if (file.fd_ >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR) raise_errno(folder, "open scratch file", errno);
  // If the file system lacks O_TMPFILE, creates a named file and removes its name at once.
  std::string name;
  file.fd_ = uninterrupted([&] {
    name = folder + "/.scratch-XXXXXX";
    return above_standard(::mkostemp(name.data(), flags));
  });
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

// A write beyond the limit on file sizes raises SIGXFSZ, so the signal is blocked here and in
// write(). tmpfs gives all space back when a signal interrupts fallocate(), so a timer of the host
// could interrupt each attempt; the second one blocks all signals.
void File::resize(int64_t bytes) {
  SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
  int64_t before = size();
  if (bytes > before) {
    auto reserve = [&] { return ::fallocate(fd_, 0, 0, bytes); };
    int code = reserve();
    if (is_interrupted(code)) {
      SignalsBlocked all(SignalsBlocked::Which::all);
      code = uninterrupted(reserve);
    }
    if (code == 0) return;
    // Some file systems cannot reserve space, and some sandboxes do not allow it. Then only a write
    // reports a full disk.
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EPERM)
      raise_errno(path_, fmt::format("reserve {} bytes", bytes), errno);
  }
  if (bytes != before && uninterrupted([&] { return ::ftruncate(fd_, bytes); }) != 0)
    raise_errno(path_, fmt::format("resize to {} bytes", bytes), errno);
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
    if (is_interrupted(n)) continue;
    int error = n < 0 ? errno : 0;
    // With O_DIRECT, a read that continues at an unaligned end of the file fails with EINVAL
    // instead of returning 0.
    if (error == 0 || (error == EINVAL && at >= size())) {
      raise(DS_ERROR_CORRUPT, "{}: {} bytes wanted at offset {}, but the file has {} bytes", path_,
            bytes, offset, size());
    }
    raise_errno(path_, fmt::format("read {} bytes at offset {}", bytes, offset), error);
  }
}

void File::write(const void* data, size_t bytes, int64_t offset) {
  SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
  size_t done = 0;
  while (done < bytes) {
    ssize_t n = ::pwrite(fd_, static_cast<const char*>(data) + done, bytes - done,
                         offset + static_cast<int64_t>(done));
    if (is_interrupted(n)) continue;
    if (n <= 0) {
      raise_errno(path_, fmt::format("write {} bytes at offset {}", bytes, offset),
                  n < 0 ? errno : ENOSPC);
    }
    done += static_cast<size_t>(n);
  }
}

void File::sync() {
  if (uninterrupted([&] { return ::fdatasync(fd_); }) != 0) raise_errno(path_, "sync", errno);
}

// Treats the size of the file only as an estimate: the file may grow while it is read, and files of
// /proc have size 0.
std::string read_file(const std::string& path, int64_t limit) {
  File file(path, File::Mode::read);
  int64_t size = file.size();
  std::string bytes;
  size_t have = 0;
  while (size <= limit) {
    // One byte more than the expected size, so that a read can find the end of the file.
    if (have == bytes.size()) bytes.resize(std::max(have * 2, static_cast<size_t>(size) + 1));
    ssize_t n =
        ::pread(file.fd(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (is_interrupted(n)) continue;
    if (n < 0) raise_errno(path, "read", errno);
    have += static_cast<size_t>(n);
    if (n == 0) break;
    size = std::max(size, static_cast<int64_t>(have));
  }
  if (size > limit)
    raise(DS_ERROR_CORRUPT, "{}: at most {} bytes are possible, got {}", path, limit, size);
  bytes.resize(have);
  return bytes;
}

std::string fresh_name(const std::string& path) {
  uint64_t number = 0;
  if (::getentropy(&number, sizeof number) != 0) raise_errno(path, "draw a name beside it", errno);
  return fmt::format("{}.{:016x}.tmp", path, number);
}

bool is_fresh_name(std::string_view path) {
  constexpr std::string_view end = ".tmp", digits = "0123456789abcdef";
  constexpr size_t count = 16;
  if (!path.ends_with(end) || path.size() <= end.size() + count) return false;
  path.remove_suffix(end.size());
  const std::string_view number = path.substr(path.size() - count);
  return number.find_first_not_of(digits) == number.npos && path[path.size() - count - 1] == '.';
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) raise_errno(to, "rename", errno);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  // Otherwise the message would name the temporary file.
  require_makeable(path);
  std::string temporary = fresh_name(path);
  File file(temporary, File::Mode::create);
  try {
    file.write(bytes.data(), bytes.size(), 0);
    file.sync();
    rename_file(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(parent_folder(path));
}

void sync_folder(const std::string& path) {
  int fd = uninterrupted(
      [&] { return above_standard(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); });
  if (fd < 0) raise_errno(path, "open folder", errno);
  int error = uninterrupted([&] { return ::fsync(fd); }) == 0 ? 0 : errno;
  ::close(fd);
  // These errors mean that the file system cannot sync folders.
  if (error == EINVAL || error == ENOTSUP || error == EROFS) return;
  if (error != 0) raise_errno(path, "sync folder", error);
}

void sync_parents(const std::string& path) {
  std::filesystem::path folder = std::filesystem::absolute(path);
  while (folder != folder.root_path()) {
    folder = folder.parent_path();
    if (::access(folder.c_str(), R_OK) == 0) sync_folder(folder.string());
  }
}

bool make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) {
    if (errno == EEXIST) return false;
    raise(DS_ERROR_IO, "{}: cannot create the folder: {}", path,
          std::generic_category().message(errno));
  }
  sync_folder(parent_folder(path));
  return true;
}

void require_makeable(const std::string& path) {
  if (const std::string hint = made_hint(path); !hint.empty())
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' cannot be created{}", path, hint);
}

void make_folders(const std::string& path) {
  require_makeable(path);
  std::filesystem::path made;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    made /= part;
    if (!exists(made.string())) make_folder(made.string());
  }
  if (!std::filesystem::is_directory(path))
    raise(DS_ERROR_IO, "{}: cannot create the folder: Not a directory", path);
}

FileState state_of(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) raise_errno(path, "open", errno);
  auto ns = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_dev, status.st_ino, status.st_size, ns(status.st_mtim), ns(status.st_ctim)};
}

bool is_absent(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
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
  std::ranges::sort(names);
  return names;
}

}  // namespace ds
