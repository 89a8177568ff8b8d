// Locks a run folder.
//
// Problem. The holder removes the file "lock" when it is done. So another process may open the
// file, wait, and then lock a file that no longer has a name, while a third process locks a new
// file of that name.
// Algorithm. After flock() has succeeded, the name must still refer to the open file; otherwise the
// file is opened again. The holder removes the name before it releases the lock.
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

// Returns whether the name still refers to the open file. The last holder removes the name.
bool has_name(const File& file) {
  struct stat open, named;
  if (::fstat(file.fd(), &open) != 0 || ::lstat(file.path().c_str(), &named) != 0) {
    // If the file system cannot tell, the name is assumed to be unchanged.
    return errno != ENOENT && errno != ENOTDIR;
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
    raise(DS_ERROR_IO, "{}: cannot be locked: {}", file.path(), std::strerror(errno));
  } while (!has_name(file));
  std::string text = std::to_string(::getpid()) + "\n";
  file.resize(0);
  file.write(text.data(), text.size(), 0);
  file_ = std::move(file);
}

void FolderLock::check() const {
  if (!file_.open() || has_name(file_)) return;
  raise(DS_ERROR_STATE,
        "{}: is gone or belongs to another process: the run folder was removed, moved or "
        "replaced while this run was in it",
        file_.path());
}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  release();
  file_ = std::move(other.file_);
  return *this;
}

FolderLock::~FolderLock() { release(); }

// Removes the name before releasing the lock: a process that has already opened the file then
// notices this, and opens a new file.
void FolderLock::release() {
  if (!file_.open()) return;
  if (has_name(file_)) ::unlink(file_.path().c_str());
  file_ = File();
}

}  // namespace ds
