#include "nn/models/hf.h"

#include <array>

#include "core/base/error.h"
#include "nn/models/hf_families.h"

namespace ds {
namespace {

struct Family {
  std::string_view model_type;
  std::string_view architecture;  // the language model of that type
  HfModel (*build)(HfConfig& config, int64_t bound, int64_t seq);
};

constexpr std::array<Family, 11> families{{{"gpt2", "GPT2LMHeadModel", build_gpt2},
                                           {"llama", "LlamaForCausalLM", build_llama},
                                           {"mistral", "MistralForCausalLM", build_llama},
                                           {"qwen2", "Qwen2ForCausalLM", build_llama},
                                           {"qwen3", "Qwen3ForCausalLM", build_llama},
                                           {"phi3", "Phi3ForCausalLM", build_phi3},
                                           {"gemma2", "Gemma2ForCausalLM", build_gemma2},
                                           {"mixtral", "MixtralForCausalLM", build_mixtral},
                                           {"gpt_neox", "GPTNeoXForCausalLM", build_gpt_neox},
                                           {"opt", "OPTForCausalLM", build_opt},
                                           {"bert", "BertForMaskedLM", build_bert}}};

const Family& find_family(HfConfig& config) {
  std::string known;
  for (const Family& family : families) {
    if (family.model_type == config.family()) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  raise(DS_ERROR_UNSUPPORTED, "key 'model_type' must be one of {}, got '{}'", known, config.family());
}

void check_architecture(HfConfig& config, const Family& family) {
  const Json* names = config.find("architectures");
  if (names == nullptr) return;
  bool good = names->is_array() && names->array().size() == 1 && names->array()[0].is_string() &&
              names->array()[0].string() == family.architecture;
  if (!good) config.refuse("architectures", fmt::format("[\"{}\"]", family.architecture));
}

}  // namespace

HfModel hf_model(const Json& config, int64_t bound, int64_t seq, HfMode mode) {
  require(bound >= 1, "bound must be at least 1, got {}", bound);
  require(seq >= 1, "sequence must be at least 1, got {}", seq);
  HfConfig reader(config, mode == HfMode::training);
  const Family& family = find_family(reader);
  check_architecture(reader, family);
  return family.build(reader, bound, seq);
}

void check_continuation(const HfModel& model, int64_t prompt, int64_t positions) {
  int64_t steady = model.rope.steady;
  if (steady == 0 || positions <= steady || (prompt > steady && !model.rope.grows)) return;
  raise(DS_ERROR_UNSUPPORTED,
        "a {} model with this rope_type cannot continue {} tokens to {}: rotations change beyond {} tokens",
        model.family, prompt, positions, steady);
}

}  // namespace ds
