// This file implements training, generation and other commands of the program `libds` as functions.
// They parse their arguments here; run/, generation/ and diagnostics/ do the work.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/boundary.h"
#include "api/handles.h"
#include "comm/communicator.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/config_text.h"
#include "core/config/parse_config.h"
#include "data/keys.h"
#include "diagnostics/audit.h"
#include "diagnostics/audit_report.h"
#include "diagnostics/profile.h"
#include "diagnostics/verify.h"
#include "diagnostics/verify_request.h"
#include "generation/generate_text.h"
#include "generation/generation_request.h"
#include "run/run_document.h"
#include "run/tokenize.h"
#include "run/train.h"
#include "run/train_options.h"

namespace {

// Returns the communicator of a handle, or a group of one rank if the handle is NULL.
std::shared_ptr<ds::Communicator> group(ds_comm* comm) {
  return ds::need_or_null(comm, "comm") ? comm->comm : ds::create_communicator("self", {});
}

// Converts the callback for batches. Any status other than DS_OK makes the run stop.
ds::BatchCallback batch_callback(ds_run_batch_fn* fn, void* user_data) {
  if (!fn) return nullptr;
  return [=](int64_t step, int32_t micro_step, std::span<int32_t> tokens,
             std::span<int32_t> targets) {
    return fn(step, micro_step, tokens.data(), targets.data(), tokens.size(), user_data) == DS_OK;
  };
}

// Converts the callback for progress. It gets a copy of the progress, except that next_lr points to
// the run's value, which the callback may change. Any status other than DS_OK makes the run stop.
std::function<bool(ds::RunProgress&)> progress_callback(ds_run_progress_fn* fn, void* user_data) {
  if (!fn) return nullptr;
  return [=](ds::RunProgress& now) {
    ds_run_progress out{};
    out.struct_size = sizeof out;
    out.step = now.step;
    out.steps = now.steps;
    out.samples = now.samples;
    out.loss = now.loss;
    out.heldout_loss = now.heldout_loss;
    out.grad_norm = now.grad_norm;
    out.lr = now.lr;
    out.tokens_per_second = now.tokens_per_second;
    out.loss_scale = now.loss_scale;
    out.next_lr = &now.next_lr;
    return fn(&out, user_data) == DS_OK;
  };
}

}  // namespace

// The configuration is parsed for one rank, because tokens do not depend on the number of ranks.
ds_status ds_run_tokenize(const char* config, const char* path, const volatile int32_t* stop,
                          char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::Json document = ds::parse_config_text(ds::need_text(config, "config"), "config");
    ds::put_text(ds::tokenize_data(ds::parse_config(document, 1).get<ds::DataKeys>(),
                                   ds::need_path(path, "path"), stop),
                 out_text);
  });
}

// If config is NULL, the configuration of the folder to resume is used.
ds_status ds_run_communicator(const char* config, const char* resume, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::Json document = config ? ds::parse_config_text(config, "config") : ds::Json();
    ds::put_text(ds::run_communicator(document, ds::optional_path(resume, "resume")), out_text);
  });
}

// A stop by a callback or by the flag is an error: DS_ERROR_USER if the run has saved a checkpoint,
// DS_ERROR_STATE if it had not begun.
ds_status ds_run_train(ds_comm* comm, const char* config, const char* resume, int32_t quiet,
                       ds_run_batch_fn* batch, ds_run_progress_fn* progress,
                       const volatile int32_t* stop, void* user_data) {
  return ds::boundary([&] {
    std::shared_ptr<ds::Communicator> ranks = group(comm);
    ds::require(config || resume, "config must not be NULL without resume");
    ds::require(quiet >= 0 && quiet <= 2, "quiet must be 0 to 2, got {}", quiet);
    ds::TrainOptions options;
    options.resume = ds::optional_path(resume, "resume");
    options.quiet = quiet;
    options.batch = batch_callback(batch, user_data);
    options.progress = progress_callback(progress, user_data);
    options.stop = stop;
    ds::Json document = config ? ds::parse_config_text(config, "config") : ds::Json();
    ds::RunReport report = ds::train(document, *ranks, options);
    // The folder is empty if the flag was set before the run had created it.
    if (report.folder.empty()) {
      ds::raise(DS_ERROR_STATE, "the stop flag was set before the run began: nothing was created");
    }
    if (report.end == ds::RunEnd::callback || report.end == ds::RunEnd::stopped) {
      const char* who = report.end == ds::RunEnd::callback ? "a callback" : "the stop flag";
      ds::raise(DS_ERROR_USER, "{} asked to stop after step {}; saved in '{}'", who, report.step,
                report.folder);
    }
  });
}

// The prompt may be NULL only if the options have ids. An empty prompt is allowed without ids if
// the tokenizer puts tokens before a text.
ds_status ds_run_generate(ds_comm* comm, const char* model, const char* prompt, const char* options,
                          ds_run_text_fn* text, void* user_data, char** out_text) {
  return ds::boundary([&] {
    std::shared_ptr<ds::Communicator> ranks = group(comm);
    std::string folder = ds::need_path(model, "model");
    ds::need(out_text, "out_text") = nullptr;
    ds::Json document =
        options ? ds::Json::parse(options, "options") : ds::Json(ds::Json::Object{});
    ds::GenerationRequest request = ds::generation_request(prompt ? prompt : "", document);
    ds::require(prompt || !request.ids.empty(), "prompt must not be NULL, unless ids are given");
    std::function<bool(const std::string&)> piece;
    if (text)
      piece = [=](const std::string& part) { return text(part.c_str(), user_data) == DS_OK; };
    ds::put_text(ds::generate_text(*ranks, folder, request, piece), out_text);
  });
}

// The number of failures is an output, not an error, so that the caller gets the report.
ds_status ds_run_verify(ds_comm* comm, const char* model, const char* options, ds_format format,
                        int32_t* out_failed, char** out_text) {
  return ds::boundary([&] {
    std::shared_ptr<ds::Communicator> ranks = group(comm);
    std::string folder = ds::need_path(model, "model");
    ds::need(out_text, "out_text") = nullptr;
    bool json = ds::wants_json(format);
    ds::need(out_failed, "out_failed");
    ds::Json document =
        options ? ds::Json::parse(options, "options") : ds::Json(ds::Json::Object{});
    ds::VerifyRequest parsed = ds::verify_request(document);
    ds::VerifyReport report = ds::verify_folder(folder, parsed, *ranks);
    ds::put_text(json ? report.json().dump(1) : report.text(), out_text);
    *out_failed = report.failed();
  });
}

ds_status ds_run_profile(ds_comm* comm, const char* config, const char* model, const char* options,
                         ds_format format, char** out_text) {
  return ds::boundary([&] {
    std::shared_ptr<ds::Communicator> ranks = group(comm);
    ds::need(out_text, "out_text") = nullptr;
    bool json = ds::wants_json(format);
    ds::Json document = config ? ds::parse_config_text(config, "config") : ds::Json();
    ds::Json parsed = options ? ds::Json::parse(options, "options") : ds::Json(ds::Json::Object{});
    ds::ProfileRequest request = ds::profile_request(parsed);
    ds::ProfileReport report =
        ds::profile(document, ds::optional_path(model, "model"), request, *ranks);
    ds::put_text(json ? report.json().dump(1) : report.text(), out_text);
  });
}

ds_status ds_run_audit(ds_comm* comm, const char* config, const char* options, ds_format format,
                       int32_t* out_failed, char** out_text) {
  return ds::boundary([&] {
    std::shared_ptr<ds::Communicator> ranks = group(comm);
    std::string_view document = ds::need_text(config, "config");
    ds::need(out_text, "out_text") = nullptr;
    bool json = ds::wants_json(format);
    ds::need(out_failed, "out_failed");
    ds::Json parsed = options ? ds::Json::parse(options, "options") : ds::Json(ds::Json::Object{});
    ds::AuditRequest request = ds::audit_request(parsed);
    ds::AuditReport report = ds::audit(ds::parse_config_text(document, "config"), request, *ranks);
    ds::put_text(json ? report.json().dump(1) : report.text(request.top), out_text);
    *out_failed = report.failed();
  });
}
