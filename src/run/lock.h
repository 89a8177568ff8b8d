#pragma once
#include <string>

#include "io/file.h"

namespace ds {

// Sole use of a run folder by one process, or one run of a process: a lock on the folder's file "lock", which
// the system drops when the process ends in any way. The file holds the process id.
class FolderLock {
 public:
  FolderLock() = default;
  // Takes the lock of an existing folder; DS_ERROR_STATE naming folder and process when another one holds it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&& other) noexcept;

 private:
  void release();

  File file_;
};

}  // namespace ds
