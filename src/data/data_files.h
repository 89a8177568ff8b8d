#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A file that data.paths names or that a named folder contains.
struct DataFile {
  std::string path;
  // True if the caller named the file itself, so that refusing it is an error.
  bool named;
};

// The files of folders that a reader accepts, by endings in lower case. Unless `endings` is empty,
// hidden files and folders are skipped.
struct FolderFiles {
  // An empty list accepts every file.
  std::vector<std::string_view> endings;
  // Files with these endings are read if a folder has none with the endings above.
  std::vector<std::string_view> otherwise;
  // Names of files that are not data.
  std::vector<std::string_view> but;
};
struct FoundFiles {
  std::vector<DataFile> files;
  // Files of the folders that are not read, in the order of their paths.
  std::vector<std::string> left_out;
};

// Returns the files among `paths`, and the files that `wanted` accepts in the folders among `paths`
// at any depth; endings match in either case. The files are in the order of their paths, each once.
// A symbolic link inside a folder is followed to a file but not to a folder. Throws, naming the
// path: DS_ERROR_NOT_FOUND, DS_ERROR_IO, DS_ERROR_CONFIG for the folder of a model and for a path
// that is neither a file nor a folder (a pipe has no end), and DS_ERROR_USER when *stop [nullable]
// becomes non-zero.
FoundFiles find_data_files(const std::vector<std::string>& paths, const volatile int32_t* stop,
                           const FolderFiles& wanted = {});
// Throws DS_ERROR_USER if *stop [nullable] is not zero.
void check_text_stop(const volatile int32_t* stop);

// Returns the end of a log line: "; left out: " and names of other files that the folders contain.
// Those that hold data come first, with advice. Returns "" if `left_out` is empty.
std::string left_out_text(const std::vector<std::string>& left_out);

}  // namespace ds
