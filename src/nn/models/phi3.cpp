// Phi3ForCausalLM: as Llama, with q, k, v and gate, up in one matrix each.
#include "core/base/error.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"

namespace ds {
namespace {

Decoder read_phi3(HfConfig& config, int64_t seq) {
  Decoder d = read_decoder(config, 1e-5, 0, 32000);
  d.act = read_activation(config, "hidden_act", "silu");
  RopeKeys rope;
  rope.partly = rope.longrope_only = true;
  rope.original = 4096;
  d.rope = read_rope(config, d.width, seq, rope);
  d.windows =
      read_windows(config, config.size_or("sliding_window", 0), std::vector<bool>(d.windows.size(), true));
  config.only("attention_bias", false);
  d.packed = true;
  d.dropout = config.dropout("resid_pdrop");
  return d;
}

}  // namespace

HfModel build_phi3(HfConfig& config, int64_t bound, int64_t seq) {
  return build_decoder(config, read_phi3(config, seq), bound, seq);
}

}  // namespace ds
