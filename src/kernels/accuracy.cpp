// The table of accuracies. Each row gives the number of terms in the longest sum of an operation;
// error_unit() turns this number into a bound. A row for every op and instruction is required:
// tests/conformance compares this table with the registry.
#include "kernels/accuracy.h"

#include <algorithm>

#include "core/graph/ops/kept_logits.h"

namespace ds {
namespace {

using Operands = std::span<const TensorView>;

int64_t rows_of(const TensorView& x) { return x.dims[0]; }
int64_t columns_of(const TensorView& x) { return x.dims[1]; }

// The number of terms for operations without sums, even if they round more than once, and for those
// with one result, for which it has no effect.
int64_t one(const Attrs&, Operands) { return 1; }
int64_t columns(const Attrs&, Operands in) { return columns_of(in[0]); }
int64_t rows(const Attrs&, Operands in) { return rows_of(in[0]); }
int64_t all(const Attrs&, Operands in) { return in[0].numel(); }
// A preference is judged by the sums over the rows of two texts.
int64_t texts(const Attrs& attrs, Operands) { return 2 * attrs.integer("rows"); }
// A row of an adapted weight has inputs elements, each a sum over the rank.
int64_t adapted_row(const Attrs&, Operands in) { return columns_of(in[1]) + rows_of(in[1]); }
int64_t second_columns(const Attrs&, Operands in) { return columns_of(in[1]); }

// Each run of columns that rms_norm normalizes is as long as the weight. dw is a sum over all runs.
int64_t norm_run(const Attrs&, Operands in) { return in[1].numel(); }
int64_t norm_run_dx(const Attrs&, Operands in) { return in[2].numel(); }
int64_t norm_runs(const Attrs& attrs, Operands in) {
  return in[0].numel() / attrs.integer("width");
}

// The lengths of the sums in attention: a score is a sum over `depth` columns, a result a sum over
// at most `seq` keys. `group` query heads share a key head.
struct Heads {
  int64_t depth, seq, group;
};

Heads heads_of(const Attrs& attrs, Operands qkv, int64_t reals) {
  int64_t heads = attrs.integer("heads"), groups = attrs.integer_or("kv_heads", 0);
  if (groups == 0) groups = heads;
  bool packed = reals == 1;
  return {columns_of(qkv[0]) / (packed ? heads + 2 * groups : heads),
          std::min(attrs.integer_or("seq", 0), rows_of(qkv[0])), heads / groups};
}

int64_t count_real(Operands in) {
  return std::count_if(in.begin(), in.end(),
                       [](const TensorView& x) { return x.dtype != DS_DTYPE_I32; });
}

int64_t attention(const Attrs& attrs, Operands in) {
  Heads h = heads_of(attrs, in, count_real(in));
  return std::max(h.depth, h.seq);
}
// `in` is dy, the operands of attention, y and lse. dk and dv are sums over the queries of all
// query heads that read a key head.
int64_t attention_dx(const Attrs& attrs, Operands in) {
  Heads h = heads_of(attrs, in.subspan(1), count_real(in) - 3);
  return h.depth + h.group * h.seq;
}
// `in` has the operands of attention, then the positions and the cache.
int64_t cached_attention(const Attrs& attrs, Operands in) {
  return std::max(heads_of(attrs, in, count_real(in) - 1).depth, in.back().dims[1]);
}

// In the fused head, each logit is a sum over the width, and the softmax a sum over words. The
// gradients of x and w are sums over words and over rows.
int64_t fused_head(const Attrs&, Operands in) {
  return std::max(columns_of(in[0]), rows_of(in[1]));
}
int64_t fused_head_dx(const Attrs&, Operands in) {
  return std::max(rows_of(in[1]), rows_of(in[2]));
}

constexpr bool kOneResult = true, kRoundsWeights = true, kRoundsLogits = true;

constexpr Accuracy kTable[] = {
    // Operations with one result.
    {"embedding", one, kOneResult},
    {"embedding_dw", rows, kOneResult},
    {"position", one, kOneResult},
    {"last_row", one, kOneResult},
    {"relu", one, kOneResult},
    {"relu_dx", one, kOneResult},
    {"mul", one, kOneResult},
    {"scale", one, kOneResult},
    {"add", one, kOneResult},
    {"dropout", one, kOneResult},
    {"layerdrop", one, kOneResult},
    {"layerdrop_dx", one, kOneResult},
    {"scale_rows", one, kOneResult},
    {"fill", one, kOneResult},
    {"count_targets", one, kOneResult},
    {"cast", one, kOneResult},
    // Instructions on gradients, parameters and optimizer states, and updates.
    {"zero", one, kOneResult},
    {"accumulate", one, kOneResult},
    {"init_param", one, kOneResult},
    {"granule_norms", one, kOneResult},
    {"quantize", one, kOneResult},
    {"dequantize", one, kOneResult},
    {"dequantize_sum", one, kOneResult},
    {"pack_rows", one, kOneResult},
    {"sum_rows", one, kOneResult},
    {"sum_norms", one, kOneResult},
    {"add_error", one, kOneResult},
    {"mean_signs", one, kOneResult},
    {"pack_signs", one, kOneResult},
    {"unpack_signs", one, kOneResult},
    {"adamw", one, kOneResult},
    {"adamw_codes", one, kOneResult},
    {"sgd", one, kOneResult},
    {"lion", one, kOneResult},
    {"adagrad", one, kOneResult},
    {"lamb_moments", one, kOneResult},
    {"lamb_ratios", one, kOneResult},
    {"lamb", one, kOneResult},
    {"muon_momentum", one, kOneResult},
    {"unit_matrix", one, kOneResult},
    {"blend", one, kOneResult},
    {"muon", one, kOneResult},
    {"momentum", one, kOneResult},
    {"frozen_adam", one, kOneResult},
    {"own_gradient", one, kOneResult},
    {"local_adam", one, kOneResult},
    {"synced_adam", one, kOneResult},
    {"scale_momentum", one, kOneResult},
    {"lamb_scales", one, kOneResult},
    {"frozen_lamb_moments", one, kOneResult},
    {"frozen_lamb_ratios", one, kOneResult},
    {"pack_top", one, kOneResult},
    {"sum_top", one, kOneResult},
    {"mean_gradients", one, kOneResult},
    {"losses", one, kOneResult},
    {"clip", one, kOneResult},
    // Functions of single elements.
    {"gelu", one},
    {"gelu_dx", one},
    {"silu", one},
    {"silu_dx", one},
    {"tanh", one},
    {"tanh_dx", one},
    {"relu2", one},
    {"relu2_dx", one},
    {"sigmoid", one},
    {"sigmoid_dx", one},
    {"quick_gelu", one},
    {"quick_gelu_dx", one},
    {"softplus", one},
    {"softplus_dx", one},
    {"laplace", one},
    {"laplace_dx", one},
    {"glu", one},
    {"glu_dx", one},
    {"softcap", one},
    {"softcap_dx", one},
    {"rope", one},
    {"cross_entropy_dx", one},
    {"mse_dx", one},
    {"dora", one},
    {"dora_dx", one},
    // Sums along a row.
    {"linear", columns},
    {"linear_dx", columns},
    {"layer_norm", columns},
    {"layer_norm_dx", columns},
    {"rms_norm", norm_run},
    {"rms_norm_dx", norm_run_dx},
    {"scale_rows_dw", columns},
    {"cross_entropy", columns},
    {"softmax", columns},
    {"causal_softmax", columns},
    {"softmax_dx", columns},
    {"top_gates", columns},
    {"top_gates_dx", columns},
    {"load_balance", columns},
    {"load_balance_dx", second_columns},
    {"mse", all},
    {"dora_norm", adapted_row},
    {"preference_loss", texts},
    {"preference_loss_dx", texts},
    // Sums over rows.
    {"linear_dw", rows},
    {"linear_db", rows},
    {"dora_dm", rows},
    {"layer_norm_dw", rows},
    {"rms_norm_dw", norm_runs},
    {"position_dw", rows},
    // Sums whose terms are computed from other sums.
    {"attention", attention, false, kRoundsWeights},
    {"attention_dx", attention_dx, false, kRoundsWeights},
    {"cached_attention", cached_attention},
    {"linear_cross_entropy", fused_head, false, false, kRoundsLogits},
    {"linear_cross_entropy_dx", fused_head_dx, false, kRoundsWeights},
};

}  // namespace

const Accuracy* find_accuracy(std::string_view op) {
  const auto* found = std::find_if(std::begin(kTable), std::end(kTable),
                                   [&](const Accuracy& row) { return row.op == op; });
  return found == std::end(kTable) ? nullptr : found;
}

std::span<const Accuracy> accuracy_table() { return kTable; }

ErrorUnit error_unit(const Accuracy& accuracy, const Attrs& attrs, int64_t terms, DType operands,
                     DType stored) {
  DType arithmetic = stored == DS_DTYPE_F64 ? DS_DTYPE_F64 : DS_DTYPE_F32;
  // Independent rounding errors add up like a random walk, so the error of n terms is sqrt(n)
  // roundings.
  ErrorUnit unit{std::sqrt(static_cast<double>(terms)) * unit_roundoff(arithmetic),
                 unit_roundoff(stored)};
  // f16 has few exponents: its subnormal numbers are 2^-24 apart.
  if (stored == DS_DTYPE_F16) unit.least = 0x1p-25;
  if (accuracy.rounds_weights) unit.sums += unit.stored / 4;
  if (accuracy.rounds_logits && keeps_logits(attrs)) unit.sums += 4 * unit_roundoff(operands);
  return unit;
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DS_DTYPE_BF16:
      return 0x1p-9;
    case DS_DTYPE_F16:
      return 0x1p-12;
    case DS_DTYPE_F32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

}  // namespace ds
