#include "api/boundary.h"
#include "api/handles.h"
#include "checkpoint/checkpoint.h"
#include "io/file.h"

namespace {

// The checkpoint that `folder` is, or the newest complete one below it or below the checkpoints/ of a run.
std::string checkpoint_at(const std::string& folder) {
  if (ds::exists(folder + "/manifest.json")) return folder;
  std::string path = ds::exists(folder) ? ds::latest_checkpoint(folder) : "";
  if (path.empty()) path = ds::latest_checkpoint(folder + "/checkpoints");
  if (path.empty()) ds::raise(DS_ERROR_NOT_FOUND, "no complete checkpoint at or below '{}'", folder);
  return path;
}

}  // namespace

ds_status ds_checkpoint_save(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::EngineCore& e = ds::core(engine);
    e.save(std::string(ds::need_text(folder, "folder")));
  });
}

ds_status ds_checkpoint_load(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::EngineCore& e = ds::core(engine);
    e.load(checkpoint_at(std::string(ds::need_text(folder, "folder"))));
  });
}

ds_status ds_checkpoint_load_model(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::EngineCore& e = ds::core(engine);
    e.load_weights(std::string(ds::need_text(folder, "folder")));
  });
}

ds_status ds_checkpoint_save_model(ds_engine* engine, const char* folder, const char* like) {
  return ds::boundary([&] {
    ds::EngineCore& e = ds::core(engine);
    e.save_weights(std::string(ds::need_text(folder, "folder")), like ? like : "");
  });
}

ds_status ds_checkpoint_info(const char* path, char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary([&] {
    std::string found = checkpoint_at(std::string(ds::need_text(path, "path")));
    ds::CheckpointInfo info = ds::read_checkpoint_info(found);
    ds::Json out;
    out.set("path", found);
    out.set("step", info.step);
    out.set("seed", static_cast<int64_t>(info.seed));
    out.set("numerics_key", info.numerics_key);
    out.set("payload_hash", ds::payload_hash(found));
    out.set("config", info.config);
    ds::put_text(out.dump(2), buffer, buffer_size, out_size);
  });
}
