#include "checkpoint/deepspeed_source.h"

#include <fmt/core.h>

#include "checkpoint/deepspeed_universal.h"
#include "checkpoint/deepspeed_zero.h"
#include "core/base/error.h"
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

}  // namespace

std::string find_deepspeed(const std::string& path) {
  if (is_absent(path)) return "";
  for (const char* latest : {"latest", "latest_universal"}) {
    std::string file = fmt::format("{}/{}", path, latest);
    if (is_absent(file)) continue;
    std::string tag = read_file(file, 4096);
    while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' '))
      tag.pop_back();
    if (tag.empty() || tag.find('/') != std::string::npos || tag == "." || tag == "..")
      raise(DS_ERROR_CORRUPT, "{}: '{}' is no name of a folder beside it", file, tag);
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
