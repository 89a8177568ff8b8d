#include "checkpoint/model_folder.h"

#include "core/base/error.h"
#include "io/file.h"

namespace ds {
namespace {

constexpr int64_t kMaxConfig = 1 << 24;

std::string config_path(const std::string& folder) { return folder + "/config.json"; }

}  // namespace

Json read_model_config(const std::string& folder) {
  std::string path = config_path(folder), text = read_small_file(path, kMaxConfig);
  try {
    Json config = Json::parse(text, path);
    config.object();
    return config;
  } catch (const Error& error) {
    raise(DS_ERROR_CORRUPT, "{}", error.what());
  }
}

HfModel build_hf_model(const std::string& folder, int64_t bound, int64_t seq, HfMode mode) {
  Json config = read_model_config(folder);
  try {
    return hf_model(config, bound, seq, mode);
  } catch (const Error& error) {
    raise(error.status(), "{}: {}", config_path(folder), error.what());
  }
}

}  // namespace ds
