#include "nn/models/hf_keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "core/base/contains.h"

namespace ds {
namespace {

using Keys = std::vector<HfKey>;

// Stands for the default of a key that has no default: the key is optional, or it is a size that
// the file must give.
const Json kNone;

// Returns `keys` with `more` added. An entry in `more` replaces a key of the same name.
Keys with(Keys keys, const Keys& more) {
  for (const HfKey& key : more) {
    auto at = std::ranges::find_if(keys, [&](const HfKey& k) { return k.name == key.name; });
    if (at == keys.end()) {
      keys.push_back(key);
    } else {
      *at = key;
    }
  }
  return keys;
}

Keys every_family() {
  return {{"vocab_size", kNone},
          {"is_encoder_decoder", false, KeyUse::only},
          {"per_layer_config", kNone, KeyUse::only},
          // Names a file of weights other than model.safetensors.
          {"transformers_weights", kNone, KeyUse::only},
          {"quantization_config", kNone, KeyUse::only}};
}

Keys with_sizes() {
  return with(
      every_family(),
      {{"hidden_size", kNone}, {"num_hidden_layers", kNone}, {"num_attention_heads", kNone}});
}

// Only true is supported. In Transformers, null means false where a mask is built, and true where
// attention runs without a mask.
Keys causal() { return {{"is_causal", true, KeyUse::only}}; }

// Returns the keys of rope and of its scaling.
Keys rope(int64_t positions) {
  return {{"max_position_embeddings", positions},
          {"rope_parameters", kNone},
          {"rope_scaling", kNone},
          {"original_max_position_embeddings", kNone}};
}

// Returns Llama's keys except for the biases, which some other families do not have.
Keys decoder(int64_t positions) {
  Keys own{{"intermediate_size", kNone},   {"num_key_value_heads", kNone}, {"head_dim", kNone},
           {"hidden_act", "silu"},         {"initializer_range", 0.02},    {"rms_norm_eps", 1e-6},
           {"pad_token_id", kNone},        {"tie_word_embeddings", false}, {"rope_theta", 1e4},
           {"partial_rotary_factor", 1.0}, {"attention_dropout", 0.0}};
  return with(with(with(with_sizes(), causal()), rope(positions)), own);
}

Keys llama() { return with(decoder(2048), {{"attention_bias", false}, {"mlp_bias", false}}); }

// If there is a window, it applies to every layer; a list of layer types is not read.
Keys mistral() {
  return with(decoder(4096 * 32), {{"num_key_value_heads", 8}, {"sliding_window", 4096}});
}

Keys ministral() { return with(mistral(), {{"layer_types", kNone}}); }

Keys qwen2() {
  return with(decoder(32768), {{"num_key_value_heads", 32},
                               {"use_sliding_window", false},
                               {"sliding_window", 4096},
                               {"max_window_layers", 28},
                               {"layer_types", kNone}});
}

Keys qwen3() { return with(qwen2(), {{"head_dim", 128}, {"attention_bias", false}}); }

Keys phi3() {
  return with(decoder(4096), {{"rms_norm_eps", 1e-5},
                              {"resid_pdrop", 0.0},
                              {"original_max_position_embeddings", 4096},
                              {"pad_token_id", 32000},
                              {"sliding_window", kNone}});
}

Keys gemma2() {
  Keys keys = with(decoder(8192), {{"num_key_value_heads", 4},
                                   {"head_dim", 256},
                                   {"hidden_activation", "gelu_pytorch_tanh"},
                                   {"pad_token_id", 0},
                                   {"tie_word_embeddings", true},
                                   {"attention_bias", false},
                                   {"query_pre_attn_scalar", 256},
                                   {"sliding_window", 4096},
                                   {"layer_types", kNone},
                                   {"attn_logit_softcapping", 50.0},
                                   {"final_logit_softcapping", 30.0},
                                   {"use_bidirectional_attention", false, KeyUse::only}});
  std::erase_if(keys, [](const HfKey& key) { return key.name == "hidden_act"; });
  return keys;
}

Keys mixtral() {
  return with(decoder(4096 * 32), {{"num_key_value_heads", 8},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 1e6},
                                   {"sliding_window", kNone},
                                   {"num_experts_per_tok", 2},
                                   {"num_local_experts", 8},
                                   {"output_router_logits", false},
                                   {"router_aux_loss_coef", 0.001},
                                   {"router_jitter_noise", 0.0, KeyUse::noise}});
}

Keys gpt_neox() {
  Keys own{{"intermediate_size", kNone}, {"head_dim", kNone},
           {"hidden_act", "gelu"},       {"initializer_range", 0.02},
           {"layer_norm_eps", 1e-5},     {"use_parallel_residual", true},
           {"attention_bias", true},     {"tie_word_embeddings", false},
           {"rotary_emb_base", 1e4},     {"rotary_pct", 0.25},
           {"hidden_dropout", 0.0},      {"attention_dropout", 0.0}};
  return with(with(with(with_sizes(), causal()), rope(2048)), own);
}

Keys gpt2() {
  Keys own{{"n_embd", kNone},
           {"n_layer", kNone},
           {"n_head", kNone},
           {"n_positions", 1024},
           {"n_inner", kNone},
           {"activation_function", "gelu_new"},
           {"initializer_range", 0.02},
           {"layer_norm_epsilon", 1e-5},
           {"scale_attn_weights", true},
           {"scale_attn_by_inverse_layer_idx", false},
           {"tie_word_embeddings", true},
           {"resid_pdrop", 0.1},
           {"embd_pdrop", 0.1},
           {"attn_pdrop", 0.1},
           {"add_cross_attention", false, KeyUse::only}};
  return with(with(every_family(), causal()), own);
}

Keys opt() {
  Keys own{{"ffn_dim", kNone},
           {"max_position_embeddings", 2048},
           {"do_layer_norm_before", true},
           {"_remove_final_layer_norm", false},
           {"word_embed_proj_dim", kNone},
           {"activation_function", "relu"},
           {"init_std", 0.02},
           {"pad_token_id", 1},
           {"enable_bias", true},
           {"layer_norm_elementwise_affine", true},
           {"tie_word_embeddings", true},
           {"dropout", 0.1},
           {"attention_dropout", 0.0},
           {"layerdrop", 0.0}};
  return with(with(with_sizes(), causal()), own);
}

// position_embedding_type is a key of Transformers 4. Weights that were trained with another value
// need that value.
Keys bert() {
  Keys own{{"intermediate_size", kNone},
           {"hidden_act", "gelu"},
           {"max_position_embeddings", 512},
           {"type_vocab_size", 2},
           {"initializer_range", 0.02},
           {"layer_norm_eps", 1e-12},
           {"pad_token_id", 0},
           {"tie_word_embeddings", true},
           {"hidden_dropout_prob", 0.1},
           {"attention_probs_dropout_prob", 0.1},
           {"is_decoder", false, KeyUse::only},
           {"add_cross_attention", false, KeyUse::only},
           {"position_embedding_type", "absolute", KeyUse::only}};
  return with(with_sizes(), own);
}

using Aliases = std::vector<std::pair<std::string_view, std::string_view>>;

const std::map<std::string_view, HfKeys>& tables() {
  static const auto& all = *new std::map<std::string_view, HfKeys>{
      {"gpt2",
       {gpt2(),
        Aliases{{"hidden_size", "n_embd"},
                {"max_position_embeddings", "n_positions"},
                {"num_attention_heads", "n_head"},
                {"num_hidden_layers", "n_layer"}},
        "n_positions"}},
      {"llama", {llama(), {}, {}}},
      {"mistral", {mistral(), {}, {}}},
      {"ministral", {ministral(), {}, {}}},
      {"qwen2", {qwen2(), {}, {}}},
      {"qwen3", {qwen3(), {}, {}}},
      {"phi3", {phi3(), {}, {}}},
      {"gemma2", {gemma2(), {}, {}}},
      {"mixtral", {mixtral(), Aliases{{"num_experts", "num_local_experts"}}, {}}},
      {"gpt_neox", {gpt_neox(), {}, {}}},
      {"opt", {opt(), {}, "max_position_embeddings"}},
      {"bert", {bert(), {}, "max_position_embeddings"}}};
  return all;
}

constexpr auto plain_keys = std::to_array<std::string_view>({
    // The author of the file, and the library it is for.
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
    // The results of a call, and how they are computed.
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
    // Tokens and text generation.
    "bos_token_id",
    "pad_token_id",
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
    // Other heads on the same model.
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

}  // namespace

const HfKey* HfKeys::find(std::string_view name) const {
  auto at = std::ranges::find_if(keys, [&](const HfKey& key) { return key.name == name; });
  return at == keys.end() ? nullptr : &*at;
}

std::string_view HfKeys::alias_of(std::string_view name) const {
  for (const auto& [other, key] : aliases) {
    if (other == name) return key;
  }
  return {};
}

std::string hf_families() {
  std::string out;
  for (const auto& [family, keys] : tables())
    out += (out.empty() ? "" : ", ") + std::string(family);
  return out;
}

const HfKeys* hf_keys(std::string_view family) {
  auto at = tables().find(family);
  return at == tables().end() ? nullptr : &at->second;
}

bool is_plain_key(std::string_view name) { return contains(plain_keys, name); }

}  // namespace ds
