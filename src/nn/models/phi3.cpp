// Builds Phi3ForCausalLM (arXiv:2404.14219): Llama with q, k and v in one matrix, gate and up in
// another, and longrope as the only scaling.
#include <cstdint>

#include "core/base/error.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rope.h"

namespace ds {
namespace {

Decoder read_phi3(HfConfig& config) {
  Decoder d = read_decoder(config);
  d.act = read_activation(config, "hidden_act");
  d.rope = read_rope(config, d.width, {.partly = true, .longrope_only = true});
  d.windows = read_windows(config, d.layers);
  // One matrix holds q, k and v, another gate and up. Dropout follows both branches.
  d.packed = true;
  d.dropout = config.dropout("resid_pdrop");
  return d;
}

}  // namespace

HfModel build_phi3(HfConfig& config, int64_t bound, int64_t seq) {
  return build_decoder(config, read_phi3(config), bound, seq);
}

}  // namespace ds
