// Reads the options of ds_run_generate and of the samples of a run.
#include "generation/generation_request.h"

#include <limits>

#include "core/base/error.h"
#include "core/config/options.h"
#include "core/device/thread_team.h"
#include "nn/adapter_keys.h"

namespace ds {

namespace {

void put_ids(GenerationRequest& request, const JsonReader& value) {
  for (const JsonReader& id : value.items()) {
    request.ids.push_back(static_cast<int32_t>(id.integer(0, INT32_MAX)));
  }
  if (request.ids.empty()) {
    raise(DS_ERROR_CONFIG, "{}: must have at least one token, got none", KeyName(value.name()));
  }
}

void put_adapters(GenerationRequest& request, const JsonReader& value) {
  std::vector<std::string> texts;
  for (const JsonReader& item : value.items()) texts.push_back(item.nonempty());
  request.adapters = named_folders("adapters", texts);
}

}  // namespace

GenerationRequest generation_request(const std::string& prompt, const Json& document) {
  static const std::vector<std::string> types{"f32", "bf16", "f16"};
  static constexpr Option<GenerationRequest> options[] = {
      {"ids", put_ids},
      {"tokens", [](auto& request, auto& value) { request.tokens = value.integer(1, INT32_MAX); }},
      {"temperature",
       [](auto& request, auto& value) {
         request.sampling.temperature = value.number(0, std::numeric_limits<double>::max());
       }},
      {"top_k",
       [](auto& request, auto& value) { request.sampling.top_k = value.integer(0, INT32_MAX); }},
      {"seed",
       [](auto& request, auto& value) {
         request.sampling.seed = static_cast<uint64_t>(value.integer(0, INT64_MAX));
       }},
      {"dtype", [](auto& request, auto& value) { request.dtype = value.word(types); }},
      {"threads",
       [](auto& request, auto& value) {
         request.threads = static_cast<int>(value.integer(0, ThreadTeam::kMostThreads));
       }},
      {"stage",
       [](auto& request, auto& value) { request.stage = static_cast<int>(value.integer(0, 3)); }},
      {"device", [](auto& request, auto& value) { request.device = value.nonempty(); }},
      {"adapter", [](auto& request, auto& value) { request.adapter = value.nonempty(); }},
      {"adapters", put_adapters},
      {"base", [](auto& request, auto& value) { request.base = value.nonempty(); }},
      {"ignore_eos", [](auto& request, auto& value) { request.ignore_eos = value.flag(); }}};
  GenerationRequest request = request_of(document, options);
  request.prompt = prompt;
  require(prompt.empty() || request.ids.empty(),
          "prompt must be empty when ids are given, got both");
  return request;
}

}  // namespace ds
