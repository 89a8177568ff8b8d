#pragma once
#include <map>
#include <string>
#include <string_view>

namespace ds {

using Variables = std::map<std::string, std::string>;

// Parses lines NAME=VALUE. Names and values are trimmed; blank lines and lines that begin with '#'
// are skipped. A later line replaces an earlier one. Throws std::invalid_argument, which names
// path, line and text.
Variables parse_env_file(std::string_view text, std::string_view path);

// Returns the variables of the file `name` in the folder `home` and in `folder`. A variable of the
// file in `folder` replaces the same variable of the file in `home`. Either file may be missing. If
// `name` is an absolute path, reads only that file. Throws the errors of parse_env_file() and
// read_small_file().
Variables read_env_files(const std::string& name, const std::string& home,
                         const std::string& folder);

}  // namespace ds
