#pragma once
#include <string>

#include "io/file.h"

namespace ds {

// Exclusive use of a run folder by one process, or by one run of a process: a lock on the file
// "lock" in the folder, which the system releases however the process ends. The file contains the
// process id.
class FolderLock {
 public:
  FolderLock() = default;
  // Locks an existing folder. Throws DS_ERROR_STATE naming the folder and the process that holds
  // the lock.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  // Throws DS_ERROR_STATE if the lock file is no longer the file that was locked, because the
  // folder was removed, moved or replaced while a run trains in it. Costs two system calls; does
  // nothing if no lock is held.
  void check() const;
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&& other) noexcept;

 private:
  void release();

  File file_;
};

}  // namespace ds
