// The keys of `adapter`. Those of PEFT that libds lacks are rows of core/config/foreign.cpp, so a
// user can paste an adapter_config.json as the section.
#include "nn/adapter_keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/config/refuse.h"
#include "core/config/values.h"

namespace ds {
namespace {

const std::string kSection = "adapter.";

// Limits of an expression, because std::regex parses groups by recursion.
constexpr size_t kMostExpression = 1000;
constexpr int kMostDepth = 20;

// Throws unless the text is a regular expression. std::regex has ECMAScript's syntax. It lacks
// Python's named groups and a few assertions.
void check_expression(const std::string& path, const std::string& text) {
  if (text.size() > kMostExpression)
    refuse(path, "an expression must have at most {} bytes, got {}", kMostExpression, text.size());
  int depth = 0;
  for (char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth > kMostDepth)
      refuse(path, "'{}' has groups inside each other, more than {} deep", text, kMostDepth);
  }
  try {
    const std::regex parsed = module_expression(text);
  } catch (const std::regex_error& error) {
    refuse(path, "'{}' is not a regular expression of ECMAScript: {}", text, error.what());
  }
}

std::vector<std::string> read_names(const std::string& path, const Json& given) {
  auto out = read_value<std::vector<std::string>>(path, given);
  for (const std::string& name : out)
    if (name.empty()) refuse(path, "a name must not be empty, got \"\"");
  return out;
}

ModuleNames read_modules(const std::string& path, const Json& given) {
  ModuleNames out;
  if (given.is_string()) {
    out.expression = read_nonempty(path, given);
    if (ascii_lower(out.expression) == kAllLinear) out.expression = kAllLinear;
    if (out.expression != kAllLinear) check_expression(path, out.expression);
    return out;
  }
  out.names = read_names(path, given);
  return out;
}

Json write_modules(const ModuleNames& modules) {
  if (modules.empty()) return {};
  return modules.names.empty() ? Json(modules.expression) : write_value(modules.names);
}

ModuleNumbers read_numbers(const std::string& path, const Json& given, const Limits& limits) {
  if (!given.is_object())
    refuse(path, "expected an object of numbers by pattern, got {}", given.dump());
  ModuleNumbers out;
  for (const auto& [pattern, value] : given.object()) {
    check_expression(path, pattern);
    out.emplace_back(pattern, read_value<double>(path + "." + pattern, value, limits));
  }
  return out;
}

// Whole numbers are written as integers, which PEFT expects of ranks.
Json write_numbers(const ModuleNumbers& numbers) {
  if (numbers.empty()) return {};
  Json out = Json::Object();
  for (const auto& [pattern, value] : numbers) {
    const auto whole = static_cast<int64_t>(value);
    out.set(pattern, static_cast<double>(whole) == value ? Json(whole) : Json(value));
  }
  return out;
}

ModuleNumbers read_ranks(const std::string& path, const Json& given) {
  ModuleNumbers out = read_numbers(path, given, positive);
  for (const auto& [pattern, value] : out) {
    if (value != static_cast<double>(static_cast<int64_t>(value)))
      refuse(path + "." + pattern, "a rank must be an integer, got {}", value);
  }
  return out;
}

ModuleNumbers read_alphas(const std::string& path, const Json& given) {
  return read_numbers(path, given, {.low = 0});
}

std::vector<int64_t> read_layers_given(const std::string& path, const Json& given) {
  if (!given.is_array()) return {read_value<int64_t>(path, given, count)};
  std::vector<int64_t> out;
  for (const Json& layer : given.array()) out.push_back(read_value<int64_t>(path, layer, count));
  return out;
}

Json write_layers(const std::vector<int64_t>& layers) {
  return layers.empty() ? Json() : Json(Json::Array(layers.begin(), layers.end()));
}

Json write_names(const std::vector<std::string>& names) {
  return names.empty() ? Json() : write_value(names);
}

std::string read_init(const std::string& path, const Json& given) {
  if (given.is_bool()) return given.boolean() ? "true" : "false";
  if (given.is_string() && given.string() == "gaussian") return "gaussian";
  refuse(path, "must be true, false or \"gaussian\", got {}", given.dump());
}

Json write_init(const std::string& init) {
  return init == "gaussian" ? Json(init) : Json(init == "true");
}

// Reads the parts of names that come before the index of a layer.
std::vector<std::string> read_lists(const std::string& path, const Json& given) {
  auto out = read_value<std::vector<std::string>>(path, given);
  for (const std::string& pattern : out) check_expression(path, pattern);
  return out;
}

std::vector<AdapterKeys> read_others(const std::string& path, const Json& given) {
  std::vector<AdapterKeys> out;
  for (const auto& [name, folder] :
       named_folders(path, read_value<std::vector<std::string>>(path, given))) {
    AdapterKeys& other = out.emplace_back();
    other.name = name;
    other.folder = folder;
  }
  return out;
}

Json write_others(const std::vector<AdapterKeys>& others) {
  std::vector<std::string> out;
  for (const AdapterKeys& other : others) out.push_back(other.name + "=" + other.folder);
  return write_names(out);
}

template <typename Rows>
void choice_keys(Rows& rows) {
  using A = AdapterKeys;
  rows.row("target_modules", &A::target_modules, read_modules, write_modules, KeyKind::texts,
           "the linear layers that get an adapter: a list of names, each of which a layer's name "
           "equals or ends with after a dot; one regular expression for the whole name; or "
           "`\"all-linear\"`, all but the head. A layer's name is that of its weight in the model "
           "folder without `.weight`");
  rows.row("exclude_modules", &A::exclude_modules, read_modules, write_modules, KeyKind::texts,
           "layers that get none although `target_modules` names them, in the same form");
  rows.row("layers_to_transform", &A::layers_to_transform, read_layers_given, write_layers,
           KeyKind::numbers,
           "indices of the layers that get adapters; only with a list of `target_modules`");
  rows.row("layers_pattern", &A::layers_pattern, read_lists, write_names, KeyKind::texts,
           "the name of the list of layers before the index, such as `h`; by default the first "
           "number in a layer's name counts that has two parts before it");
  rows.row("rank_pattern", &A::rank_pattern, read_ranks, write_numbers, KeyKind::named_numbers,
           "ranks by pattern in place of `r`; a pattern must match a layer's name or its end after "
           "a dot");
  rows.row("alpha_pattern", &A::alpha_pattern, read_alphas, write_numbers, KeyKind::named_numbers,
           "as `rank_pattern`, in place of `lora_alpha`");
  rows.row("modules_to_save", &A::modules_to_save, read_names, write_names, KeyKind::texts,
           "modules whose own parameters are trained and saved with the adapter: each whose name "
           "ends with one of these");
  rows.row("others", &A::others, read_others, write_others, KeyKind::texts,
           "frozen adapters on the same base, each as `NAME=DIR`. Evaluation and inference choose "
           "one by its name (`ds_engine_set`)");
}

}  // namespace

std::regex module_expression(const std::string& text) {
  return std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial);
}

void adapter_keys(KeyList& keys) {
  using A = AdapterKeys;
  KeyRows rows(keys, kSection, of_section<AdapterKeys>);
  rows.words("type", &A::type, {"lora"},
             "`lora`: train low-rank adapters beside a frozen model "
             "([adapters.md](../guides/adapters.md)). It is the default if the section has keys")
      .also("peft_type");
  rows.only(&A::on);
  rows.nonempty("folder", &A::folder,
                "a folder with the adapter_config.json of PEFT or libds, which gives all other "
                "keys. `libds train` starts from its adapters");
  rows.add("r", &A::r, "rank of the adapters", positive).also("lora_r");
  rows.add("lora_alpha", &A::alpha, "the product of an adapter is multiplied by `lora_alpha / r`",
           Limits{.low = 0});
  rows.add("lora_dropout", &A::dropout,
           "the share of the elements of an adapter's input that are dropped", decay);
  rows.add("use_rslora", &A::use_rslora,
           "multiply by `lora_alpha / sqrt(r)` instead (rank-stabilised scaling)");
  rows.add("use_dora", &A::use_dora,
           "train the norm of each row of an adapted weight as well, apart from its direction "
           "(DoRA)");
  rows.row("init_lora_weights", &A::init, read_init, write_init, KeyKind::boolean,
           "true: A is uniform in +-1/sqrt(inputs) and B zero; `\"gaussian\"`: A is normal with "
           "standard deviation 1/r and B zero; false: both are uniform",
           {}, {"gaussian"});
  rows.words("bias", &A::bias, {"none", "all", "lora_only"},
             "biases of the model that are trained and saved with the adapter: none, all, or those "
             "of layers with an adapter");
  choice_keys(rows);
}

void complete_adapter(Config& config) {
  AdapterKeys& keys = config.get<AdapterKeys>();
  auto given = [](const auto& origin) {
    return origin.first.starts_with(kSection) && origin.second != "default";
  };
  if (keys.type.empty() && std::ranges::any_of(config.origins, given)) keys.type = "lora";
  if (!keys.on() || !keys.folder.empty()) return;
  if (keys.target_modules.empty())
    refuse("adapter.target_modules",
           "missing; name layers in a list or as a regular expression, or give \"{}\"", kAllLinear);
  if (!keys.layers_to_transform.empty() && keys.target_modules.names.empty())
    refuse("adapter.layers_to_transform",
           "needs a list of names as adapter.target_modules, got \"{}\"",
           keys.target_modules.expression);
}

Json adapter_json(const AdapterKeys& keys) {
  static const KeyList rows = [] {
    KeyList list;
    adapter_keys(list);
    return list;
  }();
  Config config;
  config.get<AdapterKeys>() = keys;
  Json out;
  for (const Key& key : rows) {
    const std::string name = key.path.substr(kSection.size());
    if (name != "type" && name != "folder" && name != "others") out.set(name, key.get(config));
  }
  return out;
}

namespace {

// A name becomes a part of the names of parameters and of a folder.
void check_name(const std::string& path, const std::string& name) {
  const bool plain = std::ranges::all_of(
      name, [](char c) { return is_ascii_letter(c) || is_ascii_digit(c) || c == '_' || c == '-'; });
  if (name.empty() || !plain)
    refuse(path, "the name of an adapter must have letters, digits, _ and - only, got '{}'", name);
  if (name == kOwnAdapter || name == kNoAdapter)
    refuse(path, "'{}' is the name of {}; give the adapter another name", name,
           name == kOwnAdapter ? "the adapter that is trained" : "the base without adapters");
}

}  // namespace

std::vector<NamedFolder> named_folders(const std::string& path,
                                       const std::vector<std::string>& texts) {
  std::vector<NamedFolder> out;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    if (at == text.npos || at + 1 == text.size())
      refuse(path, "an adapter must be given as NAME=DIR, got '{}'", text);
    NamedFolder named{text.substr(0, at), text.substr(at + 1)};
    check_name(path, named.name);
    if (std::ranges::find(out, named.name, &NamedFolder::name) != out.end())
      refuse(path, "two adapters have the name '{}'", named.name);
    out.push_back(std::move(named));
  }
  return out;
}

const AdapterKeys& adapter_of(const AdapterKeys& keys, int number) {
  return number == 0 ? keys : keys.others.at(static_cast<size_t>(number - 1));
}

std::vector<int> adapter_numbers(const AdapterKeys& keys) {
  std::vector<int> out{0};
  if (!keys.on()) return out;
  for (size_t i = 0; i < keys.others.size(); ++i) out.push_back(static_cast<int>(i) + 1);
  if (!keys.trains_base()) out.push_back(kNoAdapterNumber);
  return out;
}

int adapter_number(const AdapterKeys& keys, const std::string& name) {
  if (!keys.on()) raise(DS_ERROR_NOT_FOUND, "adapter '{}': the engine has no adapter", name);
  if (name == kNoAdapter && keys.trains_base())
    raise(DS_ERROR_STATE,
          "the base without adapters cannot be chosen, because the adapter trains some of its "
          "parameters (modules_to_save or bias)");
  std::vector<std::string> names;
  for (int number : adapter_numbers(keys)) {
    names.emplace_back(number == kNoAdapterNumber ? kNoAdapter : adapter_of(keys, number).name);
    if (names.back() == name) return number;
  }
  raise(DS_ERROR_NOT_FOUND, "the engine has no adapter '{}', but {}", name,
        fmt::format("{}", fmt::join(names, ", ")));
}

namespace {

constexpr const char* kProductKeys[] = {"r",        "lora_alpha",   "use_rslora",
                                        "use_dora", "rank_pattern", "alpha_pattern"};

}  // namespace

Json product_keys(const AdapterKeys& keys) {
  Json out;
  for (int number : adapter_numbers(keys)) {
    if (number == kNoAdapterNumber) continue;
    const AdapterKeys& one = adapter_of(keys, number);
    const Json all = adapter_json(one);
    Json part;
    for (const char* key : kProductKeys) part.set(key, all.at(key));
    out.set(one.name, std::move(part));
  }
  return out;
}

void check_product_keys(const AdapterKeys& keys, const Json& saved, const std::string& path) {
  const Json now = product_keys(keys);
  for (const auto& [name, theirs] : saved.object()) {
    const Json* ours = now.find(name);
    for (const char* key : kProductKeys) {
      if (!ours || theirs.at(key).dump() == ours->at(key).dump()) continue;
      raise(DS_ERROR_CONFIG,
            "{}: adapter '{}' was saved in checkpoint '{}' with {}, but has {} now, in the "
            "configuration or in the adapter_config.json of its folder",
            KeyName(kSection + key), name, path, theirs.at(key).dump(), ours->at(key).dump());
    }
  }
}

}  // namespace ds
