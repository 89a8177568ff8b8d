#pragma once
#include <string>

namespace ds {

// A folder that libds goes on writing into is this user's own: what another user could have put
// there (a link to a file of ours, a pipe that hangs, a checkpoint) is refused with DS_ERROR_IO,
// naming path, owner and user. Root's files are anybody's own. Root itself is held to the same
// rule, as its files are the best victims. Where a file system shows all files as one user's (a
// share that maps users), that user is this one.

// `path` must be a folder, not a link to one; nothing there is good. A name that ends in "/." is
// followed.
void require_own_folder(const std::string& path);
// `path` must be a regular file; nothing there is good.
void require_own_file(const std::string& path);

}  // namespace ds
