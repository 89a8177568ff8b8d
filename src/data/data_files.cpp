#include "data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/stop.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

void search_folder(const fs::path& folder, const volatile int32_t* stop, std::string_view suffix,
                   std::vector<DataFile>& found) {
  std::error_code code;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         code);
  if (code) raise(DS_ERROR_IO, "data path '{}': {}", folder.string(), code.message());
  while (entry != fs::recursive_directory_iterator()) {
    check_text_stop(stop);
    std::error_code unknown;  // a dangling link is no regular file
    std::string path = entry->path().string();
    if (path.ends_with(suffix) && entry->is_regular_file(unknown)) found.push_back({path, false});
    entry.increment(code);
    if (code) raise(DS_ERROR_IO, "data path '{}': {}", folder.string(), code.message());
  }
}

}  // namespace

void check_text_stop(const volatile int32_t* stop) {
  if (stop_asked(stop)) raise(DS_ERROR_USER, "a stop was asked for while the text was read");
}

std::vector<DataFile> find_data_files(const std::vector<std::string>& paths,
                                      const volatile int32_t* stop, std::string_view suffix) {
  std::vector<DataFile> found;
  for (const std::string& path : paths) {
    std::error_code code;
    fs::file_status status = fs::status(path, code);
    if (!fs::exists(status)) {
      raise(DS_ERROR_NOT_FOUND, "data path '{}' does not exist", path);
    }
    if (fs::is_directory(status)) {
      search_folder(path, stop, suffix, found);
    } else if (fs::is_regular_file(status)) {
      found.push_back({path, true});
    } else {
      raise(DS_ERROR_CONFIG, "data path '{}' is neither a file nor a folder", path);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const DataFile& a, const DataFile& b) {
    return std::pair(a.path, !a.named) < std::pair(b.path, !b.named);
  });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const DataFile& a, const DataFile& b) { return a.path == b.path; }),
              found.end());
  return found;
}

}  // namespace ds
