#pragma once
#include <cstdint>
#include <string>

#include "core/base/json.h"

namespace ds {

// One choice among programs that compute the same bits but trade memory for time. It is a plain
// value, so that a search can try several choices and a plan can record the chosen one.
struct Choices {
  // Whether transfers may begin earlier than directly before the instructions that need them.
  bool prefetch = false;
  // Whether memory is reused late (OffsetOptions::late_reuse). Has an effect only if device and
  // host have separate memories.
  bool late_reuse = false;
  // The key `recompute`: "none", "cheap" or "layers".
  std::string recompute = "none";
  // With "layers", the number of consecutive layers that keep one activation together.
  int64_t recompute_layers = 1;

  bool operator==(const Choices&) const = default;

  // Returns an object like {"prefetch": true, "late_reuse": true, "recompute": "layers",
  // "recompute_layers": 2}.
  Json json() const;
  // Parses the output of json(). A missing key keeps its default. Throws DS_ERROR_CONFIG, naming
  // the key, for an unknown key or a value out of range.
  static Choices of(const Json& document);
};

}  // namespace ds
