#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A file that data.paths means.
struct DataFile {
  std::string path;
  bool named;  // by the caller, so that a refusal is an error
};

// The files that paths name, and those that end in `suffix` of the folders that they name, searched
// to any depth: in order of their paths, each once. A symbolic link inside a folder is followed to
// a file, not to a folder. Throws DS_ERROR_NOT_FOUND naming the path, DS_ERROR_CONFIG for one that
// is neither a file nor a folder (a pipe has no end), DS_ERROR_USER when *stop [nullable] becomes
// non-zero.
std::vector<DataFile> find_data_files(const std::vector<std::string>& paths,
                                      const volatile int32_t* stop, std::string_view suffix = "");
void check_text_stop(const volatile int32_t* stop);

}  // namespace ds
