#include <cstdint>
#include <string>

#include "api/boundary.h"
#include "api/handles.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "core/base/json.h"
#include "engine/checkpoints.h"

ds_status ds_checkpoint_save(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    e.save(std::string(ds::need_text(folder, "folder")));
  });
}

ds_status ds_checkpoint_load(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    e.load(std::string(ds::need_text(folder, "folder")));
  });
}

ds_status ds_checkpoint_load_model(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    e.load_weights(std::string(ds::need_text(folder, "folder")));
  });
}

ds_status ds_checkpoint_save_model(ds_engine* engine, const char* folder, const char* like) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    e.save_weights(std::string(ds::need_text(folder, "folder")), like ? like : "");
  });
}

ds_status ds_checkpoint_info(const char* path, char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary([&] {
    std::string found = ds::find_checkpoint(std::string(ds::need_text(path, "path")));
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
