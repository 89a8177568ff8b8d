// DeepSpeed's dynamic batching (data_efficiency.data_sampling.dynamic_batching): micro-batches of
// as many documents as max_tokens allows, and a learning rate that depends on their number.
// data/dynamic_batches.h has the rule.
#include "data/data_efficiency.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/key.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"
#include "data/curriculum.h"
#include "data/keys.h"
#include "data/preference.h"

namespace ds {
namespace {

const std::string kDynamicSection = "data_efficiency.data_sampling.dynamic_batching.";

}  // namespace

void data_efficiency_keys(KeyList& keys) {
  using D = DynamicBatchingKeys;
  KeyRows rows(keys, "data_efficiency.", of_section<D>);
  KeyRows dynamic(keys, kDynamicSection, of_section<D>);
  // The keys are printed only if the file enables dynamic batching.
  rows.only(&D::given);
  dynamic.only(&D::given);
  rows.add("enabled", &D::outer, "dynamic batching is on only if this is true, too");
  rows.add("seed", &D::seed, "the seed of `sequence_picking_order` `random`");
  rows.add("data_sampling.enabled", &D::sampling,
           "dynamic batching is on only if this is true, too");
  dynamic.add("enabled", &D::enabled,
              "groups of as many documents as `max_tokens` allows take the place of samples "
              "([data.md](data.md#dynamic-batching))");
  dynamic
      .add("max_tokens", &D::max_tokens,
           "the largest number of tokens in a group; longer documents are left out", positive)
      .shown("required");
  dynamic.add("min_batch_size", &D::min_batch, "the smallest number of documents in a group",
              positive);
  dynamic
      .add("max_batch_size", &D::max_batch, "the largest number of documents in a group", positive)
      .shown("none");
  dynamic.words(
      "lr_scaling_method", &D::lr_scaling, {"linear", "sqrt", "none"},
      "learning rates of a step are multiplied by its number of documents divided by "
      "`train_batch_size` (`linear`), by the square root of that (`sqrt`), or by nothing (`none`)");
  dynamic.words("sequence_picking_order", &D::order, {"dataloader", "random", "seqlen"},
                "`dataloader`: in the order of the files; `random`; `seqlen`: the shortest first");
}

// `enabled` is final after this function, so later code ignores the sections around it.
void complete_data_efficiency(Config& config) {
  DynamicBatchingKeys& d = config.get<DynamicBatchingKeys>();
  if (!d.enabled) return;
  d.given = true;
  if (!d.outer || !d.sampling) {
    const char* off = d.outer ? "data_efficiency.data_sampling.enabled" : "data_efficiency.enabled";
    config.warnings.push_back(kDynamicSection + "enabled: true has no effect, because " + off +
                              " is false");
    d.enabled = false;
    return;
  }
  if (d.max_tokens == 0)
    refuse(kDynamicSection + "max_tokens", "missing; dynamic batching needs it");
  if (d.max_batch != 0 && d.max_batch < d.min_batch) {
    refuse(kDynamicSection + "max_batch_size", "{} is below min_batch_size {}", d.max_batch,
           d.min_batch);
  }
  using enum ConfigNeed::Kind;
  static const std::string enabled = kDynamicSection + "enabled";
  static const std::vector<ConfigNeed> rows{
      {enabled.c_str(),
       {"true"},
       excludes,
       "data.format",
       {"text"},
       "",
       ": {} needs documents: data.format \"jsonl\", or \"tokens\" of such files, got \"{}\""},
      {enabled.c_str(),
       {"true"},
       excludes,
       "data.packing",
       {"true"},
       ": its documents are isolated"},
      {enabled.c_str(), {"true"}, excludes, "curriculum_learning.enabled", {"true"}}};
  check_needs(config, rows);
}

// Rows with several documents need a graph that distinguishes documents. So does a curriculum with
// several samples a micro-batch: its shortened samples no longer begin at multiples of
// run.sequence, which is how a graph without `begin` finds them. The user may also set
// model.documents.
void complete_documents(Config& c) {
  ModelConfig& m = c.model;
  bool has_model = !m.family.empty() || !m.folder.empty();
  const char* by = c.get<DataKeys>().packing == "isolated" ? "data.packing \"isolated\""
                   : c.get<DynamicBatchingKeys>().enabled  ? "dynamic batching"
                                                           : nullptr;
  if (by && m.mask) {
    refuse("model.mask", "true excludes {}, whose padding is a document of its own", by);
  }
  if (by && c.origins.contains("model.documents") && !m.documents) {
    refuse("model.documents", "false, but {} needs a graph that tells documents apart", by);
  }
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> rows{{"model.documents",
                                             {"true"},
                                             excludes,
                                             "model.mask",
                                             {"true"},
                                             ": hidden rows are documents of their own"}};
  check_needs(c, rows);
  if (m.documents && !has_model)
    refuse("model.documents", "true needs model.family or model.folder, got none");
  bool curriculum = c.get<CurriculumKeys>().enabled && c.micro_batch > 1 && !m.mask;
  if (!has_model || c.origins.contains("model.documents") || !(by || curriculum)) return;
  m.documents = true;
  c.origins["model.documents"] = "derived";
}

int64_t batch_rows(const Config& config) {
  const DynamicBatchingKeys& d = config.get<DynamicBatchingKeys>();
  return config.micro_batch * config.get<PreferenceKeys>().texts() *
         std::max(config.sequence, d.enabled ? d.max_tokens : 0);
}

}  // namespace ds
