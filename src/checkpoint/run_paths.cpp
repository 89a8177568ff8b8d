#include "checkpoint/run_paths.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/base/path_kind.h"
#include "core/config/config.h"
#include "data/keys.h"
#include "io/file.h"

namespace ds {

bool is_run_folder(const std::string& path) {
  return name_exists(path + "/" + kRunConfig) && model_hint(path).empty();
}

RunName parse_run_name(const std::string& name) {
  std::filesystem::path path(name);
  // Removes the slash at the end of "RUN/".
  if (!path.has_filename()) path = path.parent_path();
  // A run folder may itself be named checkpoints/NAME; it then contains a configuration.
  bool inside =
      path.parent_path().filename() == "checkpoints" && !exists((path / kRunConfig).string());
  if (!inside) return {name, ""};
  std::string folder = path.parent_path().parent_path().string();
  return {folder.empty() ? "." : folder, path.string()};
}

std::string run_tokenizer(const std::string& folder, const std::string& name) {
  std::string copy = folder + "/tokenizer";
  if (name != "bytes" && name_exists(copy)) return copy;
  if (name == kLearnTokenizer) {
    raise(DS_ERROR_NOT_FOUND,
          "'{}' does not exist: the run learned its vocabulary and saved it only there", copy);
  }
  return name;
}

}  // namespace ds
