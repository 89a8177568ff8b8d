// Finds the files that data.paths names. Recursion is bounded by not following links to folders.
#include "data/data_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <ranges>
#include <system_error>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/path_kind.h"
#include "core/base/stop.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// Returns whether a name has one of the endings.
bool ends_as(std::string_view name, const std::vector<std::string_view>& endings) {
  return std::ranges::any_of(endings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// Returns whether a file is wanted. Without endings every file is; otherwise its ending must be in
// either list, and its name not in `but`.
bool is_wanted(const fs::path& path, const FolderFiles& wanted) {
  const std::string name = ascii_lower(path.filename().string());
  return wanted.endings.empty() ||
         ((ends_as(name, wanted.endings) || ends_as(name, wanted.otherwise)) &&
          !contains(wanted.but, name));
}

// Reads names only. Links to folders are not followed, so the search ends.
void search_folder(const fs::path& folder, const volatile int32_t* stop, const FolderFiles& wanted,
                   FoundFiles& found) {
  std::error_code code;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         code);
  if (code) raise(DS_ERROR_IO, "data path '{}': {}", folder.string(), code.message());
  while (entry != fs::recursive_directory_iterator()) {
    check_text_stop(stop);
    // A dangling link is not a regular file.
    std::error_code unknown;
    if (!wanted.endings.empty() && entry->path().filename().string().starts_with(".")) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(unknown)) {
      const std::string path = entry->path().string();
      if (is_wanted(entry->path(), wanted)) {
        found.files.push_back({path, false});
      } else {
        found.left_out.push_back(path);
      }
    }
    entry.increment(code);
    if (code) raise(DS_ERROR_IO, "data path '{}': {}", folder.string(), code.message());
  }
}

// Leaves out the files of a folder (those from `begin` on) that lack the first endings, if any file
// has one of them.
void leave_out_others(FoundFiles& found, size_t begin, const FolderFiles& wanted) {
  const auto first = found.files.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto other = std::stable_partition(first, found.files.end(), [&](const DataFile& file) {
    return ends_as(ascii_lower(file.path), wanted.endings);
  });
  if (other == first) return;
  for (auto file = other; file != found.files.end(); ++file) found.left_out.push_back(file->path);
  found.files.erase(other, found.files.end());
}

// A kind of files with data that must be converted first.
struct OtherForm {
  // An empty list matches every file that no earlier form matches.
  std::vector<std::string_view> endings;
  const char* advice;
};
const std::array<OtherForm, 3> kOtherForms{
    {{{".gz", ".tgz", ".zst", ".xz", ".bz2", ".zip", ".7z", ".tar"}, " (unpack first)"},
     {{".parquet", ".arrow", ".feather", ".csv", ".tsv"}, " (write as .jsonl first)"},
     {{}, ""}}};

}  // namespace

void check_text_stop(const volatile int32_t* stop) {
  if (stop_asked(stop)) raise(DS_ERROR_USER, "a stop was requested while the text was read");
}

std::string left_out_text(const std::vector<std::string>& left_out) {
  // Number of names shown for each form.
  constexpr size_t most = 2;
  std::string out;
  std::vector<std::string> rest = left_out;
  for (const OtherForm& form : kOtherForms) {
    auto other = std::stable_partition(rest.begin(), rest.end(), [&](const std::string& path) {
      return form.endings.empty() || ends_as(ascii_lower(path), form.endings);
    });
    const std::vector<std::string> these(rest.begin(), other);
    rest.erase(rest.begin(), other);
    if (these.empty()) continue;
    out += out.empty() ? "; left out: " : ", ";
    for (size_t i = 0; i < std::min(these.size(), most); ++i)
      out += (i > 0 ? ", " : "") + one_line(these[i]);
    if (these.size() > most) out += fmt::format(" and {} more", these.size() - most);
    out += form.advice;
  }
  return out;
}

FoundFiles find_data_files(const std::vector<std::string>& paths, const volatile int32_t* stop,
                           const FolderFiles& wanted) {
  FoundFiles found;
  for (const std::string& path : paths) {
    std::error_code code;
    fs::file_status status = fs::status(path, code);
    if (!fs::exists(status)) {
      raise(DS_ERROR_NOT_FOUND, "data path '{}' does not exist{}", path,
            path_hint(path, Sought::data));
    }
    if (fs::is_directory(status)) {
      if (const std::string model = model_hint(path); !model.empty())
        raise(DS_ERROR_CONFIG, "data path '{}' holds no data{}", path, model);
      const size_t begin = found.files.size();
      search_folder(path, stop, wanted, found);
      if (!wanted.otherwise.empty()) leave_out_others(found, begin, wanted);
    } else if (fs::is_regular_file(status)) {
      found.files.push_back({path, true});
    } else {
      raise(DS_ERROR_CONFIG, "data path '{}' is neither a file nor a folder", path);
    }
  }
  std::vector<DataFile>& files = found.files;
  std::ranges::stable_sort(files, [](const DataFile& a, const DataFile& b) {
    return std::pair(a.path, !a.named) < std::pair(b.path, !b.named);
  });
  // Sorting puts a named file before its duplicate from a folder, so that the named one stays.
  const auto doubles = std::ranges::unique(files, {}, &DataFile::path);
  files.erase(doubles.begin(), doubles.end());
  std::vector<std::string>& left = found.left_out;
  // A file that is named itself is read, whatever its ending.
  std::erase_if(left, [&](const std::string& path) {
    return std::ranges::binary_search(files, path, {}, &DataFile::path);
  });
  std::ranges::sort(left);
  left.erase(std::unique(left.begin(), left.end()), left.end());
  return found;
}

}  // namespace ds
