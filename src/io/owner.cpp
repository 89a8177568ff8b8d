#include "io/owner.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"
#include "io/file.h"

namespace ds {
namespace {

// Returns the owner that the file system reports for files that this process creates in `folder`,
// or -1 if the process cannot create files there.
int64_t owner_of_new(const std::string& folder) {
  struct stat status;
  try {
    File file = File::scratch(folder);
    return ::fstat(file.fd(), &status) == 0 ? int64_t{status.st_uid} : -1;
  } catch (const Error&) {
    return -1;
  }
}

// Gets the status of a path without following links. Returns false if it does not exist.
bool look(const std::string& path, struct stat& status) {
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT) return false;
  raise(DS_ERROR_IO, "{}: {}", path, std::generic_category().message(errno));
}

// Throws unless the file or folder with this status belongs to an owner that owner.h accepts.
// owner_of_new() creates a file, which is costly, so it is called last.
void require_own(const std::string& path, const struct stat& status, const std::string& folder) {
  int64_t owner = status.st_uid, user = ::geteuid();
  if (owner == user || owner == 0 || owner == owner_of_new(folder)) return;
  raise(DS_ERROR_IO,
        "{}: belongs to user {}, but this process to user {}: libds writes only to files of its "
        "own user",
        path, owner, user);
}

}  // namespace

void require_own_folder(const std::string& path) {
  struct stat status;
  if (!look(path, status)) return;
  if (S_ISLNK(status.st_mode)) {
    raise(DS_ERROR_IO, "{}: is a symbolic link, where libds needs a folder of its own", path);
  }
  if (!S_ISDIR(status.st_mode))
    raise(DS_ERROR_IO, "{}: is a file, where libds needs a folder", path);
  require_own(path, status, path);
}

void require_own_file(const std::string& path) {
  struct stat status;
  if (!look(path, status)) return;
  if (!S_ISREG(status.st_mode)) {
    raise(DS_ERROR_IO, "{}: is {}, where libds needs a file of its own", path,
          S_ISLNK(status.st_mode)   ? "a symbolic link"
          : S_ISDIR(status.st_mode) ? "a folder"
                                    : "a pipe, socket or device");
  }
  require_own(path, status, std::filesystem::path(path).parent_path().string());
}

}  // namespace ds
