// DeepSpeed's dynamic batching (data_efficiency.data_sampling.dynamic_batching): micro-batches of
// as many documents as max_tokens allows, and a learning rate that follows their number.
// data/dynamic_batches.h has the rule.
#include "core/config/data_efficiency.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/key_kinds.h"
#include "core/config/schema.h"
#include "core/config/values.h"

namespace ds {
namespace {

const std::string kDynamicSection = "data_efficiency.data_sampling.dynamic_batching.";

}  // namespace

void data_efficiency_keys(std::vector<Key>& keys) {
  // Printed where the file speaks of it.
  auto add = [&](Key one) {
    one.get = [get = one.get](const Config& c) {
      return c.dynamic_batching.given ? get(c) : Json();
    };
    keys.push_back(std::move(one));
  };
  auto of = [&](const std::string& name, auto field, Limits limits = {}) {
    add(key(
        kDynamicSection + name, [field](auto& c) -> auto& { return field(c.dynamic_batching); },
        limits));
  };
  add(key("data_efficiency.enabled", [](auto& c) -> auto& { return c.dynamic_batching.outer; }));
  add(key("data_efficiency.seed", [](auto& c) -> auto& { return c.dynamic_batching.seed; }));
  add(key("data_efficiency.data_sampling.enabled",
          [](auto& c) -> auto& { return c.dynamic_batching.sampling; }));
  of("enabled", [](auto& d) -> auto& { return d.enabled; });
  of(
      "max_tokens", [](auto& d) -> auto& { return d.max_tokens; }, positive);
  of(
      "min_batch_size", [](auto& d) -> auto& { return d.min_batch; }, positive);
  of(
      "max_batch_size", [](auto& d) -> auto& { return d.max_batch; }, positive);
  add(choice_key(kDynamicSection + "lr_scaling_method",
                 [](auto& c) -> auto& { return c.dynamic_batching.lr_scaling; },
                 {"linear", "sqrt", "none"}));
  add(choice_key(kDynamicSection + "sequence_picking_order",
                 [](auto& c) -> auto& { return c.dynamic_batching.order; },
                 {"dataloader", "random", "seqlen"}));
}

void complete_data_efficiency(Config& config) {
  DynamicBatchingConfig& d = config.dynamic_batching;
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
    raise(DS_ERROR_CONFIG, "{}: missing; dynamic batching needs it",
          KeyName(kDynamicSection + "max_tokens"));
  if (d.max_batch != 0 && d.max_batch < d.min_batch) {
    raise(DS_ERROR_CONFIG, "{}: {} is below min_batch_size {}",
          KeyName(kDynamicSection + "max_batch_size"), d.max_batch, d.min_batch);
  }
  if (config.data.format == "text") {
    raise(DS_ERROR_CONFIG,
          "{}: true needs documents: data.format \"jsonl\", or \"tokens\" of such files, got "
          "\"text\"",
          KeyName(kDynamicSection + "enabled"));
  }
  if (config.data.packing == "joined") {
    raise(DS_ERROR_CONFIG, "{}: true excludes data.packing true: its documents are isolated",
          KeyName(kDynamicSection + "enabled"));
  }
  if (config.curriculum.enabled) {
    raise(DS_ERROR_CONFIG, "{}: true excludes curriculum_learning.enabled true",
          KeyName(kDynamicSection + "enabled"));
  }
}

int64_t batch_rows(const Config& config) {
  int64_t sample = config.sequence;
  if (config.dynamic_batching.enabled)
    sample = std::max(sample, config.dynamic_batching.max_tokens);
  return config.micro_batch * sample;
}

}  // namespace ds
