// Compares with batch sizes and decisions about configurations that were recorded from DeepSpeed in
// batch_config.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"
#include "monitor/keys.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::recorded_configs {
namespace {

Recording recorded() {
  return {semantics_path("batch_config.json"), {"triangle", "fragments", "text", "engine"}};
}

// Returns the message of the DS_ERROR_CONFIG that `parse` throws, or "" if it throws none.
std::string message_of(const std::function<void()>& parse) {
  try {
    parse();
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
}

std::string refusal(const Json& document, int world = 1) {
  return message_of([&] { parse_config(document, world); });
}

// Checks that the document has exactly one refusal.
void expect_one_refusal(const Json& document, int world = 1) {
  ConfigRefusals refusals;
  parse_config(document, world, refusals);
  EXPECT_EQ(refusals.errors.size(), 1u);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Returns the value at a path such as "optimizer.type" in a document, or null if it is missing.
const Json& given(const Json& document, std::string_view path) {
  static const Json none;
  const Json* at = &document;
  while (at && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    at = at->is_object() ? at->find(path.substr(0, dot)) : nullptr;
    path.remove_prefix(std::min(path.size(), dot + 1));
  }
  return at ? *at : none;
}

bool same(const Json& ours, const Json& theirs) {
  if (ours.is_number() && theirs.is_number()) return ours.number() == theirs.number();
  return ours.dump() == theirs.dump();
}

TEST(RecordedConfigs, BatchTriangleEqualsThatOfDeepSpeed) {
  const Recording all = recorded();
  for (const Record& item : all.list("triangle")) {
    const int world = static_cast<int>(item.at("world").integer());
    const Record result = item.inside("result");
    SCOPED_TRACE(item.dump());
    const Json& document = item.at("config");
    if (const Json* ranks = document.find("sequence_parallel_size");
        ranks && ranks->number() != 1) {
      // libds refuses the key and does not divide the batch by its ranks.
      expect_one_refusal(document, world);
      EXPECT_NE(refusal(document, world).find("sequence_parallel_size"), std::string::npos);
      Json rest = Json::Object{};
      for (const auto& [key, value] : document.object()) {
        if (key != "sequence_parallel_size") rest.set(key, value);
      }
      const Config c = parse_config(rest, world / static_cast<int>(ranks->integer()));
      EXPECT_EQ(c.train_batch, result.at("train_batch_size").number());
      EXPECT_EQ(c.micro_batch, result.at("train_micro_batch_size_per_gpu").number());
      EXPECT_EQ(c.accumulation, result.at("gradient_accumulation_steps").number());
      continue;
    }
    if (result.has("error")) {
      result.told({"message", "validation"});
      // DeepSpeed fails on "auto", which Hugging Face's integration replaces beforehand, and
      // refuses a document without any batch size.
      const bool automatic = document.dump().find("auto") != std::string::npos;
      EXPECT_EQ(refusal(document, world).empty(), automatic);
      if (!automatic) expect_one_refusal(document, world);
      EXPECT_EQ(refusal(document, world).find("unknown key"), std::string::npos);
      continue;
    }
    const Config c = parse_config(document, world);
    EXPECT_EQ(c.train_batch, result.at("train_batch_size").integer());
    EXPECT_EQ(c.micro_batch, result.at("train_micro_batch_size_per_gpu").integer());
    EXPECT_EQ(c.accumulation, result.at("gradient_accumulation_steps").integer());
  }
}

// A document on which libds and DeepSpeed decide differently, and the reason.
// docs/reference/deepspeed_compat.md lists these differences.
struct Decision {
  // A regular expression for the whole message, or the path of a key in the document.
  const char* what;
  const char* reason;
};
// Refused by libds and accepted by DeepSpeed, by message.
const Decision kRefusedHere[] = {
    {".*unsupported by this version.*", "libds has no such feature"},
    {"(pipeline|aio|tensorboard|flops_profiler)\\.\\S+: unknown key.*",
     "unknown keys are refused in every section"},
    {"\\S+: expected an? (integer|number|boolean|text|object).*", "numbers are numbers"},
    {"gradient_clipping: -\\S+ is below 0.*", "clipping has no direction"},
    {"zero_optimization\\.offload_optimizer\\.nvme_path: missing.*", "DeepSpeed fails later"},
    {"scheduler\\.type: \"\\w+\" is unknown.*", "DeepSpeed fails later, or takes a class of torch"},
    {"scheduler\\.params\\.\\w+: missing.*", "an error of Python, later"},
};

void expect_decided(const Json& document, const std::string& message) {
  expect_one_refusal(document);
  for (const Decision& one : kRefusedHere) {
    if (std::regex_match(message, std::regex(one.what))) return;
  }
  ADD_FAILURE() << "refused, but DeepSpeed accepts it: " << message;
}

// Accepted by libds and refused by DeepSpeed, by the path of a key.
const Decision kAcceptedHere[] = {
    {"elasticity", "removed features may be off"},
    {"compression_training", "removed features may be off"},
    {"eigenvalue", "removed features may be off"},
    {"curriculum_learning", "part of libds"},
    {"amp", "removed features may be off"},
    {"sparse_gradients", "part of libds"},
    {"nebula", "removed features may be off"},
    {"progressive_layer_drop", "removed features may be off"},
    {"graph_harvesting", "removed features may be off"},
    {"checkpoint.tag_validation", "tags are always the ranks' own"},
    {"checkpoint.parallel_write", "every rank writes its part"},
    {"hybrid_engine", "off, and without effect"},
    {"zero_optimization.allgather_bucket_size", "without effect, whatever its size"},
    {"zero_optimization.mics_shard_size", "part of libds"},
    {"bf16.bf16_master_weights_and_grads", "any stage"},
    {"gradient_predivide_factor", "without effect, whatever the stage"},
};

void expect_listed(const Json& document) {
  for (const Decision& one : kAcceptedHere) {
    if (!given(document, one.what).is_null()) return;
  }
  // DeepSpeed may refuse null where libds treats the key as missing.
  EXPECT_NE(document.dump().find(": null"), std::string::npos)
      << "accepted, but DeepSpeed refuses it";
}

// Returns the configuration that DeepSpeed's recording treats as its default:
// {"train_batch_size": 1} on one rank.
const Config& default_config() {
  static const Config config = parse_config(Json::parse(R"({"train_batch_size": 1})"), 1);
  return config;
}

Json torch_name(DType type) {
  switch (type) {
    case DS_DTYPE_BF16:
      return "torch.bfloat16";
    case DS_DTYPE_F16:
      return "torch.float16";
    case DS_DTYPE_F32:
      return "torch.float32";
    default:
      return {};
  }
}

struct Checked {
  const char* name;
  std::function<Json(const Config&)> ours;
  // Whether the defaults must agree: a value that the recording does not list equals DeepSpeed's
  // default, and must then equal the default of libds.
  bool both = true;
};

const std::vector<Checked>& checked_values() {
  using C = const Config&;
  static const std::vector<Checked> all{
      {"train_batch_size", [](C o) { return o.train_batch; }},
      {"train_micro_batch_size_per_gpu", [](C o) { return o.micro_batch; }},
      {"gradient_accumulation_steps", [](C o) { return o.accumulation; }},
      {"fp16", [](C o) { return o.compute == DS_DTYPE_F16; }},
      {"bf16", [](C o) { return o.compute == DS_DTYPE_BF16; }},
      {"zero_stage", [](C o) { return o.zero.stage; }},
      // DeepSpeed's default depends on the stage; in libds it is always on.
      {"overlap_comm", [](C o) { return o.zero.overlap_comm; }, false},
      {"reduce_bucket_size", [](C o) { return o.zero.reduce_bucket_size; }},
      {"prefetch_bucket_size", [](C o) { return o.zero.prefetch_bucket_size; }},
      {"param_persistence_threshold", [](C o) { return o.zero.param_persistence_threshold; }},
      {"gradient_clipping", [](C o) { return o.gradient_clipping; }},
      {"communication_data_type", [](C o) { return torch_name(o.communication); }},
      {"torch_autocast_dtype",
       [](C o) {
         return o.autocast.enabled
                    ? torch_name(o.autocast.dtype == "bf16" ? DS_DTYPE_BF16 : DS_DTYPE_F16)
                    : Json();
       }},
      {"check_grad_overflow", [](C o) { return o.check_grad_overflow; }},
      {"wall_clock_breakdown",
       [](C o) {
         return o.get<MonitorKeys>().wall_clock_breakdown ||
                o.get<MonitorKeys>().flops_profiler.enabled;
       }},
      {"scheduler", [](C o) { return o.scheduler.type.empty() ? Json() : Json(o.scheduler.type); }},
  };
  return all;
}

// A key that selects an implementation within DeepSpeed and has no effect in libds. The recorded
// value must equal the value in the document.
struct Passed {
  const char* name;
  std::vector<const char*> paths;
  std::function<Json(const Json&)> theirs = [](const Json& value) { return value; };
};

const std::vector<Passed>& passed_values() {
  static const auto low = [](const Json& value) { return Json(lower(value.string())); };
  static const std::vector<Passed> all{
      {"compute_grad_norm", {"zero_optimization.compute_grad_norm"}},
      {"round_robin_gradients", {"zero_optimization.round_robin_gradients"}},
      {"parameter_alignment", {"zero_optimization.parameter_alignment"}},
      {"allgather_bucket_size", {"zero_optimization.allgather_bucket_size"}},
      {"gather_16bit_weights_on_model_save",
       {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
        "zero_optimization.gather_16bit_weights_on_model_save",
        "zero_optimization.stage3_gather_fp16_weights_on_model_save"}},
      {"scheduler", {"scheduler.type"}},
      {"gradient_allreduce_op", {"gradient_allreduce_op"}, low},
      {"prescale_gradients", {"prescale_gradients"}},
      {"gradient_predivide_factor", {"gradient_predivide_factor"}},
      {"optimizer",
       {"optimizer.type"},
       [](const Json& type) {
         // DeepSpeed lowercases the names that it knows.
         static const std::set<std::string> known{"adam", "adamw",  "adagrad", "lamb", "lion",
                                                  "muon", "muadam", "muadamw", "musgd"};
         const std::string& name = type.string();
         return Json(known.contains(lower(name)) ? lower(name) : name);
       }},
      {"tag_validation",
       {"checkpoint.tag_validation"},
       [](const Json& mode) {
         const std::string name = lower(mode.string());
         return Json(Json::Array{name != "ignore", name == "fail"});
       }},
  };
  return all;
}

// Compares the recorded offload section with the document and with DeepSpeed's defaults.
void expect_recorded_offload(const char* name, const Config* c, const Json& document,
                             const Record& section) {
  const bool of_params = std::string_view(name) == "offload_param";
  const std::string& device = section.at("device").string();
  EXPECT_TRUE(device == "cpu" || device == "nvme") << device;
  const Tier tier = device == "cpu" ? Tier::host : Tier::nvme;
  if (c) {
    EXPECT_EQ(of_params ? c->zero.param_tier : c->zero.optimizer_tier, tier);
  }
  const Json defaults =
      Json::parse(of_params ? R"({"nvme_path": null, "buffer_count": 5, "buffer_size": 100000000,
                                              "max_in_cpu": 1000000000, "pin_memory": true})"
                            : R"({"nvme_path": null, "buffer_count": 4, "pin_memory": true,
                                              "pipeline_read": false, "pipeline_write": false,
                                              "fast_init": false, "ratio": 1.0, "super_offload": false,
                                              "cpuadam_cores_perc": 0.8})");
  const std::string path = std::string("zero_optimization.") + name + ".";
  for (const auto& [key, otherwise] : defaults.object()) {
    const Json& stated = given(document, path + key);
    EXPECT_TRUE(same(section.at(key), stated.is_null() ? otherwise : stated)) << path << key;
  }
  if (c && !of_params && tier == Tier::nvme) {
    EXPECT_EQ(c->zero.buffer_count, section.at("buffer_count").integer());
  }
}

// Checks that libds has the recorded values, which differ from DeepSpeed's default configuration,
// and that its other values are defaults. If libds refuses the configuration, compares the recorded
// values with the document only.
void expect_recorded_values(const Config* c, const Json& document, const Record& differs) {
  for (const Checked& one : checked_values()) {
    const Json* theirs = differs.find(one.name);
    if (!c || (!theirs && !one.both)) continue;
    const Json ours = one.ours(*c), otherwise = one.ours(default_config());
    EXPECT_TRUE(same(ours, theirs ? *theirs : otherwise))
        << one.name << ": " << ours.dump() << ", DeepSpeed "
        << (theirs ? *theirs : otherwise).dump();
  }
  for (const Passed& one : passed_values()) {
    const Json* theirs = differs.find(one.name);
    if (!theirs) continue;
    const auto stated = std::find_if(one.paths.begin(), one.paths.end(), [&](const char* path) {
      return !given(document, path).is_null();
    });
    ASSERT_NE(stated, one.paths.end()) << one.name;
    EXPECT_TRUE(same(one.theirs(given(document, *stated)), *theirs)) << one.name;
  }
  if (differs.has("fp16_section")) {
    const Record section = differs.inside("fp16_section");
    const LossScaleConfig ours = c ? c->loss_scale : LossScaleConfig();
    const auto equal = [&](const char* name, double value) {
      const double theirs = section.at(name).number();
      EXPECT_TRUE(!c || theirs == value) << name << ": " << value << ", DeepSpeed " << theirs;
    };
    equal("loss_scale", ours.loss_scale);
    equal("initial_scale_power", static_cast<double>(ours.initial_scale_power));
    equal("loss_scale_window", static_cast<double>(ours.window));
    equal("hysteresis", static_cast<double>(ours.hysteresis));
    equal("min_loss_scale", ours.min_loss_scale);
  }
  for (const char* name : {"offload_optimizer", "offload_param"}) {
    const bool off =
        c && (std::string_view(name) == "offload_param" ? c->zero.param_tier
                                                        : c->zero.optimizer_tier) == Tier::device;
    if (!differs.has(name)) {
      EXPECT_TRUE(!c || off) << name;
      continue;
    }
    expect_recorded_offload(name, c, document, differs.inside(name));
  }
}

// Checks that the message names the key that pydantic complains about, and that a key is unknown to
// libds exactly if it is unknown to DeepSpeed.
void expect_named(const Json& document, const Record& result, const std::string& message) {
  result.at("error");
  bool stranger = result.at("message").string().find("unexpected keyword") != std::string::npos;
  if (!message.empty()) expect_one_refusal(document);
  const bool unknown = message.find("unknown key") != std::string::npos ||
                       message.find("not a parameter of") != std::string::npos;
  if (!result.has("validation")) {
    EXPECT_TRUE(message.empty() || unknown == stranger) << message;
    return;
  }
  for (const Record& complaint : result.list("validation")) {
    complaint.told({"msg"});
    stranger = stranger || complaint.at("type").string() == "extra_forbidden";
    const Json::Array& place = complaint.at("loc").array();
    if (place.empty() || message.empty()) continue;
    EXPECT_NE(message.find(place.back().string()), std::string::npos) << message;
  }
  EXPECT_TRUE(message.empty() || unknown == stranger) << message;
}

// Compares values of the configuration with those that the document states.
void expect_said(const Config& ours, const Json& document) {
  const auto equal = [&](const char* path, double value) {
    const Json& stated = given(document, path);
    if (stated.is_number()) {
      EXPECT_EQ(value, stated.number()) << path;
    }
  };
  equal("train_micro_batch_size_per_gpu", static_cast<double>(ours.micro_batch));
  equal("train_batch_size", static_cast<double>(ours.train_batch));
  equal("optimizer.params.lr", ours.optimizer.lr);
  equal("steps_per_print", static_cast<double>(ours.get<MonitorKeys>().steps_per_print));
  if (const Json& type = given(document, "optimizer.type"); type.is_string()) {
    EXPECT_EQ(lower(ours.optimizer.type), lower(type.string()));
  }
}

// libds refuses every configuration that DeepSpeed refuses, unless kAcceptedHere lists it, and
// accepts all others, unless kRefusedHere lists the refusal.
TEST(RecordedConfigs, DecisionsEqualThoseOfDeepSpeedOrAreListed) {
  const Recording all = recorded();
  size_t agreed = 0, decided = 0;
  for (const Record& item : all.list("fragments")) {
    const Json& document = item.at("config");
    SCOPED_TRACE(document.dump());
    const std::string message = refusal(document);
    const bool accepted = item.at("accepted").boolean();
    ASSERT_EQ(item.has("result"), !accepted);
    ASSERT_EQ(item.has("differs_from_default"), accepted);
    (accepted == message.empty() ? agreed : decided) += 1;
    if (accepted) {
      const Record differs = item.inside("differs_from_default");
      if (message.empty()) {
        const Config ours = parse_config(document, 1);
        expect_recorded_values(&ours, document, differs);
        expect_said(ours, document);
      } else {
        expect_recorded_values(nullptr, document, differs);
        expect_decided(document, message);
      }
    } else {
      expect_named(document, item.inside("result"), message);
      if (message.empty()) expect_listed(document);
    }
  }
  EXPECT_GT(agreed, decided);
}

// libds reads a file as JSON with comments; DeepSpeed reads it as Hjson, which needs no quotes.
TEST(RecordedConfigs, FilesAreReadAsRecorded) {
  const Recording all = recorded();
  for (const Record& item : all.list("text")) {
    const std::string& text = item.at("text").string();
    SCOPED_TRACE(text);
    const Record result = item.inside("result");
    const std::string message = message_of([&] { parse_config(Json::parse(text), 1); });
    if (result.has("error")) {
      result.told({"message"});
      EXPECT_NE(message, "");
      continue;
    }
    const bool quoted = !std::regex_search(text, std::regex(R"([{,\n]\s*[A-Za-z_]\w*\s*:)"));
    ASSERT_EQ(message.empty(), quoted) << message;
    // The configuration must equal that of the same file with quotes.
    const std::string with_quotes =
        std::regex_replace(text, std::regex(R"(([A-Za-z_]\w*)(\s*:))"), "\"$1\"$2");
    const std::string json =
        quoted ? text : std::regex_replace(with_quotes, std::regex(R"((\d)[^\n{},]*\n)"), "$1,\n");
    const Config ours = parse_config(Json::parse(json), 1);
    EXPECT_EQ(ours.train_batch, result.at("train_batch_size").integer());
    EXPECT_EQ(ours.gradient_clipping, result.at("gradient_clipping").number());
    EXPECT_EQ(ours.zero.stage, result.at("zero_stage").integer());
  }
}

// For an optimizer class of DeepSpeed or torch: the possible types in libds, in lower case, and for
// Adam whether its decay is decoupled (-1 if either is possible).
struct Updates {
  std::set<std::string> types;
  int decoupled = -1;
};
const std::map<std::string, Updates> kClasses{
    {"FusedAdam", {{"adam", "adamw"}}},
    {"DeepSpeedCPUAdam", {{"adam", "adamw"}}},
    {"AdamW", {{"adam", "adamw"}, 1}},
    {"Adam", {{"adam"}, 0}},
    {"SGD", {{"sgd"}}},
    {"Adagrad", {{"adagrad"}}},
    {"DeepSpeedCPUAdagrad", {{"adagrad"}}},
    {"DeepSpeedCPULion", {{"lion"}}},
    {"FusedLion", {{"lion"}}},
    {"FusedLamb", {{"lamb"}}},
    {"MuonWithAuxAdam", {{"muon"}}},
};

bool decoupled(const OptimizerConfig& o) { return o.type == "AdamW" || o.adam_w_mode; }

// Checks the recorded class of the engine's optimizer: a ZeRO optimizer, a holder of masters for
// 16-bit models, or the basic optimizer itself.
void expect_holder(const std::string& holder, const std::string& basic, const Config& ours) {
  if (holder.starts_with("DeepSpeedZeroOptimizer")) {
    EXPECT_EQ(ours.zero.stage == 3, holder.ends_with("_Stage3"));
    EXPECT_GT(ours.zero.stage, 0);
  } else if (holder == "FP16_Optimizer" || holder == "FP16_UnfusedOptimizer" ||
             holder == "BF16_Optimizer") {
    EXPECT_NE(ours.compute, DS_DTYPE_F32);
    EXPECT_EQ(ours.zero.stage, 0);
  } else {
    EXPECT_EQ(holder, basic);
    EXPECT_EQ(ours.compute, DS_DTYPE_F32);
    EXPECT_EQ(ours.zero.stage, 0);
  }
}

void expect_engine(const Config& ours, const Record& result, bool scheduled) {
  const std::string& basic = result.at("basic_optimizer").string();
  const auto row = kClasses.find(basic);
  ASSERT_NE(row, kClasses.end()) << basic << " is not known here";
  EXPECT_TRUE(row->second.types.contains(lower(ours.optimizer.type))) << ours.optimizer.type;
  if (row->second.decoupled >= 0) {
    EXPECT_EQ(decoupled(ours.optimizer), row->second.decoupled == 1);
  }
  if (const Json& mode = result.at("adam_w_mode"); !mode.is_null()) {
    EXPECT_EQ(decoupled(ours.optimizer), mode.boolean());
  } else {
    EXPECT_FALSE(basic == "FusedAdam" || basic == "DeepSpeedCPUAdam" || basic == "MuonWithAuxAdam")
        << basic;
  }
  expect_holder(result.at("optimizer").string(), basic, ours);
  EXPECT_EQ(result.has("aux_optimizer"), lower(ours.optimizer.type) == "muon");
  if (const Json* vectors = result.find("aux_optimizer")) {
    const auto aux = kClasses.find(vectors->string());
    ASSERT_NE(aux, kClasses.end()) << vectors->string();
    EXPECT_TRUE(aux->second.types.contains("adam"));
  }
  if (const Json& scheduler = result.at("scheduler"); scheduled) {
    EXPECT_EQ(ours.scheduler.type, scheduler.is_null() ? "" : scheduler.string());
  }
  EXPECT_EQ(ours.gradient_clipping, result.at("gradient_clipping").number());
}

// Returns the reason why libds accepts an engine on a CPU that DeepSpeed refuses, or "" if there is
// none.
std::string taken_here(const Json& document) {
  const Json& type = given(document, "optimizer.type");
  const std::string name = type.is_string() ? lower(type.string()) : "";
  if (name == "lion" || name == "lamb") return "DeepSpeed has no kernel of it for a CPU";
  if (name.starts_with("onebit") || name.starts_with("zeroone")) return "removed in 0.19.7";
  const Json &stage = given(document, "zero_optimization.stage"),
             &untested = given(document, "zero_allow_untested_optimizer");
  if (stage.is_number() && stage.number() > 0 && name != "adam" && name != "adamw" &&
      untested.is_null())
    return "every optimizer is tested under every stage";
  if (!given(document, "optimizer.params.max_grad_norm").is_null())
    return "it is gradient_clipping";
  for (const Decision& one : kAcceptedHere) {
    if (!given(document, one.what).is_null()) return one.reason;
  }
  return "";
}

// Compares the optimizer, schedule and clipping of an engine with the record.
TEST(RecordedConfigs, EnginesEqualThoseOfDeepSpeed) {
  const Recording all = recorded();
  for (const Record& item : all.list("engine")) {
    const Json& document = item.at("config");
    SCOPED_TRACE(document.dump());
    const Record result = item.inside("result");
    const std::string message = refusal(document);
    const bool accepted = item.at("accepted").boolean();
    ASSERT_NE(result.has("error"), accepted);
    if (!accepted) {
      expect_named(document, result, message);
      if (message.empty()) {
        EXPECT_NE(taken_here(document), "") << "accepted, but DeepSpeed refuses it";
      }
      continue;
    }
    // libds refuses schedules that are classes of torch; everything else must equal the recording.
    Json known = document;
    if (!message.empty()) {
      const std::string name = given(document, "scheduler.type").string();
      EXPECT_EQ(result.at("scheduler").string(), name);
      ConfigRefusals refusals;
      parse_config(document, 1, refusals);
      const std::string unknown = "scheduler.type: \"" + name + "\" is unknown";
      EXPECT_TRUE(std::any_of(
          refusals.errors.begin(), refusals.errors.end(),
          [&](const Error& error) { return std::string_view(error.what()).starts_with(unknown); }))
          << message;
      for (const Error& error : refusals.errors)
        EXPECT_TRUE(std::string_view(error.what()).starts_with("scheduler.")) << error.what();
      std::erase_if(known.object(), [](const auto& member) { return member.first == "scheduler"; });
    }
    const Config ours = parse_config(known, 1);
    expect_said(ours, known);
    expect_engine(ours, result, message.empty());
  }
}

}  // namespace
}  // namespace ds::test::recorded_configs
