#include "api/boundary.h"
#include "core/base/json.h"
#include "run/setup.h"

ds_status ds_config_merge(const char* config, const char* patch, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::Json document = ds::Json::parse(ds::need_text(config, "config"), "config");
    ds::merge_patch(document, ds::Json::parse(ds::need_text(patch, "patch"), "patch"));
    ds::put_text(document.dump(2), out_text);
  });
}
