// The names and keys of each family, in model folders and in GGUF files. The facts are those of
// llama.cpp's converter and of its gguf package.
#include "checkpoint/gguf/families.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

using enum GgufOrder;

// The rows of llama. llama.cpp rotates neighbouring columns in this architecture, so that the rows
// of q and k are reordered.
constexpr auto kLlamaNames = std::to_array<GgufName>(
    {{"model.embed_tokens", "token_embd"},
     {"model.norm", "output_norm"},
     {"lm_head", "output"},
     {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
     {"model.layers.#.self_attn.q_proj", "blk.#.attn_q", query_pairs},
     {"model.layers.#.self_attn.k_proj", "blk.#.attn_k", key_pairs},
     {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
     {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
     {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
     {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
     {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
     {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"},
     {"model.layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
     {"model.layers.#.block_sparse_moe.experts.@.w1", "blk.#.ffn_gate_exps"},
     {"model.layers.#.block_sparse_moe.experts.@.w2", "blk.#.ffn_down_exps"},
     {"model.layers.#.block_sparse_moe.experts.@.w3", "blk.#.ffn_up_exps"}});

constexpr auto kQwenNames =
    std::to_array<GgufName>({{"model.embed_tokens", "token_embd"},
                             {"model.norm", "output_norm"},
                             {"lm_head", "output"},
                             {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
                             {"model.layers.#.self_attn.q_proj", "blk.#.attn_q"},
                             {"model.layers.#.self_attn.k_proj", "blk.#.attn_k"},
                             {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
                             {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
                             {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
                             {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
                             {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
                             {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
                             {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
                             {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"}});

constexpr auto kPhi3Names =
    std::to_array<GgufName>({{"model.embed_tokens", "token_embd"},
                             {"model.norm", "output_norm"},
                             {"lm_head", "output"},
                             {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
                             {"model.layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
                             {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
                             {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
                             {"model.layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
                             {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"}});

constexpr auto kGemma2Names = std::to_array<GgufName>(
    {{"model.embed_tokens", "token_embd"},
     {"model.norm", "output_norm", plus_one},
     {"model.layers.#.input_layernorm", "blk.#.attn_norm", plus_one},
     {"model.layers.#.self_attn.q_proj", "blk.#.attn_q"},
     {"model.layers.#.self_attn.k_proj", "blk.#.attn_k"},
     {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
     {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
     {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm", plus_one},
     {"model.layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm", plus_one},
     {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm", plus_one},
     {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
     {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
     {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"}});

constexpr auto kGpt2Names =
    std::to_array<GgufName>({{"transformer.wte", "token_embd"},
                             {"transformer.wpe", "position_embd"},
                             {"transformer.ln_f", "output_norm"},
                             {"lm_head", "output"},
                             {"transformer.h.#.ln_1", "blk.#.attn_norm"},
                             {"transformer.h.#.attn.c_attn", "blk.#.attn_qkv", transposed},
                             {"transformer.h.#.attn.c_proj", "blk.#.attn_output", transposed},
                             {"transformer.h.#.ln_2", "blk.#.ffn_norm"},
                             {"transformer.h.#.mlp.c_fc", "blk.#.ffn_up", transposed},
                             {"transformer.h.#.mlp.c_proj", "blk.#.ffn_down", transposed}});

constexpr auto kNeoxNames = std::to_array<GgufName>(
    {{"gpt_neox.embed_in", "token_embd"},
     {"gpt_neox.final_layer_norm", "output_norm"},
     {"embed_out", "output"},
     {"gpt_neox.layers.#.input_layernorm", "blk.#.attn_norm"},
     {"gpt_neox.layers.#.attention.query_key_value", "blk.#.attn_qkv", parts_first},
     {"gpt_neox.layers.#.attention.dense", "blk.#.attn_output"},
     {"gpt_neox.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
     {"gpt_neox.layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
     {"gpt_neox.layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"}});

template <size_t First, size_t Second>
constexpr std::array<GgufKey, First + Second> joined(const std::array<GgufKey, First>& first,
                                                     const GgufKey (&second)[Second]) {
  std::array<GgufKey, First + Second> out{};
  std::ranges::copy(second, std::ranges::copy(first, out.begin()).out);
  return out;
}

constexpr auto kSizeKeys =
    std::to_array<GgufKey>({{"num_hidden_layers", "block_count"},
                            {"max_position_embeddings", "context_length"},
                            {"hidden_size", "embedding_length"},
                            {"intermediate_size", "feed_forward_length"},
                            {"num_attention_heads", "attention.head_count"}});

constexpr auto kGroupedKeys =
    joined(kSizeKeys, {{"num_key_value_heads", "attention.head_count_kv"},
                       {"rms_norm_eps", "attention.layer_norm_rms_epsilon", GgufKind::f32}});

constexpr auto kDecoderKeys = joined(kGroupedKeys, {{"head_dim", "attention.key_length"},
                                                    {"num_local_experts", "expert_count"},
                                                    {"num_experts_per_tok", "expert_used_count"}});

constexpr auto kPhi3Keys = joined(
    kGroupedKeys, {{"original_max_position_embeddings", "rope.scaling.original_context_length"},
                   {"sliding_window", "attention.sliding_window"}});

constexpr auto kGemma2Keys =
    joined(kGroupedKeys, {{"head_dim", "attention.key_length"},
                          {"attn_logit_softcapping", "attn_logit_softcapping", GgufKind::f32},
                          {"final_logit_softcapping", "final_logit_softcapping", GgufKind::f32},
                          {"sliding_window", "attention.sliding_window"}});

constexpr auto kGpt2Keys =
    std::to_array<GgufKey>({{"n_layer", "block_count"},
                            {"n_positions", "context_length"},
                            {"n_embd", "embedding_length"},
                            {"n_inner", "feed_forward_length"},
                            {"n_head", "attention.head_count"},
                            {"layer_norm_epsilon", "attention.layer_norm_epsilon", GgufKind::f32}});

constexpr auto kNeoxKeys =
    joined(kSizeKeys, {{"layer_norm_eps", "attention.layer_norm_epsilon", GgufKind::f32},
                       {"use_parallel_residual", "use_parallel_residual", GgufKind::flag}});

// Several families share the architecture llama; the last of them is the one that a file is read
// as, unless it has experts.
constexpr auto kGgufFamilies = std::to_array<GgufFamily>({
    {"mixtral", "MixtralForCausalLM", "llama", "hidden_act", "silu", "num_attention_heads",
     kLlamaNames, kDecoderKeys},
    {"mistral", "MistralForCausalLM", "llama", "hidden_act", "silu", "num_attention_heads",
     kLlamaNames, kDecoderKeys},
    {"llama", "LlamaForCausalLM", "llama", "hidden_act", "silu", "num_attention_heads", kLlamaNames,
     kDecoderKeys},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", "hidden_act", "silu", "num_attention_heads", kQwenNames,
     kDecoderKeys},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", "hidden_act", "silu", "num_attention_heads", kQwenNames,
     kDecoderKeys},
    {"phi3", "Phi3ForCausalLM", "phi3", "hidden_act", "silu", "num_attention_heads", kPhi3Names,
     kPhi3Keys},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", "hidden_activation", "gelu_pytorch_tanh",
     "num_attention_heads", kGemma2Names, kGemma2Keys},
    {"gpt2", "GPT2LMHeadModel", "gpt2", "activation_function", "gelu_new", "n_head", kGpt2Names,
     kGpt2Keys},
    {"gpt_neox", "GPTNeoXForCausalLM", "gptneox", "hidden_act", "gelu", "num_attention_heads",
     kNeoxNames, kNeoxKeys},
});

// Returns the names of all families, by `name`, without repetitions.
std::string names_of(std::string_view GgufFamily::*name) {
  std::string out;
  std::string_view last;
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.*name == last) continue;
    last = family.*name;
    out += (out.empty() ? "" : ", ") + std::string(last);
  }
  return out;
}

// Matches a name against a pattern of GgufName. On success stores the digits that '#' and '@' stand
// for.
bool matches(std::string_view pattern, std::string_view name, std::string& layer,
             std::string& expert) {
  layer.clear();
  expert.clear();
  for (char c : pattern) {
    if (c != '#' && c != '@') {
      if (!name.starts_with(c)) return false;
      name.remove_prefix(1);
      continue;
    }
    std::string& digits = c == '#' ? layer : expert;
    while (!name.empty() && name[0] >= '0' && name[0] <= '9') {
      digits += name[0];
      name.remove_prefix(1);
    }
    if (digits.empty() || digits.size() > 6) return false;
  }
  return name.empty();
}

}  // namespace

const GgufFamily& gguf_family(const Json& config) {
  const std::string& type = config.at("model_type").string();
  auto found = std::ranges::find(kGgufFamilies, type, &GgufFamily::model_type);
  if (found != kGgufFamilies.end()) return *found;
  raise(DS_ERROR_UNSUPPORTED, "a GGUF file is written for model_type {}, got '{}'",
        names_of(&GgufFamily::model_type), type);
}

const GgufFamily& gguf_family(const GgufHeader& header) {
  const GgufValue* value = header.value("general.architecture");
  const auto* name = value ? std::get_if<std::vector<std::string>>(&value->elements) : nullptr;
  if (name == nullptr || value->is_list)
    raise(DS_ERROR_CORRUPT, "key 'general.architecture' must be a text");
  bool experts = header.find("blk.0.ffn_gate_inp.weight") != nullptr;
  const GgufFamily* family = nullptr;
  for (const GgufFamily& known : kGgufFamilies) {
    if (known.architecture != name->front() || (known.model_type == "mixtral" && !experts))
      continue;
    if (family == nullptr || !experts) family = &known;
  }
  if (family != nullptr) return *family;
  raise(DS_ERROR_UNSUPPORTED, "general.architecture must be {}, got '{}'",
        names_of(&GgufFamily::architecture), name->front());
}

GgufPlace gguf_place(const GgufFamily& family, const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  const std::string stem = parameter.substr(0, dot),
                    suffix = dot == parameter.npos ? "" : parameter.substr(dot);
  std::string layer, expert;
  for (const GgufName& name : family.names) {
    if (!matches(name.folder, stem, layer, expert)) continue;
    GgufPlace place{std::string(name.file) + suffix, name.order};
    if (const size_t at = place.name.find('#'); at != place.name.npos)
      place.name.replace(at, 1, layer);
    if (!expert.empty()) place.expert = std::stoll(expert);
    if (place.order == transposed && suffix != ".weight") place.order = same;
    return place;
  }
  raise(DS_ERROR_UNSUPPORTED, "a GGUF file of architecture {} has no place for parameter '{}'",
        family.architecture, TensorName(parameter));
}

}  // namespace ds
