#include "api/boundary.h"
#include "core/base/json.h"
#include "run/setup.h"

ds_status ds_config_merge(const char* config, const char* patch, char* buffer, size_t buffer_size,
                          size_t* out_size) {
  return ds::boundary([&] {
    ds::Json document = ds::Json::parse(ds::need_text(config, "config"), "config");
    ds::merge_patch(document, ds::Json::parse(ds::need_text(patch, "patch"), "patch"));
    ds::put_text(document.dump(2), buffer, buffer_size, out_size);
  });
}
