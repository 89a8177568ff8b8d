#pragma once
#include <map>
#include <string>
#include <string_view>

namespace ds {

using Variables = std::map<std::string, std::string>;

// Lines NAME=VALUE, blanks around both left out; blank lines and lines that begin with '#'. A later
// line replaces an earlier one. Throws std::invalid_argument naming path, line and text.
Variables parse_env_file(std::string_view text, std::string_view path);

// The variables of the file `name` in the folder `home`, replaced by those of the same file in
// `folder`; either may be missing. An absolute name is that one file. Throws as parse_env_file, and
// std::system_error.
Variables read_env_files(const std::string& name, const std::string& home,
                         const std::string& folder);

}  // namespace ds
