#include "run/lock.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace ds {
namespace {

// Whether the open file still has its name: its last holder removes it.
bool has_name(const File& file) {
  struct stat open, named;
  if (::fstat(file.fd(), &open) != 0 || ::lstat(file.path().c_str(), &named) != 0) {
    return errno != ENOENT &&
           errno != ENOTDIR;  // a file system that fails to say takes nothing away
  }
  return open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

[[noreturn]] void raise_held(const std::string& folder, const File& file) {
  std::string holder(static_cast<size_t>(file.size()), '\0');
  file.read(holder.data(), holder.size(), 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  raise(DS_ERROR_STATE, "run folder '{}' is in use by process {}", folder,
        holder.empty() ? "unknown" : holder);
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) {
  File file;
  do {
    file = File(folder + "/lock", File::Mode::write);
    if (::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) continue;
    if (errno == EWOULDBLOCK) raise_held(folder, file);
    raise(DS_ERROR_IO, "{}: lock: {}", file.path(), std::strerror(errno));
  } while (!has_name(file));
  std::string text = std::to_string(::getpid()) + "\n";
  file.resize(0);
  file.write(text.data(), text.size(), 0);
  file_ = std::move(file);
}

void FolderLock::check() const {
  if (!file_.open() || has_name(file_)) return;
  raise(DS_ERROR_STATE,
        "{}: is gone or another process's: the run folder was removed, moved or replaced while "
        "this run was in "
        "it",
        file_.path());
}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  release();
  file_ = std::move(other.file_);
  return *this;
}

FolderLock::~FolderLock() { release(); }

// The name goes first: whoever opened the file before sees that it is gone, and opens a new one.
void FolderLock::release() {
  if (!file_.open()) return;
  if (has_name(file_)) ::unlink(file_.path().c_str());
  file_ = File();
}

}  // namespace ds
