#pragma once
#include <string>

namespace ds {

// libds writes only into folders that belong to the user of this process. Anything that another
// user could have put there (a link to a file of this user, a pipe that blocks, a checkpoint) is
// refused with DS_ERROR_IO, naming path, owner and user. Folders and files of root are accepted for
// every user. A process of root accepts only root's, because files of root are the most valuable
// targets. If a file system reports one owner for all files (a share that maps users), that owner
// is accepted as well.

// Throws unless `path` is a folder of this user or does not exist. Refuses a symbolic link to a
// folder, but follows a link in a name that ends in "/.".
void require_own_folder(const std::string& path);
// Throws unless `path` is a regular file of this user or does not exist.
void require_own_file(const std::string& path);

}  // namespace ds
