#include "core/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/config/curriculum.h"
#include "core/config/data_efficiency.h"
#include "core/config/document.h"
#include "core/config/param_groups.h"
#include "core/config/rate_rules.h"
#include "core/config/schema.h"
#include "core/config/values.h"

namespace ds {
namespace {

// Megatron writes the bound of the gradient norm among the optimizer's parameters.
void complete_clipping(Config& c, const ConfigDocument& reader) {
  const Given* norm = reader.find(ConfigDocument::kMaxGradNorm);
  if (!norm) return;
  double bound = 0;
  read_value(ConfigDocument::kMaxGradNorm, norm->value, not_negative, bound);
  const bool both = c.origins.contains("gradient_clipping");
  if (both && bound != c.gradient_clipping) {
    raise(DS_ERROR_CONFIG, "{}: {} contradicts gradient_clipping {}, which is the same bound",
          KeyName(ConfigDocument::kMaxGradNorm), bound, c.gradient_clipping);
  }
  if (both) return;
  c.gradient_clipping = bound;
  c.origins["gradient_clipping"] = "derived";
}

// What "auto" means for keys that depend on others.
void complete_auto(Config& c, const ConfigDocument& reader) {
  auto fill = [&](const std::string& name, double value) {
    const std::string path = "scheduler.params." + name;
    if (!reader.waits(path)) return;
    auto number = c.scheduler.numbers.find(name);
    if (number == c.scheduler.numbers.end()) {
      raise(DS_ERROR_CONFIG, "{}: no parameter of scheduler.type \"{}\"", KeyName(path),
            c.scheduler.type);
    }
    number->second = {value};
    c.origins[path] = "auto";
  };
  const bool given = c.origins.contains("optimizer.params.lr");
  fill("warmup_max_lr", given ? c.optimizer.lr : 5e-5);
  fill("warmup_num_steps", 1);
  fill("total_num_steps", static_cast<double>(c.run.steps));
  for (const char* name : {"reduce_bucket_size", "stage3_prefetch_bucket_size",
                           "stage3_param_persistence_threshold"}) {
    const std::string path = std::string("zero_optimization.") + name;
    if (reader.waits(path)) c.waiting.push_back(path);
  }
}

// What is kept of masters and states in fewer bytes than f32 has.
void complete_state_types(Config& c) {
  OptimizerConfig& o = c.optimizer;
  constexpr const char* kMasters = "bf16.bf16_master_weights_and_grads";
  const bool bf16_masters = o.masters == DS_DTYPE_BF16;
  if (bf16_masters && c.compute != DS_DTYPE_BF16)
    raise(DS_ERROR_CONFIG, "{}: true needs bf16.enabled true, got false", KeyName(kMasters));
  const char* kStates = "bf16.bf16_optimizer_states";
  if (!bf16_masters && c.origins.contains(kStates) && o.states == DS_DTYPE_BF16 &&
      !c.origins.contains("optimizer.states")) {
    raise(DS_ERROR_CONFIG,
          "{}: true needs {} true, got false; optimizer.states \"bf16\" is beside f32 masters",
          KeyName(kStates), kMasters);
  }
  if (!o.fp32_states && bf16_masters && o.states == DS_DTYPE_F32) o.states = DS_DTYPE_BF16;
  if (o.states == DS_DTYPE_U8 && o.type != "Adam" && o.type != "AdamW") {
    raise(DS_ERROR_CONFIG, "{}: \"u8\" is for Adam and AdamW, optimizer.type is \"{}\"",
          KeyName("optimizer.states"), o.type);
  }
  if (o.states == DS_DTYPE_U8 && !o.stochastic) {
    c.warnings.emplace_back(
        "optimizer.rounding: to nearest, second moments of 8 bits stand still; \"stochastic\" "
        "keeps small "
        "changes "
        "on average");
  }
  const bool lean = bf16_masters || o.states != DS_DTYPE_F32;
  if (lean && (o.type == "Lamb" || o.type == "Muon")) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" keeps masters and states in f32, {} is bf16",
          KeyName("optimizer.type"), o.type, bf16_masters ? kMasters : "optimizer.states");
  }
  if (o.stochastic && !lean) {
    raise(DS_ERROR_CONFIG,
          "{}: \"stochastic\" needs masters or states in fewer bits than f32, optimizer.states is "
          "\"f32\"",
          KeyName("optimizer.rounding"));
  }
}

void complete_optimizer(Config& c, const ConfigDocument& reader) {
  complete_rates(c);
  if (c.optimizer.type == "AdamW" && !c.optimizer.adam_w_mode) {
    c.optimizer.adam_w_mode = true;
    c.origins["optimizer.params.adam_w_mode"] = "derived";
    c.warnings.emplace_back(
        "optimizer.params.adam_w_mode: AdamW decays apart from the gradient; it is taken as true");
  }
  // torch's AdamW, which torch_adam selects in DeepSpeed, decays by 0.01 unless told otherwise.
  const Given* torch = reader.find("optimizer.params.torch_adam");
  const bool torch_adamw = torch && truth_of(torch->value) == true &&
                           (c.optimizer.type == "Adam" || c.optimizer.type == "AdamW") &&
                           c.optimizer.adam_w_mode;
  if (torch_adamw && !c.origins.contains("optimizer.params.weight_decay")) {
    c.optimizer.weight_decay = 0.01;
    c.origins["optimizer.params.weight_decay"] = "derived";
  }
  if (c.optimizer.compressed() && c.optimizer.bias_correction) {
    c.optimizer.bias_correction = false;
    c.origins["optimizer.params.bias_correction"] = "derived";
    c.warnings.push_back(fmt::format(
        "optimizer.params.bias_correction: {} never corrects the bias; it is taken as false",
        c.optimizer.type));
  }
  if (c.optimizer.nesterov && c.optimizer.momentum == 0) {
    raise(DS_ERROR_CONFIG, "{}: true needs optimizer.params.momentum above 0, got {}",
          KeyName("optimizer.params.nesterov"), c.optimizer.momentum);
  }
  if (const std::string wrong = refusal_of(c.optimizer, "momentum", c.optimizer.momentum);
      !wrong.empty())
    raise(DS_ERROR_CONFIG, "{}: {}", KeyName("optimizer.params.momentum"), wrong);
  if (c.optimizer.nesterov && c.optimizer.dampening != 0) {
    raise(DS_ERROR_CONFIG, "{}: true needs dampening 0, got {}",
          KeyName("optimizer.params.nesterov"), c.optimizer.dampening);
  }
  if (c.optimizer.min_coeff > c.optimizer.max_coeff) {
    raise(DS_ERROR_CONFIG, "{} {} is above optimizer.params.max_coeff {}",
          KeyName("optimizer.params.min_coeff"), c.optimizer.min_coeff, c.optimizer.max_coeff);
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
      raise(DS_ERROR_CONFIG, "{}: needs model.folder with a masked language model, got none",
            KeyName(name));
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

void check_data(const Config& c) {
  for (const char* name : {"data.loss_on", "data.packing", "data.chat_template"}) {
    if (c.data.format == "jsonl" || !c.origins.contains(name)) continue;
    // Files of every format hold documents that can be told apart; only lines are put into rows.
    if (name == std::string_view("data.packing") && c.data.packing != "joined") continue;
    raise(DS_ERROR_CONFIG, "{}: {}needs data.format \"jsonl\", got \"{}\"", KeyName(name),
          name == std::string_view("data.packing") ? "true " : "", c.data.format);
  }
  for (const char* name : {"data.max_bytes", "data.strip_licences"}) {
    if (c.data.format == "text" || !c.origins.contains(name)) continue;
    raise(DS_ERROR_CONFIG, "{}: needs data.format \"text\", got \"{}\"", KeyName(name),
          c.data.format);
  }
  if (c.data.format != "text" && c.data.tokenizer == kLearnTokenizer) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" needs data.format \"text\", got \"{}\"",
          KeyName("data.tokenizer"), kLearnTokenizer, c.data.format);
  }
}

// Rows of several documents need a graph that tells them apart. So does a curriculum of several
// samples a micro-batch, whose shortened rows no longer begin at multiples of run.sequence.
void complete_documents(Config& c) {
  ModelConfig& m = c.model;
  bool has_model = !m.family.empty() || !m.folder.empty();
  const char* needs = c.data.packing == "isolated" ? "data.packing \"isolated\""
                      : c.dynamic_batching.enabled ? "dynamic batching"
                                                   : nullptr;
  if (needs && m.mask) {
    raise(DS_ERROR_CONFIG, "{}: true excludes {}, whose padding is a document of its own",
          KeyName("model.mask"), needs);
  }
  if (needs && c.origins.contains("model.documents") && !m.documents) {
    raise(DS_ERROR_CONFIG, "{}: false, but {} needs a graph that tells documents apart",
          KeyName("model.documents"), needs);
  }
  if (m.documents && m.mask) {
    raise(DS_ERROR_CONFIG,
          "{}: true excludes model.mask true: hidden rows are documents of their own",
          KeyName("model.documents"));
  }
  if (m.documents && !has_model) {
    raise(DS_ERROR_CONFIG, "{}: true needs model.family or model.folder, got none",
          KeyName("model.documents"));
  }
  bool curriculum = c.curriculum.enabled && c.micro_batch > 1 && !m.mask;
  if (!has_model || c.origins.contains("model.documents") || !(needs || curriculum)) return;
  m.documents = true;
  c.origins["model.documents"] = "derived";
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
    raise(DS_ERROR_CONFIG, "{}: \"{}\" needs model.folder, got none", KeyName("model.init"),
          m.init);
  }
  if (m.mask)
    raise(DS_ERROR_CONFIG, "{}: true needs model.folder, got none", KeyName("model.mask"));
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
      raise(DS_ERROR_CONFIG, "{}: missing; family \"{}\" needs it",
            KeyName(std::string("model.") + name), m.family);
  }
  if (m.hidden % m.heads != 0) {
    raise(DS_ERROR_CONFIG, "{} {} is no multiple of model.heads {}", KeyName("model.hidden"),
          m.hidden, m.heads);
  }
  if (c.sequence > m.positions) {
    raise(DS_ERROR_CONFIG, "{} {} is above model.positions {}", KeyName("run.sequence"), c.sequence,
          m.positions);
  }
}

void check_tiers(const Config& c) {
  const bool nvme = c.zero.optimizer_tier == Tier::nvme || c.zero.param_tier == Tier::nvme;
  if (nvme && c.zero.nvme_path.empty()) {
    const char* section =
        c.zero.optimizer_tier == Tier::nvme ? "offload_optimizer" : "offload_param";
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
          KeyName("zero_optimization.mics_shard_size"), c.zero.mics_shard_size,
          c.zero.hpz_partition_size);
  }
  if (c.zero.hpz_partition_size > 1 && c.zero.param_tier == Tier::nvme) {
    raise(DS_ERROR_CONFIG,
          "{} {} needs parameters in memory, "
          "zero_optimization.offload_param.device is \"nvme\"",
          KeyName("zero_optimization.zero_hpz_partition_size"), c.zero.hpz_partition_size);
  }
  if (c.aio.block_size % 512 != 0) {
    raise(DS_ERROR_CONFIG, "{}: {} is no multiple of 512", KeyName("aio.block_size"),
          c.aio.block_size);
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
  for (const char* name : {"zero_quantized_gradients_bits", "zeropp_loco_param.err_beta",
                           "zeropp_loco_param.reset_T"}) {
    const std::string path = std::string("zero_optimization.") + name;
    if (zero.quantized_gradients || !c.origins.contains(path)) continue;
    raise(DS_ERROR_CONFIG, "{}: needs zero_optimization.zero_quantized_gradients true, got false",
          KeyName(path));
  }
}

void check_leaves(const Config& c, int world) {
  const auto leaves = static_cast<uint64_t>(c.accumulation * world);
  if (!c.reproducible || std::has_single_bit(leaves)) return;
  raise(DS_ERROR_CONFIG,
        "{}: gradient_accumulation_steps {} * world size {} = {} leaves is no power of two",
        KeyName("reproducible"), c.accumulation, world, leaves);
}

void check_activations(const ConfigDocument& reader, Config& c) {
  const std::string path = "activation_checkpointing.cpu_checkpointing";
  const Given* given = reader.find(path);
  if (!given || truth_of(given->value) != true || c.device == "cpu") return;
  std::erase(c.without_effect, path);
  raise(
      DS_ERROR_CONFIG,
      "{}: true is unsupported with device {}, whose activations stay in its memory; use recompute",
      KeyName(path), c.device);
}

void complete_reduction(Config& c) {
  if (c.reproducible) {
    if (c.origins.contains("reduction") && c.reduction != "tree") {
      raise(DS_ERROR_CONFIG, "{}: \"{}\" contradicts reproducible: true, which needs \"tree\"",
            KeyName("reduction"), c.reduction);
    }
    if (!c.origins.contains("reduction")) c.origins["reduction"] = "derived";
    c.reduction = "tree";
  } else if (c.reduction == "tree") {
    raise(DS_ERROR_CONFIG, "{}: \"tree\" needs reproducible: true, got false",
          KeyName("reduction"));
  } else if (c.reduction == "boundary" && c.zero.stage >= 2) {
    raise(DS_ERROR_CONFIG,
          "{}: \"boundary\" needs zero_optimization.stage 0 or 1, got {}, whose gradients are "
          "partitioned: "
          "each micro-step must be reduced",
          KeyName("reduction"), c.zero.stage);
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

namespace {

// Whether a section around this one has an `enabled` that says false.
bool switched_off_around(const ConfigDocument& reader, const std::string& path) {
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const std::string key = path.substr(0, dot) + ".enabled";
    const Given* enabled = reader.find(key);
    if (enabled && truth_at(key, enabled->value) == false) return true;
  }
  return false;
}

// A section that is off unless it says so, and has other keys, but nothing of that.
void warn_of_forgotten_switches(Config& config) {
  for (const Key& key : config_keys()) {
    if (!key.path.ends_with(".enabled") || config.origins.contains(key.path)) continue;
    const Json value = key.get(config);
    if (!value.is_null() && !(value.is_bool() && !value.boolean())) continue;
    const std::string section = key.path.substr(0, key.path.rfind('.') + 1);
    const auto given =
        std::find_if(config.origins.begin(), config.origins.end(), [&](const auto& origin) {
          const std::string& path = origin.first;
          return origin.second == "config" && path.starts_with(section) &&
                 path.find('.', section.size()) == path.npos;
        });
    if (given == config.origins.end()) continue;
    config.warnings.push_back(
        fmt::format("{}: has no effect without {} true", given->first, key.path));
  }
}

}  // namespace

Config parse_config(const Json& document, int world, ConfigRefusals& refusals) {
  require(world > 0, "world: {} ranks, at least 1 needed", world);
  if (!document.is_object())
    raise(DS_ERROR_CONFIG, "{}: expected an object, got {}", KeyName("config"), document.kind());
  Config config;
  ConfigDocument reader(refusals, config);
  reader.read(document, "");
  auto checked = [&](auto part) { collect(refusals, Causes::others, part); };
  for (const ForeignKey& key : foreign_keys()) {
    const Given* given = reader.find(key.path);
    if (!given) continue;
    const bool may_be_off =
        key.rule == ForeignKey::Rule::nested || key.rule == ForeignKey::Rule::only;
    if (may_be_off && switched_off_around(reader, key.path)) continue;
    collect(refusals, Causes::itself, [&] {
      const ForeignEffect effect = check_foreign(key, given->value);
      if (effect != ForeignEffect::off) config.without_effect.push_back(key.path);
      if (effect == ForeignEffect::warning) config.warnings.push_back(key.path + ": " + key.reason);
    });
  }
  for (const Key& key : config_keys()) {
    const Given* given = reader.find(key.path);
    if (!given) continue;
    config.origins[key.path] = kRefused;
    checked([&] {
      key.set(config, given->value);
      config.origins[key.path] = given->origin;
    });
  }
  if (reader.waits("train_batch_size") &&
      !config.origins.contains("train_micro_batch_size_per_gpu")) {
    config.micro_batch = kAutoMicroBatch;
    config.origins["train_micro_batch_size_per_gpu"] = "auto";
  }
  // DeepSpeed's autotuner begins with files that say nothing of batches, and others pass them
  // around.
  const bool says_nothing = document.object().empty();
  const char* const batches[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                 "gradient_accumulation_steps"};
  const bool of_batches =
      std::any_of(std::begin(batches), std::end(batches), [&](const char* name) {
        return config.origins.contains(name) || refusals.doubtful.contains(name);
      });
  if (!says_nothing && !of_batches) {
    config.micro_batch = 1;
    config.origins["train_micro_batch_size_per_gpu"] = "derived";
    config.warnings.emplace_back(
        "train_micro_batch_size_per_gpu: the file says nothing of batches; it is taken as 1");
  }
  bool has_batch = false;
  checked([&] {
    complete_batch(config, world);
    has_batch = true;
  });
  checked([&] { complete_clipping(config, reader); });
  checked([&] { complete_auto(config, reader); });
  checked([&] { complete_optimizer(config, reader); });
  checked([&] { complete_state_types(config); });
  checked([&] { complete_schedule(config); });
  checked([&] { check_groups(config); });
  checked([&] { complete_model(config); });
  checked([&] { check_masking(config); });
  checked([&] { check_data(config); });
  checked([&] { check_curriculum(config); });
  checked([&] { complete_data_efficiency(config); });
  checked([&] { complete_documents(config); });
  checked([&] { check_bars(config); });
  checked([&] { check_sizes(config); });
  checked([&] { check_tiers(config); });
  checked([&] { check_activations(reader, config); });
  checked([&] { check_quantization(config); });
  checked([&] { check_compressed(config); });
  checked([&] { check_gradient_compression(config); });
  checked([&] { complete_precision(config); });
  if (has_batch) checked([&] { check_leaves(config, world); });
  checked([&] { complete_reduction(config); });
  warn_of_codes(config);
  warn_of_forgotten_switches(config);
  if (config.flops_profiler.enabled && config.origins.contains("run.steps") &&
      config.flops_profiler.profile_step > config.run.steps) {
    config.warnings.push_back(fmt::format(
        "flops_profiler.profile_step: {} is beyond run.steps {}: there will be no report",
        config.flops_profiler.profile_step, config.run.steps));
  }
  for (const char* name : batches) config.origins.emplace(name, "derived");
  if (config.model.hidden > 0) fill_from_model(config, config.model.hidden);
  for (const Key& key : config_keys()) config.origins.emplace(key.path, "default");
  return config;
}

Config parse_config(const Json& document, int world) {
  ConfigRefusals refusals;
  Config config = parse_config(document, world, refusals);
  const std::vector<Error>& errors = refusals.errors;
  if (errors.empty()) return config;
  if (errors.size() == 1) throw errors[0];
  throw Error(DS_ERROR_CONFIG,
              one_line(fmt::format("{} (and {} more: `libds config` lists all)", errors[0].what(),
                                   errors.size() - 1)),
              errors[0].details());
}

void fill_from_model(Config& config, int64_t hidden) {
  for (const std::string& path : config.waiting) {
    ZeroConfig& zero = config.zero;
    if (path.ends_with(".reduce_bucket_size")) {
      zero.reduce_bucket_size = hidden * hidden;
    } else if (path.ends_with("_prefetch_bucket_size")) {
      zero.prefetch_bucket_size = static_cast<int64_t>(0.9 * static_cast<double>(hidden * hidden));
    } else {
      zero.param_persistence_threshold = 10 * hidden;
    }
    config.origins[path] = "auto";
  }
  config.waiting.clear();
}

std::string Config::shared_text() const {
  constexpr std::string_view kOwn[] = {"run.dir", "run.threads", "run.pin_threads", "communicator",
                                       "device",  "data.paths",  "data.tokenizer",  "model.folder"};
  std::string out;
  for (const Key& key : config_keys()) {
    bool own = std::find(std::begin(kOwn), std::end(kOwn), key.path) != std::end(kOwn);
    if (own || key.path.ends_with("nvme_path")) continue;
    // Programs and plan hashes of "micro_batch" are those without this key.
    if (key.path == "loss_average" && !by_tokens()) continue;
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
