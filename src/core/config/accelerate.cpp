// Converts Accelerate's configuration file into DeepSpeed's, as Accelerate 1.15 does:
// DeepSpeedPlugin in utils/dataclasses.py builds a DeepSpeed configuration from the section
// deepspeed_config, with "auto" for values that the file leaves out, and set_mixed_precision adds
// the compute type. The other keys say where processes start; they are checked for typing errors
// and otherwise ignored.
#include "core/config/accelerate.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/suggest.h"

namespace ds {
namespace {

constexpr const char* kAccelerateSection = "deepspeed_config";

// Keys of the section that say how processes start or models are built. They do not change results.
constexpr std::array<std::string_view, 6> kLaunchKeys{
    "deepspeed_multinode_launcher", "deepspeed_hostfile", "deepspeed_exclusion_filter",
    "deepspeed_inclusion_filter",   "zero3_init_flag",    "deepspeed_moe_layer_cls_names"};
constexpr std::array<std::string_view, 8> kAccelerateKeys{
    "gradient_accumulation_steps", "gradient_clipping",     "zero_stage",
    "offload_optimizer_device",    "offload_param_device",  "offload_optimizer_nvme_path",
    "offload_param_nvme_path",     "zero3_save_16bit_model"};

// All top-level keys that Accelerate accepts, including the older dynamo_backend and fp16. Apart
// from the section, only mixed_precision and fp16 change results.
constexpr std::array<std::string_view, 33> kFileKeys{"compute_environment",
                                                     "distributed_type",
                                                     "mixed_precision",
                                                     "use_cpu",
                                                     "debug",
                                                     "num_processes",
                                                     "machine_rank",
                                                     "num_machines",
                                                     "gpu_ids",
                                                     "main_process_ip",
                                                     "main_process_port",
                                                     "rdzv_backend",
                                                     "same_network",
                                                     "main_training_function",
                                                     "enable_cpu_affinity",
                                                     "fp8_config",
                                                     "deepspeed_config",
                                                     "fsdp_config",
                                                     "parallelism_config",
                                                     "megatron_lm_config",
                                                     "mpirun_config",
                                                     "downcast_bf16",
                                                     "tpu_name",
                                                     "tpu_zone",
                                                     "tpu_use_cluster",
                                                     "tpu_use_sudo",
                                                     "command_file",
                                                     "commands",
                                                     "tpu_vm",
                                                     "tpu_env",
                                                     "dynamo_config",
                                                     "dynamo_backend",
                                                     "fp16"};

template <typename Names>
bool is_one(const Names& names, std::string_view name) {
  return contains(names, name);
}

const Json* given(const Json& section, std::string_view key) {
  const Json* value = section.find(key);
  return value && !value->is_null() ? value : nullptr;
}

// Returns whether a value means "none". Accelerate's questionnaire writes this word, which YAML
// reads as a text. An empty text means the same.
bool says_none(const Json& value) {
  return value.is_string() && (value.string() == "none" || value.string().empty());
}

template <typename Names>
[[noreturn]] void refuse_unknown(std::string_view source, std::string_view section,
                                 const std::string& name, const Names& known) {
  const std::vector<std::string> names(known.begin(), known.end());
  raise(DS_ERROR_CONFIG, "{}: {}{}: unknown key of Accelerate{}", source, section, name,
        did_you_mean(name, names));
}

void check_keys(const Json& section, std::string_view source) {
  for (const auto& [name, value] : section.object()) {
    if (is_one(kAccelerateKeys, name) || is_one(kLaunchKeys, name)) continue;
    if (name == "deepspeed_config_file") {
      raise(DS_ERROR_CONFIG,
            "{}: {}.{} names the configuration: give that file, {}, in place of this one", source,
            kAccelerateSection, name, value.dump());
    }
    refuse_unknown(source, fmt::format("{}.", kAccelerateSection), name, kAccelerateKeys);
  }
}

void check_file_keys(const Json& document, std::string_view source) {
  for (const auto& [name, value] : document.object()) {
    if (is_one(kFileKeys, name)) continue;
    if (is_one(kAccelerateKeys, name)) {
      raise(
          DS_ERROR_CONFIG,
          "{}: {}: belongs in the section {} but is at the top level; indent it below the section",
          source, name, kAccelerateSection);
    }
    refuse_unknown(source, "", name, kFileKeys);
  }
}

// Returns the number or boolean that a text contains, or the value itself. Accelerate passes values
// on as environment variables, so it does not distinguish a number from the same number in quotes.
Json unquoted(const Json& value) {
  if (!value.is_string()) return value;
  try {
    Json plain = Json::parse(ascii_lower(value.string()), "text");
    return plain.is_number() || plain.is_bool() ? plain : value;
  } catch (const Error&) {
    return value;
  }
}

// Returns the content of the section offload_optimizer or offload_param. The section is empty if
// the file names no device.
Json offload(const Json& section, const std::string& of) {
  Json out{Json::Object{}};
  const Json* device = given(section, "offload_" + of + "_device");
  if (!device) return out;
  out.set("device", *device);
  const Json* path = given(section, "offload_" + of + "_nvme_path");
  const bool nvme = device->is_string() && device->string() == "nvme";
  if (nvme && path && !says_none(*path)) out.set("nvme_path", *path);
  return out;
}

// Adds the section fp16 or bf16 that mixed_precision or, in older files, `fp16: true` selects.
void add_precision(const Json& document, std::string_view source, Json& out) {
  const Json* type = given(document, "mixed_precision");
  const Json* half = given(document, "fp16");
  const Json older("fp16");
  if (!document.find("mixed_precision") && half && half->is_bool() && half->boolean())
    type = &older;
  // YAML reads "no" as false.
  if (!type || (type->is_bool() && !type->boolean())) return;
  const std::string word = type->is_string() ? type->string() : type->dump();
  if (word == "no") return;
  if (word != "bf16" && word != "fp16") {
    raise(DS_ERROR_CONFIG, "{}: mixed_precision: must be one of no, bf16, fp16, got \"{}\"", source,
          word);
  }
  out.set(word, Json::Object{{"enabled", true}});
}

}  // namespace

Json accelerate_config(const Json& document, std::string_view source) {
  const Json* section = given(document, kAccelerateSection);
  if (!section) {
    const Json* type = given(document, "distributed_type");
    raise(DS_ERROR_CONFIG,
          "{}: is YAML without a section {}{}: of YAML only the files of `accelerate config` for "
          "DeepSpeed are read; write others as JSON with the keys of docs/reference/config.md",
          source, kAccelerateSection,
          type ? fmt::format(" (distributed_type {})", type->dump()) : "");
  }
  if (!section->is_object())
    raise(DS_ERROR_CONFIG, "{}: {}: expected a section, got {}", source, kAccelerateSection,
          section->kind());
  check_file_keys(document, source);
  check_keys(*section, source);
  Json out, zero;
  out.set("train_micro_batch_size_per_gpu", "auto");
  const Json* accumulation = given(*section, "gradient_accumulation_steps");
  out.set("gradient_accumulation_steps", accumulation ? unquoted(*accumulation) : Json("auto"));
  const Json* clipping = given(*section, "gradient_clipping");
  out.set("gradient_clipping", clipping ? unquoted(*clipping) : Json("auto"));
  const Json* stage = given(*section, "zero_stage");
  zero.set("stage", stage ? unquoted(*stage) : Json(2));
  for (const char* of : {"optimizer", "param"}) {
    Json tier = offload(*section, of);
    if (!tier.object().empty()) zero.set(std::string("offload_") + of, std::move(tier));
  }
  if (const Json* gather = given(*section, "zero3_save_16bit_model"))
    zero.set("stage3_gather_16bit_weights_on_model_save", unquoted(*gather));
  out.set("zero_optimization", std::move(zero));
  add_precision(document, source, out);
  return out;
}

}  // namespace ds
