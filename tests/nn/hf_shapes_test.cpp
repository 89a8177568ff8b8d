// Tests configurations of published models, with the keys of Transformers 4, and two public facts
// about each: its number of parameters and the names of its tensors.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/json.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

struct Published {
  std::string name, config;
  int64_t parameters;
  // The name and the type of some tensors.
  std::vector<std::pair<std::string, std::string>> tensors;
  std::vector<std::string> absent;
};

void PrintTo(const Published& p, std::ostream* out) { *out << p.name; }

std::vector<Published> published() {
  return {
      {"gpt2",
       R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_positions": 1024,
           "n_ctx": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "activation_function": "gelu_new",
           "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-05,
           "initializer_range": 0.02, "bos_token_id": 50256, "summary_type": "cls_index",
           "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}})",
       124439808,
       {{"transformer.h.11.mlp.c_fc.weight", "f32[768,3072]"},
        {"transformer.wpe.weight", "f32[1024,768]"}},
       {"lm_head.weight"}},
      {"llama",
       R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256,
           "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072,
           "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "attention_bias": false, "mlp_bias": false,
           "pretraining_tp": 1, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
           "eos_token_id": [128001, 128008, 128009],
           "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                            "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
       8030261248,
       {{"model.layers.31.self_attn.k_proj.weight", "f32[1024,4096]"},
        {"lm_head.weight", "f32[128256,4096]"}},
       {"model.layers.0.self_attn.q_proj.bias"}},
      {"mistral",
       R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 32000,
           "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 32768,
           "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
           "tie_word_embeddings": false})",
       7241732096,
       {{"model.layers.0.mlp.down_proj.weight", "f32[4096,14336]"}},
       {}},
      {"qwen2",
       R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936,
           "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
           "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 32768,
           "max_window_layers": 24, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
           "use_sliding_window": false, "use_mrope": false, "tie_word_embeddings": true})",
       494032768,
       {{"model.layers.23.self_attn.v_proj.bias", "f32[128]"}},
       {"lm_head.weight", "model.layers.0.self_attn.o_proj.bias"}},
      {"qwen3",
       R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936,
           "hidden_size": 1024, "head_dim": 128, "intermediate_size": 3072, "num_hidden_layers": 28,
           "num_attention_heads": 16, "num_key_value_heads": 8, "hidden_act": "silu", "attention_bias": false,
           "max_position_embeddings": 40960, "max_window_layers": 28, "rms_norm_eps": 1e-06,
           "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "use_sliding_window": false,
           "tie_word_embeddings": true})",
       596049920,
       {{"model.layers.27.self_attn.q_norm.weight", "f32[128]"},
        {"model.layers.0.self_attn.o_proj.weight", "f32[1024,2048]"}},
       {"lm_head.weight"}},
      {"phi3",
       R"({"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "vocab_size": 32064,
           "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 4096,
           "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null,
           "rope_theta": 10000.0, "sliding_window": 2047, "attention_bias": false, "embd_pdrop": 0.0,
           "tie_word_embeddings": false,
           "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}})",
       3821079552,
       {{"model.layers.0.self_attn.qkv_proj.weight", "f32[9216,3072]"},
        {"model.layers.31.mlp.gate_up_proj.weight", "f32[16384,3072]"}},
       {}},
      {"gemma2",
       R"({"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "vocab_size": 256000,
           "hidden_size": 2304, "head_dim": 256, "intermediate_size": 9216, "num_hidden_layers": 26,
           "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_act": "gelu_pytorch_tanh",
           "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "rms_norm_eps": 1e-06,
           "rope_theta": 10000.0, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
           "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256, "attention_bias": false,
           "cache_implementation": "hybrid"})",
       2614341888,
       {{"model.layers.25.pre_feedforward_layernorm.weight", "f32[2304]"},
        {"model.layers.0.self_attn.q_proj.weight", "f32[2048,2304]"}},
       {"lm_head.weight"}},
      {"mixtral",
       R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 32000,
           "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 8, "hidden_act": "silu",
           "max_position_embeddings": 32768, "output_router_logits": false, "rms_norm_eps": 1e-05,
           "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
           "tie_word_embeddings": false})",
       46702792704,
       {{"model.layers.31.block_sparse_moe.experts.7.w2.weight", "f32[4096,14336]"},
        {"model.layers.0.block_sparse_moe.gate.weight", "f32[8,4096]"}},
       {}},
      {"gpt_neox",
       R"({"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "vocab_size": 50304,
           "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
           "hidden_act": "gelu", "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
           "rotary_emb_base": 10000, "rotary_pct": 0.25, "use_parallel_residual": true,
           "tie_word_embeddings": false})",
       162322944,
       {{"embed_out.weight", "f32[50304,768]"},
        {"gpt_neox.layers.11.attention.query_key_value.weight", "f32[2304,768]"}},
       {}},
      {"opt",
       R"({"model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": 50272, "hidden_size": 1024,
           "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
           "max_position_embeddings": 2048, "word_embed_proj_dim": 512, "do_layer_norm_before": false,
           "activation_function": "relu", "activation_dropout": 0.0, "dropout": 0.1, "layerdrop": 0.0,
           "init_std": 0.02, "prefix": "</s>", "pad_token_id": 1, "torch_dtype": "float16"})",
       331196416,
       {{"model.decoder.project_in.weight", "f32[1024,512]"},
        {"model.decoder.embed_positions.weight", "f32[2050,1024]"}},
       {"model.decoder.final_layer_norm.weight", "lm_head.weight"}},
      {"bert",
       R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 30522, "hidden_size": 768,
           "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu",
           "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12,
           "max_position_embeddings": 512, "type_vocab_size": 2, "pad_token_id": 0,
           "gradient_checkpointing": false, "position_embedding_type": "absolute"})",
       109514298,
       {{"cls.predictions.bias", "f32[30522]"},
        {"bert.embeddings.token_type_embeddings.weight", "f32[2,768]"}},
       {"cls.predictions.decoder.weight", "bert.pooler.dense.weight"}}};
}

class HfShapes : public testing::TestWithParam<Published> {};

TEST_P(HfShapes, CountsAndNamesAreAsPublished) {
  const Published& p = GetParam();
  HfModel model = hf_model(Json::parse(p.config), 64, 32);
  const Graph& graph = model.graph;
  graph.check();
  int64_t total = 0;
  for (const Parameter& param : graph.params) total += graph.type(param.value).shape.numel(1);
  EXPECT_EQ(total, p.parameters);
  for (const auto& [name, type] : p.tensors) {
    ParamId index = graph.find_param(name);
    ASSERT_TRUE(index.exists()) << name;
    EXPECT_EQ(graph.type(graph.params[index].value).text(), type) << name;
  }
  for (const std::string& name : p.absent) EXPECT_EQ(graph.find_param(name), none) << name;
  EXPECT_EQ(graph.type(graph.outputs.at(0).value).text(), "f32[]");
  EXPECT_EQ(graph.type(graph.outputs.at(1).value).shape.dims().at(0), Dim::n());
}

// Initial values are those of Transformers: matrices are normal, biases 0 and norms 1 (Gemma's are
// 0, because it adds 1).
TEST_P(HfShapes, InitialValuesAreThoseOfTransformers) {
  const Published& p = GetParam();
  for (const Parameter& param : hf_model(Json::parse(p.config), 64, 32).graph.params) {
    bool norm = param.name.find("norm") != std::string::npos ||
                param.name.find("ln_") != std::string::npos ||
                param.name.find("LayerNorm") != std::string::npos;
    Init wanted{"normal", 0.02};
    if (norm) wanted = {p.name == "gemma2" ? "zeros" : "ones", 0};
    if (param.name.ends_with(".bias")) wanted = {"zeros", 0};
    if (p.name == "gpt2" && param.name.ends_with(".c_proj.weight"))
      wanted.scale = 0.02 / std::sqrt(24.0);
    EXPECT_EQ(param.init, wanted) << param.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfShapes, testing::ValuesIn(published()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ds
