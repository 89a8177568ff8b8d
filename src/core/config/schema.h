#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/values.h"

namespace ds {

// One key that libds acts on.
struct Key {
  std::string path;   // dotted, from the top of the document
  std::string other;  // a second accepted name of the last component, or ""
  std::function<void(Config&, const Json& given)> set;
  std::function<Json(const Config&)> get;  // null: does not apply to this configuration
};

// Deprecated names of keys, in full. The section bf16 may also be called bfloat16.
struct DeprecatedName {
  const char* name;
  const char* path;
};
inline constexpr DeprecatedName kDeprecatedNames[] = {
    {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device"},
    {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device"},
    {"checkpoint.writer.decoupled", "run.async_save"}};

// Micro-steps of a step: the step program has each of them.
inline constexpr int64_t kMostAccumulation = 65536;

// All keys, in the order in which they are set and printed.
const std::vector<Key>& config_keys();

// One key of DeepSpeed that libds knows by name only.
struct ForeignKey {
  enum class Rule {
    no_effect,  // a value of its kind: it selects how DeepSpeed works, not what comes out
    only,  // accepted with `neutral` (what DeepSpeed does when the key is absent), else unsupported
    section,         // a section that is off unless its "enabled" says true; on is unsupported
    warned_section,  // as `section`, but on is a warning
    nested,          // a section whose parts have an "enabled" each; one that is on is unsupported
    degree,          // a section of a parallelism, whose degree may be 1
  };
  std::string path;
  Rule rule = Rule::no_effect;
  Json neutral;                     // of rule only
  std::vector<std::string> inside;  // of sections: their keys beside "enabled"; empty: anything
  std::string reason;  // why it is refused, and what to do instead; of warnings the rest of it
  // Of rule no_effect: refuses a value that DeepSpeed refuses, too. Null: DeepSpeed takes any.
  std::function<void(const std::string& path, const Json& given)> check = nullptr;
  bool whole() const { return rule != Rule::no_effect && rule != Rule::only; }
};

const std::vector<ForeignKey>& foreign_keys();

enum class ForeignEffect {
  off,      // it says what libds does anyway
  none,     // it asks for something that has no effect here
  warning,  // as `none`, but a user should hear of it
};

// Throws DS_ERROR_CONFIG naming the path when the value asks for what libds does not have.
ForeignEffect check_foreign(const ForeignKey& key, const Json& given);

// Refuses sizes whose products no machine has and 64-bit offsets could not count, naming the keys.
// The batch and the model are complete.
void check_sizes(const Config& config);

// Completes and checks train_batch, micro_batch and accumulation (0: not given).
void complete_batch(Config& config, int world);
void complete_precision(Config& config);

// Refuse what compressed gradients and compressed momenta do not go with.
void check_gradient_compression(const Config& config);
void check_compressed(const Config& config);
// Warns of what `reproducible` cannot make independent of the number of ranks.
void warn_of_codes(Config& config);

}  // namespace ds
