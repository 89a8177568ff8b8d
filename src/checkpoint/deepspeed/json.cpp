#include "checkpoint/deepspeed/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace ds {
namespace {

using Kind = PickleValue::Kind;
// A pickle may nest and share values so that printing it takes exponential time and deep recursion.
// The next two limits are far above what settings need. Values nested more deeply than this become
// null.
constexpr int kDeepest = 24;
// The largest number of values that are printed, counting a shared value each time.
constexpr int64_t kMostMembers = 1 << 20;

class Printer {
 public:
  explicit Printer(const Pickle& pickle) : pickle_(pickle) {}

  Json print(const PickleValue& value, int depth) {
    if (++members_ > kMostMembers)
      raise(DS_ERROR_UNSUPPORTED, "{}: the settings have more than {} values", pickle_.source(),
            kMostMembers);
    if (depth > kDeepest) return {};
    switch (value.kind) {
      case Kind::boolean:
        return value.truth;
      case Kind::integer:
        return value.integer;
      case Kind::number:
        if (std::isinf(value.number)) return Json::infinity(value.number < 0);
        return std::isnan(value.number) ? Json() : Json(value.number);
      case Kind::text:
      case Kind::global:
        return value.text;
      case Kind::tuple:
      case Kind::list:
        return array(value, depth);
      case Kind::dict:
        return object(value, depth);
      case Kind::object:
        return made(value, depth);
      default:
        return {};
    }
  }

 private:
  Json array(const PickleValue& value, int depth) {
    Json::Array out;
    for (PickleId id : pickle_.elements(value)) out.push_back(print(pickle_.at(id), depth + 1));
    return out;
  }

  Json object(const PickleValue& value, int depth) {
    Json out = Json::Object();
    const auto& pairs = pickle_.pairs(value);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const PickleValue& key = pickle_.at(pairs[i]);
      std::string name = key.kind == Kind::text ? key.text : std::to_string(key.integer);
      out.object().emplace_back(name, print(pickle_.at(pairs[i + 1]), depth + 1));
    }
    return out;
  }

  // Prints an instance of a class: null for a tensor, an object for a dictionary of any class, and
  // the value for an enumeration; otherwise an object with the class and the state.
  Json made(const PickleValue& value, int depth) {
    std::string maker(pickle_.maker(value));
    if (maker.starts_with("torch._utils.")) return {};
    if (!value.members.empty() || maker.ends_with("OrderedDict")) return object(value, depth);
    if (value.items.size() < 3) {
      const PickleValue& arguments = pickle_.at(value.items[1]);
      bool one = pickle_.elements(arguments).size() == 1;
      return print(one ? pickle_.at(pickle_.elements(arguments)[0]) : arguments, depth + 1);
    }
    Json out;
    out.set("class", maker);
    out.set("state", print(pickle_.at(value.items[2]), depth + 1));
    return out;
  }

  const Pickle& pickle_;
  int64_t members_ = 0;
};

}  // namespace

Json pickle_json(const Pickle& pickle, const PickleValue& value) {
  return Printer(pickle).print(value, 0);
}

// Ignores case, as DeepSpeed does for names of optimizers.
bool is_muon(const Json& config) {
  const Json* type = &config;
  for (const char* key : {"config", "optimizer", "type"})
    type = type && type->is_object() ? type->find(key) : nullptr;
  if (!type || !type->is_string()) return false;
  constexpr std::string_view name = "muon";
  return std::equal(name.begin(), name.end(), type->string().begin(), type->string().end(),
                    [](char a, char b) { return a == b || a == b - 'A' + 'a'; });
}

}  // namespace ds
