#include "core/config/needs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/config/key.h"
#include "core/config/schema.h"

namespace ds {
namespace {

// Returns the value of a key, even if the key does not apply and is not printed.
Json value_of(const Config& config, std::string_view path) {
  const KeyList& keys = config_keys();
  const auto found = std::ranges::find_if(keys, [&](const Key& key) { return key.path == path; });
  require(found != keys.end(), "a need names the unknown key {}", path);
  return found->value(config);
}

// Returns a value as ConfigNeed writes it: texts without quotes.
std::string plain(const Json& value) { return value.is_string() ? value.string() : value.dump(); }

bool among(const std::vector<std::string_view>& values, const Json& value) {
  return contains(values, plain(value));
}

// Returns the part of the message after the key.
std::string text_of(const ConfigNeed& need, const Json& value, const Json& got) {
  if (need.says) {
    const std::string ours = plain(value), others = plain(got);
    return fmt::format(fmt::runtime(need.says), ours, others);
  }
  const std::string begin = ": " + (need.when.empty() ? "" : value.dump() + " ");
  if (need.kind == ConfigNeed::excludes)
    return fmt::format("{}excludes {} {}{}", begin, need.other, got.dump(), need.reason);
  std::vector<std::string> values;
  for (std::string_view one : need.values)
    values.push_back(got.is_string() ? Json(std::string(one)).dump() : std::string(one));
  return fmt::format("{}needs {} {}, got {}{}", begin, need.other, fmt::join(values, " or "),
                     got.dump(), need.reason);
}

}  // namespace

void check_needs(const Config& config, std::span<const ConfigNeed> needs) {
  // A `needs` rule is broken if the value of `other` is not in `values`, an `excludes` rule if it
  // is.
  for (const ConfigNeed& need : needs) {
    const Json value = value_of(config, need.key), got = value_of(config, need.other);
    const bool concerns = need.when.empty() || among(need.when, value);
    const bool fits = among(need.values, got) == (need.kind == ConfigNeed::needs);
    if (fits || !concerns || !config.origins.contains(need.key)) continue;
    raise(DS_ERROR_CONFIG, "{}{}", KeyName(need.key), text_of(need, value, got));
  }
}

}  // namespace ds
