#include "core/program/choices.h"

#include <vector>

#include "core/config/options.h"

namespace ds {

Json Choices::json() const {
  Json out;
  out.set("prefetch", prefetch);
  out.set("late_reuse", late_reuse);
  out.set("recompute", recompute);
  out.set("recompute_layers", recompute_layers);
  return out;
}

Choices Choices::of(const Json& document) {
  static const std::vector<std::string> ways{"none", "cheap", "layers"};
  // These are the keys that json() writes.
  static constexpr Option<Choices> options[] = {
      {"prefetch", [](auto& choices, auto& value) { choices.prefetch = value.flag(); }},
      {"late_reuse", [](auto& choices, auto& value) { choices.late_reuse = value.flag(); }},
      {"recompute", [](auto& choices, auto& value) { choices.recompute = value.word(ways); }},
      {"recompute_layers",
       [](auto& choices, auto& value) { choices.recompute_layers = value.integer(1, INT32_MAX); }}};
  return request_of(document, options);
}

}  // namespace ds
