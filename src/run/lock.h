#pragma once
#include <string>

#include "io/file.h"

namespace ds {

// Sole use of a run folder by one process, or one run of a process: a lock on the folder's file
// "lock", which the system drops when the process ends in any way. The file holds the process id.
class FolderLock {
 public:
  FolderLock() = default;
  // Takes the lock of an existing folder; DS_ERROR_STATE naming folder and process when another one
  // holds it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  // DS_ERROR_STATE when the folder's lock is not this one any more: the folder was removed, moved
  // or replaced while a run trains in it. Costs a system call; nothing where no lock is held.
  void check() const;
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&& other) noexcept;

 private:
  void release();

  File file_;
};

}  // namespace ds
