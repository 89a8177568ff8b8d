#pragma once
#include <cstdint>

#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

// One file each. hf_model() has checked bound and seq, and calls the one of the model_type.
HfModel build_gpt2(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_llama(HfConfig& config, int64_t bound,
                    int64_t seq);  // also mistral, ministral, qwen2, qwen3
HfModel build_phi3(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_gemma2(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_mixtral(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_gpt_neox(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_opt(HfConfig& config, int64_t bound, int64_t seq);
HfModel build_bert(HfConfig& config, int64_t bound, int64_t seq);  // BertForMaskedLM

}  // namespace ds
