#include "core/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "core/base/error.h"
#include "core/config/nearest_path.h"
#include "core/config/schema.h"

namespace ds {
namespace {

// The document's values by canonical path, in reading order.
class Reader {
 public:
  Reader() {
    for (const Key& key : config_keys()) {
      add(key.path, key.path);
      if (!key.other.empty()) add(sibling(key.path, key.other), key.path);
    }
    for (const ForeignKey& key : foreign_keys()) {
      add(key.path, key.path);
      if (key.rule == ForeignKey::Rule::section) whole_.insert(key.path);
    }
    // Deprecated names of DeepSpeed.
    add("bfloat16.enabled", "bf16.enabled");
    for (const char* name : {"immediate_grad_update", "check_grad_overflow"}) {
      add(std::string("bfloat16.") + name, std::string("bf16.") + name);
    }
    add("zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device");
    add("zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device");
    sections_.insert("memory_budget");
  }

  void read(const Json& section, const std::string& prefix) {
    for (const auto& [name, value] : section.object()) member(prefix + name, value);
  }

  const Json* find(const std::string& path) const {
    for (const auto& [name, value] : values_) {
      if (name == path) return &value;
    }
    return nullptr;
  }

 private:
  static std::string sibling(const std::string& path, const std::string& name) {
    return path.substr(0, path.rfind('.') + 1) + name;
  }

  void add(const std::string& name, const std::string& canonical) {
    names_[name] = canonical;
    known_.push_back(name);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (sections_.insert(name.substr(0, dot)).second) known_.push_back(name.substr(0, dot));
    }
  }

  void member(const std::string& path, const Json& value) {
    if (value.is_null()) return;                           // null: not given
    if (path == "zero_optimization" && value.is_bool()) {  // before sections: true means stage 1
      give("zero_optimization.stage", path, value.boolean() ? 1 : 0);
      return;
    }
    if (!whole_.contains(path) && sections_.contains(path)) {
      if (!value.is_object())
        raise(DS_ERROR_CONFIG, "{}: expected a section, got {}", KeyName(path), value.dump());
      read(value, path + ".");
      return;
    }
    const auto found = names_.find(path);
    if (found == names_.end()) {
      const std::string near = nearest_path(path, known_);
      raise(DS_ERROR_CONFIG, "{}: unknown key{}", KeyName(path),
            near.empty() ? "" : "; did you mean " + near + "?");
    }
    if (auto_means_default(path) && value.is_string() && value.string() == "auto") return;
    const bool old_switch = path.starts_with("zero_optimization.cpu_offload") && found->second != path;
    if (!old_switch) return give(found->second, path, value);
    bool on = false;
    read_value(path, value, {}, on);
    if (on) give(found->second, path, "cpu");
  }

  // "auto" stands for the default inside sections, except where DeepSpeed leaves it to the caller.
  static bool auto_means_default(const std::string& path) {
    return path.find('.') != std::string::npos && !path.starts_with("optimizer.") &&
           !path.starts_with("scheduler.");
  }

  void give(const std::string& canonical, const std::string& name, const Json& value) {
    const auto [before, fresh] = given_as_.emplace(canonical, name);
    if (!fresh)
      raise(DS_ERROR_CONFIG, "{} and {} are two names of one key; give one", before->second, KeyName(name));
    values_.emplace_back(canonical, value);
  }

  std::map<std::string, std::string> names_;  // accepted name -> canonical path
  std::set<std::string> sections_;            // every path that holds others
  std::set<std::string> whole_;               // sections that are checked as one value
  std::vector<std::string> known_;
  std::map<std::string, std::string> given_as_;
  std::vector<std::pair<std::string, Json>> values_;
};

void refuse_max_grad_norm(const Json& document) {
  const Json* optimizer = document.find("optimizer");
  const Json* params = optimizer && optimizer->is_object() ? optimizer->find("params") : nullptr;
  if (params && params->is_object() && params->find("max_grad_norm")) {
    raise(DS_ERROR_CONFIG, "{}: no optimizer parameter; use gradient_clipping",
          KeyName("optimizer.params.max_grad_norm"));
  }
}

void complete_optimizer(Config& c, const Reader& reader) {
  if (c.optimizer.type == "AdamW") c.optimizer.adam_w_mode = true;
  // torch's AdamW, which torch_adam selects in DeepSpeed, decays by 0.01 unless told otherwise.
  const Json* torch = reader.find("optimizer.params.torch_adam");
  const bool torch_adamw =
      torch && torch->is_bool() && torch->boolean() && c.optimizer.adam() && c.optimizer.adam_w_mode;
  if (torch_adamw && !c.origins.contains("optimizer.params.weight_decay")) {
    c.optimizer.weight_decay = 0.01;
    c.origins["optimizer.params.weight_decay"] = "derived";
  }
  if (c.optimizer.nesterov && c.optimizer.momentum == 0) {
    raise(DS_ERROR_CONFIG, "{}: true needs momentum above 0, got {}", KeyName("optimizer.params.nesterov"),
          c.optimizer.momentum);
  }
  for (size_t i = 0; i < c.optimizer.groups.size(); ++i) {
    const std::map<std::string, double>& values = c.optimizer.groups[i].values;
    const std::string at = fmt::format("optimizer.param_groups[{}]", i);
    if (c.optimizer.nesterov && values.contains("momentum") && values.at("momentum") == 0) {
      raise(DS_ERROR_CONFIG, "{}: must be above 0 with nesterov, got 0", KeyName(at + ".momentum"));
    }
    if (c.scheduler.warmup_max_given && values.contains("lr")) {
      raise(DS_ERROR_CONFIG,
            "{}: {} has no effect beside scheduler.params.warmup_max_lr {}, which is "
            "for every group; without that key each group warms up to its own lr",
            KeyName(at + ".lr"), values.at("lr"), c.scheduler.warmup_max_lr);
    }
  }
  if (c.scheduler.type == "WarmupLR" && !c.scheduler.warmup_max_given) {
    c.scheduler.warmup_max_lr = c.optimizer.lr;
    c.origins["scheduler.params.warmup_max_lr"] = "derived";
  }
  if (c.scheduler.type == "WarmupCosineLR" && c.scheduler.total_num_steps == 0) {
    raise(DS_ERROR_CONFIG, "{}: missing; WarmupCosineLR needs it",
          KeyName("scheduler.params.total_num_steps"));
  }
}

// A folder's config.json has the sizes; of its dropout a run can only say that there is none.
void complete_model_folder(Config& c) {
  if (!c.model.family.empty()) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" contradicts model.family \"{}\"; give one of them",
          KeyName("model.folder"), c.model.folder, c.model.family);
  }
  for (const char* name : {"layers", "hidden", "heads", "vocab", "positions"}) {
    if (!c.origins.contains(std::string("model.") + name)) continue;
    raise(DS_ERROR_CONFIG, "{}: given beside model.folder \"{}\", whose config.json has it",
          KeyName(std::string("model.") + name), c.model.folder);
  }
  if (c.model.dropout != 0) {
    raise(DS_ERROR_CONFIG,
          "{}: beside model.folder it may be 0 (none at all) or absent (as config.json says), got "
          "{}",
          KeyName("model.dropout"), c.model.dropout);
  }
  if (!c.origins.contains("data.tokenizer")) {
    c.data.tokenizer = c.model.folder;
    c.origins["data.tokenizer"] = "derived";
  }
}

void check_masking(const Config& c) {
  for (const char* name : kMaskingKeys) {
    if (c.model.folder.empty() && c.origins.contains(name)) {
      raise(DS_ERROR_CONFIG, "{}: needs model.folder with a masked language model, got none", KeyName(name));
    }
  }
  if (c.data.mlm_probability == 0) {
    raise(DS_ERROR_CONFIG, "{}: must be above 0, or no token is a target, got 0",
          KeyName("data.mlm_probability"));
  }
  const double changed = c.data.mask_replace_prob + c.data.random_replace_prob;
  if (changed > 1 + 1e-9) {
    raise(DS_ERROR_CONFIG, "{} {} and data.random_replace_prob {} must add up to at most 1",
          KeyName("data.mask_replace_prob"), c.data.mask_replace_prob, c.data.random_replace_prob);
  }
}

void check_bars(const Config& c) {
  for (const std::string& bar : c.run.bars) {
    if (std::find(std::begin(kBars), std::end(kBars), bar) != std::end(kBars)) continue;
    raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown; supported: {}", KeyName("run.bars"), bar,
          fmt::join(kBars, ", "));
  }
}

void complete_model(Config& c) {
  ModelConfig& m = c.model;
  if (!m.folder.empty()) return complete_model_folder(c);
  if (c.origins.contains("model.init")) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" needs model.folder, got none", KeyName("model.init"), m.init);
  }
  if (m.mask) raise(DS_ERROR_CONFIG, "{}: true needs model.folder, got none", KeyName("model.mask"));
  if (m.family.empty()) return;
  if (m.vocab == 0) {
    m.vocab = 256;
    c.origins["model.vocab"] = "derived";
  }
  if (m.positions == 0) {
    m.positions = c.sequence;
    c.origins["model.positions"] = "derived";
  }
  for (const auto& [name, value] :
       {std::pair{"layers", m.layers}, {"hidden", m.hidden}, {"heads", m.heads}}) {
    if (value == 0)
      raise(DS_ERROR_CONFIG, "{}: missing; family \"{}\" needs it", KeyName(std::string("model.") + name),
            m.family);
  }
  if (m.hidden % m.heads != 0) {
    raise(DS_ERROR_CONFIG, "{} {} is no multiple of model.heads {}", KeyName("model.hidden"), m.hidden,
          m.heads);
  }
  if (c.sequence > m.positions) {
    raise(DS_ERROR_CONFIG, "{} {} is above model.positions {}", KeyName("run.sequence"), c.sequence,
          m.positions);
  }
}

void check_tiers(const Config& c) {
  const bool nvme = c.zero.optimizer_tier == Tier::nvme || c.zero.param_tier == Tier::nvme;
  if (nvme && c.zero.nvme_path.empty()) {
    const char* section = c.zero.optimizer_tier == Tier::nvme ? "offload_optimizer" : "offload_param";
    raise(DS_ERROR_CONFIG, "{}: missing; device is \"nvme\"",
          KeyName(fmt::format("zero_optimization.{}.nvme_path", section)));
  }
  if (c.zero.mics_shard_size == 0) {
    raise(DS_ERROR_CONFIG, "{}: must be -1 or at least 1, got 0",
          KeyName("zero_optimization.mics_shard_size"));
  }
  if (c.zero.mics_shard_size > 0 && c.zero.hpz_partition_size > 1) {
    raise(DS_ERROR_CONFIG,
          "{} {} and zero_optimization.zero_hpz_partition_size {} exclude each "
          "other",
          KeyName("zero_optimization.mics_shard_size"), c.zero.mics_shard_size, c.zero.hpz_partition_size);
  }
  if (c.zero.hpz_partition_size > 1 && c.zero.param_tier == Tier::nvme) {
    raise(DS_ERROR_CONFIG,
          "{} {} needs parameters in memory, "
          "zero_optimization.offload_param.device is \"nvme\"",
          KeyName("zero_optimization.zero_hpz_partition_size"), c.zero.hpz_partition_size);
  }
  if (c.aio.block_size % 512 != 0) {
    raise(DS_ERROR_CONFIG, "{}: {} is no multiple of 512", KeyName("aio.block_size"), c.aio.block_size);
  }
}

void check_quantization(const Config& c) {
  const ZeroConfig& zero = c.zero;
  if (zero.quantized_weights && zero.stage < 3) {
    raise(DS_ERROR_CONFIG, "{} true needs zero_optimization.stage 3, got {}",
          KeyName("zero_optimization.zero_quantized_weights"), zero.stage);
  }
  if (zero.quantized_gradients && zero.stage < 2) {
    raise(DS_ERROR_CONFIG, "{} true needs zero_optimization.stage 2 or 3, got {}",
          KeyName("zero_optimization.zero_quantized_gradients"), zero.stage);
  }
  if (zero.gradient_bits != 4 && zero.gradient_bits != 8) {
    raise(DS_ERROR_CONFIG, "{}: must be 4 or 8, got {}",
          KeyName("zero_optimization.zero_quantized_gradients_bits"), zero.gradient_bits);
  }
  for (const char* name :
       {"zero_quantized_gradients_bits", "zeropp_loco_param.err_beta", "zeropp_loco_param.reset_T"}) {
    const std::string path = std::string("zero_optimization.") + name;
    if (zero.quantized_gradients || !c.origins.contains(path)) continue;
    raise(DS_ERROR_CONFIG, "{}: needs zero_optimization.zero_quantized_gradients true, got false",
          KeyName(path));
  }
}

// Every rank updates the whole momentum with its own gradient once gradients are not reduced any more.
void check_compressed(const Config& c) {
  if (!c.optimizer.compressed()) return;
  if (c.zero.stage > 1) {
    raise(DS_ERROR_CONFIG,
          "{}: {} needs zero_optimization.stage 0 or 1, got {}: every rank keeps the whole momentum and the "
          "whole of its own gradient, which stages 2 and 3 cut",
          KeyName("optimizer.type"), c.optimizer.type, c.zero.stage);
  }
}

// DeepSpeed's 1-bit optimizers never correct the bias, whatever the key says.
bool without_correction(const std::string& path, const Reader& reader) {
  const Json* type = path == "optimizer.params.bias_correction" ? reader.find("optimizer.type") : nullptr;
  if (!type || !type->is_string()) return false;
  std::string name = type->string();
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name == "onebitadam";
}

void complete_reduction(Config& c, int world) {
  if (c.reproducible) {
    const auto leaves = static_cast<uint64_t>(c.accumulation * world);
    if (!std::has_single_bit(leaves)) {
      raise(DS_ERROR_CONFIG,
            "{}: gradient_accumulation_steps {} * world size {} = {} leaves is no power of two",
            KeyName("reproducible"), c.accumulation, world, leaves);
    }
    if (c.origins.contains("reduction") && c.reduction != "tree") {
      raise(DS_ERROR_CONFIG, "{}: \"{}\" contradicts reproducible: true, which needs \"tree\"",
            KeyName("reduction"), c.reduction);
    }
    if (!c.origins.contains("reduction")) c.origins["reduction"] = "derived";
    c.reduction = "tree";
  } else if (c.reduction == "tree") {
    raise(DS_ERROR_CONFIG, "{}: \"tree\" needs reproducible: true, got false", KeyName("reduction"));
  }
}

// Puts value at the dotted path, making the sections on the way.
void put(Json& root, const std::string& path, const Json& value) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return root.set(path, value);
  const std::string section = path.substr(0, dot);
  if (!root.find(section)) root.set(section, Json::Object{});
  for (auto& [name, member] : root.object()) {
    if (name == section) put(member, path.substr(dot + 1), value);
  }
}

}  // namespace

Config parse_config(const Json& document, int world) {
  require(world > 0, "world: {} ranks, at least 1 needed", world);
  if (!document.is_object())
    raise(DS_ERROR_CONFIG, "{}: expected an object, got {}", KeyName("config"), document.kind());
  refuse_max_grad_norm(document);
  Config config;
  Reader reader;
  reader.read(document, "");
  for (const ForeignKey& key : foreign_keys()) {
    const Json* given = reader.find(key.path);
    if (given && !without_correction(key.path, reader)) check_foreign(key, *given);
  }
  for (const Key& key : config_keys()) {
    const Json* given = reader.find(key.path);
    if (!given) continue;
    config.origins[key.path] = "config";
    key.set(config, *given);
  }
  complete_batch(config, world);
  complete_optimizer(config, reader);
  complete_model(config);
  check_masking(config);
  check_bars(config);
  check_sizes(config);
  check_tiers(config);
  check_quantization(config);
  check_compressed(config);
  complete_reduction(config, world);
  for (const char* name :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    config.origins.emplace(name, "derived");
  }
  for (const Key& key : config_keys()) config.origins.emplace(key.path, "default");
  return config;
}

std::string Config::shared_text() const {
  constexpr std::string_view kOwn[] = {"run.dir", "run.threads", "run.pin_threads", "communicator",
                                       "device",  "data.paths",  "data.tokenizer",  "model.folder"};
  std::string out;
  for (const Key& key : config_keys()) {
    bool own = std::find(std::begin(kOwn), std::end(kOwn), key.path) != std::end(kOwn);
    if (own || key.path.ends_with("nvme_path")) continue;
    const Json value = key.get(*this);
    if (!value.is_null()) out += key.path + " " + value.dump() + "\n";
  }
  return out;
}

Json Config::effective() const {
  Json values = Json::Object{};
  Json from = Json::Object{};
  for (const Key& key : config_keys()) {
    const Json value = key.get(*this);
    if (value.is_null()) continue;
    put(values, key.path, value);
    const auto origin = origins.find(key.path);
    from.set(key.path, origin == origins.end() ? "default" : origin->second);
  }
  Json out = Json::Object{};
  out.set("schema", 1);
  out.set("config", values);
  out.set("origins", from);
  return out;
}

}  // namespace ds
