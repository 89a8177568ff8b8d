#include "nn/models/hf_config.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"

namespace ds {
namespace {

// Keys that change no number of forward and backward in evaluation mode. The element type is that of the
// tensors and of the run's configuration.
constexpr auto no_effect = std::to_array<std::string_view>({
    // who wrote it, and for which library
    "_name_or_path",
    "architectures",
    "auto_map",
    "model_type",
    "transformers_version",
    "transformers.js_config",
    "tokenizer_class",
    "dtype",
    "torch_dtype",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "_flash_attn_2_enabled",
    "_commit_hash",
    "unsloth_version",
    "language",
    "author",
    // what a call returns, and how it is computed
    "use_cache",
    "cache_implementation",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_return_dict",
    "torchscript",
    "gradient_checkpointing",
    "chunk_size_feed_forward",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "is_decoder",
    // tokens and text generation
    "bos_token_id",
    "eos_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "prefix",
    "task_specific_params",
    "do_sample",
    "max_length",
    "min_length",
    "temperature",
    "top_k",
    "top_p",
    "num_beams",
    "num_return_sequences",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "n_ctx",
    // other heads on the same model
    "id2label",
    "label2id",
    "_num_labels",
    "problem_type",
    "finetuning_task",
    "classifier_dropout",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
});

// Noise of training mode. A family that has it asks for its key by dropout().
constexpr auto training_noise = std::to_array<std::string_view>(
    {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout", "activation_dropout",
     "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "layerdrop", "resid_pdrop", "router_jitter_noise",
     "embedding_dropout"});

template <size_t N>
bool holds(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// A value in a message: of bounded length.
std::string shown(const Json& value) {
  std::string text = value.dump();
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

[[noreturn]] void wrong(std::string_view key, std::string_view wanted, const Json& value) {
  raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must be {}, got {}", key, wanted, shown(value));
}

}  // namespace

HfConfig::HfConfig(const Json& document, bool training) : document_(document), training_(training) {
  if (!document.is_object()) {
    raise(DS_ERROR_INVALID_ARGUMENT, "a model's configuration must be an object, got {}", document.kind());
  }
  family_ = text_or("model_type", "");
}

const Json* HfConfig::find(std::string_view key) {
  read_.emplace(key);
  const Json* value = document_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

int64_t HfConfig::size(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must be given, got none", key);
  bool good = value->is_integer() && value->integer() >= 1 && value->integer() <= kMaxSize;
  if (!good) wrong(key, fmt::format("an integer from 1 to {}", kMaxSize), *value);
  return value->integer();
}

int64_t HfConfig::size_or(std::string_view key, int64_t otherwise) {
  return find(key) == nullptr ? otherwise : size(key);
}

int64_t HfConfig::size_or_none(std::string_view key, int64_t otherwise) {
  return document_.find(key) == nullptr ? otherwise : size_or(key, 0);
}

double HfConfig::positive_or_none(std::string_view key, double otherwise) {
  return document_.find(key) == nullptr ? otherwise : positive_or(key, 0);
}

int64_t HfConfig::count_or(std::string_view key, int64_t otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_integer() || value->integer() < 0) wrong(key, "an integer >= 0", *value);
  return value->integer();
}

double HfConfig::positive_or(std::string_view key, double otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !(value->number() > 0)) wrong(key, "a number > 0", *value);
  return value->number();
}

bool HfConfig::flag_or(std::string_view key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) wrong(key, "true or false", *value);
  return value->boolean();
}

double HfConfig::dropout(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return 0;
  bool good = value->is_number() && value->number() >= 0 && value->number() < 1;
  if (!good) wrong(key, "a number in [0, 1)", *value);
  return training_ ? value->number() : 0;
}

std::string HfConfig::text_or(std::string_view key, const std::string& otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) wrong(key, "a string", *value);
  return value->string();
}

void HfConfig::refuse(std::string_view key, std::string_view supported) {
  const Json* value = find(key);
  raise(DS_ERROR_UNSUPPORTED, "key '{}' of a {} model must be {}, got {}", key, family_, supported,
        value == nullptr ? "none" : shown(*value));
}

void HfConfig::only(std::string_view key, const Json& value) {
  const Json* given = find(key);
  if (given != nullptr && given->dump() != value.dump()) refuse(key, value.dump());
}

void HfConfig::check_all_read() const {
  for (const auto& [key, value] : document_.object()) {
    if (value.is_null() || read_.contains(key) || holds(no_effect, key)) continue;
    bool noise = holds(training_noise, key);
    if (noise && (!training_ || (value.is_number() && value.number() == 0))) continue;
    if (noise) {
      raise(DS_ERROR_UNSUPPORTED,
            "key '{}' of a {} model must be 0 in training, got {} (a run with model.dropout 0 leaves all of "
            "it out)",
            key, family_, shown(value));
    }
    raise(DS_ERROR_UNSUPPORTED, "key '{}' = {} is not supported for a {} model", key, shown(value), family_);
  }
}

}  // namespace ds
