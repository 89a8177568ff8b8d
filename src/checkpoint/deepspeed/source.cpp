#include "checkpoint/deepspeed/source.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "checkpoint/deepspeed/universal.h"
#include "checkpoint/deepspeed/zero.h"
#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "io/file.h"

namespace ds {
namespace {

bool has_files(const std::string& folder) {
  if (is_absent(folder)) return false;
  for (const std::string& name : list_folder(folder)) {
    if (name.ends_with("_optim_states.pt") || name.ends_with("_model_states.pt") || name == "zero")
      return true;
  }
  return false;
}

// Returns whether the tag can be the name of a folder next to the file that names it. Control
// characters are refused, because with a NUL or a line break the tag would open a different folder
// than the one that an editor shows.
bool names_folder(const std::string& tag) {
  const auto is_wrong = [](char c) { return c == '/' || static_cast<unsigned char>(c) < 0x20; };
  return !tag.empty() && tag != "." && tag != ".." && is_utf8(tag) &&
         std::ranges::none_of(tag, is_wrong);
}

}  // namespace

std::string find_deepspeed(const std::string& path) {
  std::error_code ignored;
  if (is_absent(path) || std::filesystem::is_regular_file(path, ignored)) return "";
  for (const char* latest : {"latest", "latest_universal"}) {
    std::string file = fmt::format("{}/{}", path, latest);
    if (is_absent(file)) continue;
    std::string tag = read_file(file, 4096);
    while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' '))
      tag.pop_back();
    if (const std::string kind = content_kind(tag, Wanted::text); !kind.empty())
      raise(DS_ERROR_CORRUPT, "{}: is {}", file, kind);
    if (!names_folder(tag))
      raise(DS_ERROR_CORRUPT, "{}: '{}' is not the name of a folder next to it", file, tag);
    std::string folder = fmt::format("{}/{}", path, tag);
    if (!has_files(folder))
      raise(DS_ERROR_NOT_FOUND, "'{}' names the checkpoint '{}', which has no files of DeepSpeed",
            file, folder);
    return folder;
  }
  return has_files(path) ? path : "";
}

std::unique_ptr<StateSource> open_deepspeed(const std::string& folder, SourceParts parts) {
  if (!is_absent(folder + "/zero")) return deepspeed::open_universal(folder, parts);
  return deepspeed::open_zero(folder, parts);
}

}  // namespace ds
