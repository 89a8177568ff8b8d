#include "diagnostics/verify_request.h"

#include "core/config/options.h"
#include "core/device/thread_team.h"

namespace ds {

const std::vector<std::string>& verify_kinds() {
  static const std::vector<std::string> kinds{"logits", "loss",      "grad",         "adamw",
                                              "accum",  "sgd",       "final_params", "greedy",
                                              "bf16",   "bf16_accum"};
  return kinds;
}

VerifyRequest verify_request(const Json& document) {
  static const std::vector<std::string> tiers{"device", "cpu", "nvme"},
      types{"f32", "bf16", "both"};
  static constexpr Option<VerifyRequest> options[] = {
      {"stage",
       [](auto& request, auto& value) { request.stage = static_cast<int>(value.integer(0, 3)); }},
      {"tier",
       [](auto& request, auto& value) {
         const std::string& tier = value.word(tiers);
         request.tier = tier == "device" ? Tier::device : tier == "cpu" ? Tier::host : Tier::nvme;
       }},
      {"dtype",
       [](auto& request, auto& value) {
         const std::string& dtype = value.word(types);
         request.f32 = dtype != "bf16";
         request.bf16 = dtype != "f32";
       }},
      {"kinds",
       [](auto& request, auto& value) {
         for (const JsonReader& kind : value.items())
           request.kinds.push_back(kind.word(verify_kinds()));
       }},
      {"device", [](auto& request, auto& value) { request.device = value.nonempty(); }},
      {"nvme_path", [](auto& request, auto& value) { request.nvme_path = value.nonempty(); }},
      {"threads", [](auto& request, auto& value) {
         request.threads = static_cast<int>(value.integer(0, ThreadTeam::kMostThreads));
       }}};
  return request_of(document, options);
}

// In some families, tensors in the files have other names than their parameters.
const std::string& VerifySubject::param(const std::string& name) const {
  auto at = stored.find(name);
  return at == stored.end() ? name : at->second;
}

}  // namespace ds
