// This file implements the calls that save, load and convert checkpoints. Calls with an engine are
// collective: options are read on all ranks before anything is read or written, so that a mistake
// on one rank is an error on every rank.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "api/strides.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "core/base/json.h"
#include "core/base/json_read.h"
#include "core/config/options.h"
#include "engine/checkpoints.h"

namespace {

// The options of ds_checkpoint_save.
struct SaveRequest {
  ds::Json client;
  ds::Keep keep;
  std::string tag;
  bool async = false;
};

// Reads and checks a tag, before any file is written.
std::string tag_of(const ds::JsonReader& value) {
  std::string tag = value.text();
  ds::require_tag(tag);
  return tag;
}

SaveRequest save_request(const char* options) {
  static constexpr ds::Option<SaveRequest> known[] = {
      {"client_state", [](auto& request, auto& value) { request.client = value.json(); }},
      {"tag", [](auto& request, auto& value) { request.tag = tag_of(value); }},
      {"keep",
       [](auto& request, auto& value) { request.keep.newest = value.integer(0, INT32_MAX); }},
      {"async", [](auto& request, auto& value) { request.async = value.flag(); }}};
  return options ? ds::request_of(ds::Json::parse(options, "options"), known) : SaveRequest();
}

// Returns the tag of a load's options, or "" if they have none.
std::string load_tag(const char* options) {
  static constexpr ds::Option<std::string> known[] = {
      {"tag", [](auto& tag, auto& value) { tag = tag_of(value); }}};
  return options ? ds::request_of(ds::Json::parse(options, "options"), known) : "";
}

const std::vector<std::string> kForms{"libds", "universal", "fp32",    "model",
                                      "gguf",  "merged",    "unmerged"};
const std::vector<std::string> kTypes{"f32", "f16", "bf16", "q8_0"};

// Reads the options of ds_checkpoint_convert; ds.h describes them and their defaults.
ds::ConvertRequest convert_request(const char* options) {
  static constexpr ds::Option<ds::ConvertRequest> known[] = {
      {"to", [](auto& request, auto& value) { request.form = value.word(kForms); }},
      {"tag", [](auto& request, auto& value) { request.tag = tag_of(value); }},
      {"like", [](auto& request, auto& value) { request.like = value.nonempty(); }},
      {"file_bytes",
       [](auto& request, auto& value) { request.file_bytes = value.integer(1, INT64_MAX); }},
      {"step_tensor", [](auto& request, auto& value) { request.step_tensor = value.flag(); }},
      {"type", [](auto& request, auto& value) { request.type = value.word(kTypes); }}};
  return options ? ds::request_of(ds::Json::parse(options, "options"), known)
                 : ds::ConvertRequest();
}

// Runs `read`, which reads the options of a collective call. A mistake on one rank becomes an error
// on all ranks. An engine that an earlier error has made unusable reports that error instead.
void read_on_all(ds_engine* engine, const char* call, const std::function<void()>& read) {
  ds::runtime(engine).require_usable();
  ds::agree(*engine->comm, call, read);
}

}  // namespace

ds_status ds_checkpoint_save(ds_engine* engine, const char* folder, const char* options) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    std::string place = ds::need_path(folder, "folder");
    SaveRequest request;
    read_on_all(engine, "ds_checkpoint_save", [&] { request = save_request(options); });
    // A save is asynchronous if any rank requests it.
    if (ds::agree_max(*engine->comm, request.async ? 1 : 0, "checkpoint async") != 0) {
      e.start_save(place, request.client, request.keep, request.tag);
    } else {
      e.save(place, request.client, request.keep, request.tag);
    }
  });
}

ds_status ds_checkpoint_wait(ds_engine* engine) {
  return ds::boundary([&] { ds::checkpoints(engine).wait(); });
}

// Every rank gets the saved client state.
ds_status ds_checkpoint_load(ds_engine* engine, const char* folder, const char* options,
                             char** out_text) {
  return ds::boundary([&] {
    if (out_text) *out_text = nullptr;
    ds::Checkpoints& e = ds::checkpoints(engine);
    std::string place = ds::need_path(folder, "folder");
    std::string tag;
    read_on_all(engine, "ds_checkpoint_load", [&] { tag = load_tag(options); });
    ds::CheckpointInfo info = e.load(place, tag);
    if (out_text) ds::put_text(info.client.dump(), out_text);
  });
}

// The value is copied to the host, so that steps may change the tensor before the save.
ds_status ds_checkpoint_attach(ds_engine* engine, const char* name, const ds_tensor* value) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    const std::string called(ds::need_text(name, "name"));
    const ds_tensor& given = ds::need(value, "value");
    ds::Attachment attachment{given.dtype, given.dims, std::vector<std::byte>(given.bytes())};
    // A tensor over the bytes of the attachment.
    ds_tensor to;
    to.dtype = given.dtype;
    to.dims = given.dims;
    to.strides = ds::compact_strides(given.dims);
    to.numel = given.numel;
    to.data = attachment.bytes.data();
    ds::copy_tensor(to, given, nullptr);
    e.attach(called, std::move(attachment));
  });
}

ds_status ds_checkpoint_attachment(const ds_engine* engine, const char* name, int32_t rank,
                                   ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    const ds::Attachment found =
        ds::checkpoints(engine).attachment(ds::need_path(name, "name"), rank);
    std::unique_ptr<ds_tensor> tensor = ds::own_tensor(found.dtype, found.shape);
    std::ranges::copy(found.bytes, static_cast<std::byte*>(tensor->data));
    *out = tensor.release();
  });
}

ds_status ds_checkpoint_load_model(ds_engine* engine, const char* folder) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    e.load_weights(ds::need_path(folder, "folder"));
  });
}

ds_status ds_checkpoint_save_model(ds_engine* engine, const char* folder, const char* like) {
  return ds::boundary([&] {
    ds::Checkpoints& e = ds::checkpoints(engine);
    e.save_weights(ds::need_path(folder, "folder"), ds::optional_path(like, "like"));
  });
}

// The payload hash reads every file, so this call also verifies the checkpoint.
ds_status ds_checkpoint_info(const char* path, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    std::string found = ds::find_checkpoint(ds::need_path(path, "path"));
    ds::CheckpointInfo info = ds::read_checkpoint_info(found);
    std::string tag = ds::tag_of_checkpoint(found);
    ds::Json out;
    out.set("path", found);
    out.set("tag", tag.empty() ? ds::Json() : ds::Json(tag));
    out.set("step", info.step);
    out.set("seed", static_cast<int64_t>(info.seed));
    out.set("numerics_key", info.numerics_key);
    out.set("payload_hash", ds::payload_hash(found));
    out.set("config", info.config);
    ds::put_text(out.dump(2), out_text);
  });
}

ds_status ds_checkpoint_convert(const char* from, const char* to, const char* options,
                                char** out_text) {
  return ds::boundary([&] {
    if (out_text) *out_text = nullptr;
    std::string source = ds::need_path(from, "from"), target = ds::need_path(to, "to");
    ds::Json out = ds::convert_checkpoint(source, target, convert_request(options));
    if (out_text) ds::put_text(out.dump(2), out_text);
  });
}
