// This file implements the calls that merge configurations and describe what a configuration means.
#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "api/boundary.h"
#include "checkpoint/model_folder.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/config_text.h"
#include "core/config/describe.h"
#include "core/config/document.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"
#include "run/setup.h"
#include "zero/rank_counts.h"

namespace {

// If the config.json of the model folder cannot be read, adds the reason to the refusals, so that
// it is reported together with all others.
void check_model(ds::Config& config, ds::ConfigRefusals& refusals) {
  if (config.model.folder.empty()) return;
  try {
    ds::read_model_config(config.model.folder);
  } catch (const ds::Error& fault) {
    config.origins["model.folder"] = ds::kRefused;
    refusals.errors.emplace_back(DS_ERROR_CONFIG, fmt::format("model.folder: {}", fault.what()));
  }
}

}  // namespace

ds_status ds_config_merge(const char* config, const char* patch, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::Json document = ds::parse_config_text(ds::need_text(config, "config"), "config");
    ds::merge_patch(document, ds::Json::parse(ds::need_text(patch, "patch"), "patch"));
    ds::put_text(document.dump(2), out_text);
  });
}

// Refusals are collected, not thrown, so that one call reports all of them.
ds_status ds_config_describe(const char* config, int32_t size, ds_format format,
                             int32_t* out_refused, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    std::string_view text = ds::need_text(config, "config");
    ds::require(size >= 1, "size must be at least 1 rank, got {}", size);
    bool json = ds::wants_json(format);
    ds::ConfigRefusals refusals;
    const ds::Json document = ds::parse_config_text(text, "config");
    ds::Config parsed = ds::parse_config(document, size, refusals);
    check_model(parsed, refusals);
    // With a size of 1, the number of ranks of the later run counts as unknown, so the
    // configuration's numbers of ranks are not checked.
    if (size > 1) ds::check_rank_counts(parsed, size, refusals);
    ds::put_text(json ? ds::config_json(parsed, refusals, document).dump(2)
                      : ds::config_text(parsed, refusals, document),
                 out_text);
    if (out_refused) *out_refused = static_cast<int32_t>(refusals.errors.size());
  });
}
