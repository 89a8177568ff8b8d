// Builds the graph of a config.json. Each family is a model_type with a table of keys (hf_keys.cpp)
// and a function that builds its graph from them.
#include "nn/models/hf.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/error.h"
#include "nn/models/hf_families.h"

namespace ds {
namespace {

struct Family {
  std::string_view model_type;
  HfModel (*build)(HfConfig& config, int64_t bound, int64_t seq);
};

constexpr std::array<Family, 12> families{{{"gpt2", build_gpt2},
                                           {"llama", build_llama},
                                           {"mistral", build_llama},
                                           {"ministral", build_llama},
                                           {"qwen2", build_llama},
                                           {"qwen3", build_llama},
                                           {"phi3", build_phi3},
                                           {"gemma2", build_gemma2},
                                           {"mixtral", build_mixtral},
                                           {"gpt_neox", build_gpt_neox},
                                           {"opt", build_opt},
                                           {"bert", build_bert}}};

}  // namespace

HfModel hf_model(const Json& config, int64_t bound, int64_t seq, HfMode mode, HfBatch batch) {
  require(bound >= 1, "bound must be at least 1, got {}", bound);
  require(seq >= 1, "sequence must be at least 1, got {}", seq);
  HfConfig reader(config, mode == HfMode::training, batch);
  // Checked before anything is built, because ignoring an unsupported value would silently build a
  // wrong model.
  reader.check_supported();
  auto family = std::ranges::find_if(
      families, [&](const Family& f) { return f.model_type == reader.family(); });
  ensure(family != families.end(), "family '{}' has keys but no graph", reader.family());
  return family->build(reader, bound, seq);
}

int64_t hf_hidden(const Json& config) {
  HfConfig reader(config);
  return reader.size(reader.family() == "gpt2" ? "n_embd" : "hidden_size");
}

int64_t hf_positions(const Json& config) {
  HfConfig reader(config);
  return reader.positions_key().empty() ? 0 : reader.size(reader.positions_key());
}

}  // namespace ds
