#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// A deprecated full name of a key, and the key's path. The section bf16 may also be called
// bfloat16.
struct DeprecatedName {
  const char* name;
  const char* path;
};
inline constexpr DeprecatedName kDeprecatedNames[] = {
    {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device"},
    {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device"},
    {"checkpoint.writer.decoupled", "run.async_save"}};

// Megatron's name of gradient_clipping.
inline constexpr const char* kMaxGradNorm = "optimizer.params.max_grad_norm";

// Returns all keys in the order in which they are set and printed.
const KeyList& config_keys();

// A key or section of DeepSpeed that no field of Config represents.
struct ForeignKey {
  enum class Rule {
    // The key selects how DeepSpeed works and does not change results. Any value of its kind is
    // accepted.
    no_effect,
    // The key is accepted only with the value `neutral`, which stands for what DeepSpeed does
    // without the key.
    only,
    // A section that is off unless its "enabled" is true, which is unsupported.
    section,
    // As `section`, but "enabled": true is a warning.
    warned_section,
    // A section whose parts each have an "enabled". A part that is on is unsupported.
    nested,
    // A section of a parallelism, whose degree must not be above 1.
    degree,
  };
  std::string path;
  Rule rule = Rule::no_effect;
  // The accepted value under Rule::only.
  Json neutral;
  // The keys of a section other than "enabled". If empty, any key is accepted.
  std::vector<std::string> inside;
  // The reason why the key is refused or warned of, and often what to do instead.
  std::string reason;
  // Under Rule::no_effect, refuses the values that DeepSpeed refuses. Null if DeepSpeed accepts any
  // value.
  std::function<void(const std::string& path, const Json& given)> check = nullptr;
  bool whole() const { return rule != Rule::no_effect && rule != Rule::only; }
};

const std::vector<ForeignKey>& foreign_keys();

enum class ForeignEffect {
  // The value requests what libds does anyway.
  off,
  // The value requests something that has no effect here.
  none,
  // As `none`, but the user should be warned.
  warning,
};

// Returns the effect of a value. Throws DS_ERROR_CONFIG naming the path if the value requests
// something that libds does not have.
ForeignEffect check_foreign(const ForeignKey& key, const Json& given);

}  // namespace ds
