#include <cstdint>
#include <string_view>

#include "api/boundary.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/config_text.h"
#include "core/config/describe.h"
#include "core/config/rank_counts.h"
#include "run/setup.h"

ds_status ds_config_merge(const char* config, const char* patch, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::Json document = ds::parse_config_text(ds::need_text(config, "config"), "config");
    ds::merge_patch(document, ds::Json::parse(ds::need_text(patch, "patch"), "patch"));
    ds::put_text(document.dump(2), out_text);
  });
}

ds_status ds_config_describe(const char* config, int32_t size, ds_format format,
                             int32_t* out_refused, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    std::string_view text = ds::need_text(config, "config");
    ds::require(size >= 1, "size must be at least 1 rank, got {}", size);
    bool json = ds::wants_json(format);
    ds::ConfigRefusals refusals;
    const ds::Json document = ds::parse_config_text(text, "config");
    const ds::Config parsed = ds::parse_config(document, size, refusals);
    // One rank says nothing of how many there will be.
    if (size > 1) ds::check_rank_counts(parsed, size, refusals);
    ds::put_text(json ? ds::config_json(parsed, refusals, document).dump(2)
                      : ds::config_text(parsed, refusals, document),
                 out_text);
    if (out_refused) *out_refused = static_cast<int32_t>(refusals.errors.size());
  });
}
