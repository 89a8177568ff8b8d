#include "data/preference.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/config/needs.h"
#include "core/config/refuse.h"
#include "core/config/values.h"
#include "data/keys.h"

namespace ds {
namespace {

constexpr std::string_view kSection = "preference.";
constexpr const char* kLoss = "preference.loss_type";

bool given(const Config& config, const char* key) {
  const auto at = config.origins.find(key);
  return at != config.origins.end() && at->second != "default";
}

}  // namespace

void preference_keys(KeyList& keys) {
  using P = PreferenceKeys;
  KeyRows rows(keys, std::string(kSection), of_section<P>);
  rows.only([](const P& section) { return section.on(); });
  rows.words(
          "loss_type", &P::loss_type, {"sigmoid", "hinge", "ipo", "orpo", "simpo"},
          "the loss of a pair: `sigmoid` (DPO), `hinge` or `ipo`, which compare the model with a "
          "reference, the model that the run starts from; `orpo` or `simpo`, which need none. The "
          "formulas are those of `preference_loss` in [ops.md](ops.md); `orpo` adds the mean loss "
          "of all tokens of the chosen texts. `sigmoid` if the section has other keys only")
      .shown("none");
  rows.add("beta", &P::beta, "strength of the preference, above 0", not_negative);
  rows.add("label_smoothing", &P::label_smoothing,
           "with `sigmoid` and `simpo`: the share of the pairs whose order is taken to be wrong",
           Limits{.low = 0, .high = 1});
  rows.add("simpo_gamma", &P::simpo_gamma, "with `simpo`: the margin between the rewards");
  rows.add("cpo_alpha", &P::cpo_alpha,
           "with `simpo`: the weight of the mean loss of the chosen completions, which is added. "
           "TRL's default is 1, and 0 is SimPO as its authors have it",
           not_negative);
  rows.add("disable_dropout", &P::disable_dropout, "train without dropout, of an adapter, too");
  rows.words(
      "truncation_mode", &P::truncation_mode, {"keep_start"},
      "what is kept of a text that is longer than `run.sequence`: its beginning. The log says "
      "how many are cut",
      {"keep_end"});
  rows.nonempty(
      "reference", &P::reference,
      "file of the reference's losses, `data/reference.losses` of another run on the same "
      "model and data. Without it, the run computes them before its first step");
}

void complete_preference(Config& config) {
  PreferenceKeys& keys = config.get<PreferenceKeys>();
  auto is_given = [](const auto& origin) {
    return origin.first.starts_with(kSection) && origin.second != "default";
  };
  if (!keys.on() && std::ranges::any_of(config.origins, is_given)) keys.loss_type = "sigmoid";
}

void check_preference(const Config& config) {
  const PreferenceKeys& keys = config.get<PreferenceKeys>();
  if (!keys.on()) return;
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> rows{
      {"preference.label_smoothing", {}, needs, kLoss, {"sigmoid", "simpo"}},
      {"preference.simpo_gamma", {}, needs, kLoss, {"simpo"}},
      {"preference.cpo_alpha", {}, needs, kLoss, {"simpo"}},
      {"preference.reference", {}, needs, kLoss, {"sigmoid", "hinge", "ipo"}}};
  check_needs(config, rows);
  if (keys.beta <= 0) refuse("preference.beta", "must be above 0, got {}", keys.beta);
  const DataKeys& data = config.get<DataKeys>();
  if ((data.given() || given(config, "data.format")) && data.format != "jsonl")
    refuse("data.format", "preference training reads pairs from \"jsonl\", got \"{}\"",
           data.format);
  static const std::vector<std::string_view> all{"sigmoid", "hinge", "ipo", "orpo", "simpo"};
  static const std::vector<ConfigNeed> others{
      {"data.packing", {"true", "isolated"}, excludes, kLoss, all, ": each text has a row"},
      {"data.loss_on", {"all"}, excludes, kLoss, all, ": completions are compared"},
      {"loss_average", {"tokens"}, excludes, kLoss, all, ": the loss is a mean over pairs"},
      {"model.mask", {"true"}, excludes, kLoss, all},
      {"model.documents", {"true"}, excludes, kLoss, all, ": each text has a row"},
      {"curriculum_learning.enabled", {"true"}, excludes, kLoss, all},
      {"data_efficiency.data_sampling.dynamic_batching.enabled", {"true"}, excludes, kLoss, all}};
  check_needs(config, others);
}

}  // namespace ds
