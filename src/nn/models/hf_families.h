#pragma once
#include <cstdint>

#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

// Each function builds the model of one family. hf_model() checks bound and seq and then calls the
// function for the model_type.

HfModel build_gpt2(HfConfig& config, int64_t bound, int64_t seq);
// Also builds mistral, ministral, qwen2 and qwen3.
HfModel build_llama(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_phi3(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_gemma2(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_mixtral(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_gpt_neox(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_opt(HfConfig& config, int64_t bound, int64_t seq);
// Builds BertForMaskedLM.
HfModel build_bert(HfConfig& config, int64_t bound, int64_t seq);

}  // namespace ds
