#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// Options of a linear layer y = x W^T + b.
struct LinearOptions {
  // Initial values: W ~ normal(stddev), b = 0.
  double stddev = 0.02;
  bool bias = true;
  // Whether W is stored as [inputs, outputs].
  bool transposed = false;
};

// Rotary position embedding of queries and keys (Su et al., arXiv:2104.09864). The formulas are in
// docs/reference/ops.md, `rope`.
struct RopeOptions {
  double theta = 10000;
  // Number of columns of each head that are rotated; 0 means all.
  int64_t dims = 0;
  std::string scaling = "none";
  // The factor of the scaling, and the bounds of the ramp of "llama3" and "yarn".
  double factor = 1, low = 1, high = 1;
  // Number of positions in training, before scaling.
  int64_t original = 0;
  // Exponent for the scaling "dynamic".
  double power = 0;
  // Factors for the scaling "longrope", one for each pair of columns. The long ones apply to texts
  // of more than `original` tokens.
  std::vector<double> factors, long_factors;
  // Factor by which rotated values are multiplied; 0 means the default of the scaling.
  double magnitude = 0;
  // Whether the ramp of "yarn" begins and ends at an integer pair index.
  bool truncate = true;
};

// Options of an attention layer.
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t seq = 1;
  bool causal = true;
  // Largest number of keys that a row attends to, including its own; 0 means no limit.
  int64_t window = 0;
  // Factor of the scores; 0 means 1 / sqrt(head width).
  double scale = 0;
  // Soft cap of the scores; 0 means no cap.
  double softcap = 0;
  // Whether q, k and v are interleaved by head in one operand.
  bool per_head = false;
  // An input i32[n] that is 0 for rows to which no row attends.
  ValueId mask;
  // Probability with which an attention weight is dropped.
  double dropout = 0;
};

// Inputs i32[n] of a graph whose rows are documents, one after another. For each row, `begin` is
// the index of the first row of its document (an input of attention), and `positions` is its index
// within the document (a row of the position table).
struct Documents {
  // Neither exists if the rows are sequences.
  ValueId begin, positions;
};

// A builder that adds layers to a graph. A layer maps [n, C] values, or ids in embedding(), to [n,
// C'] values of the element type `dtype`. Its new parameters are NAME.weight and NAME.bias; only
// tied_linear() lets the caller name its bias. The graph must outlive the builder.
class LayerBuilder {
 public:
  explicit LayerBuilder(Graph& graph, Documents documents = {}, DType dtype = DS_DTYPE_F32)
      : graph_(graph), documents_(documents), dtype_(dtype) {}

  // Looks up ids i32[n] in a weight [rows, width] ~ normal(stddev) and returns [n, width]. Row
  // `padding` gets no gradient from this lookup; -1 means that there is no such row.
  ValueId embedding(std::string_view name, ValueId ids, int64_t rows, int64_t width, double stddev,
                    int64_t padding = -1);
  // Adds row r mod seq of a weight [rows, width] ~ normal(stddev) to row r of x or, with documents,
  // the row of the position within the document.
  ValueId position(std::string_view name, ValueId x, int64_t rows, int64_t seq, double stddev);
  // Returns x W^T + b, where W is [outputs, C].
  ValueId linear(std::string_view name, ValueId x, int64_t outputs, const LinearOptions& options);
  // Returns x W^T for an existing parameter W (a tied head), plus a new bias with the name `bias`
  // unless that is "".
  ValueId tied_linear(std::string_view name, ValueId x, std::string_view param,
                      std::string_view bias = "");
  // Normalizes each row. The weight starts at 1 and the bias at 0; if `affine` is false, there is
  // neither.
  ValueId layer_norm(std::string_view name, ValueId x, double eps = 1e-5, bool affine = true);
  // Normalizes each group of `width` columns separately; 0 means entire rows. The weight [width]
  // starts at 1 and is the factor of the result. With `offset` it starts at 0, and the factor is 1
  // + weight.
  ValueId rms_norm(std::string_view name, ValueId x, double eps, int64_t width = 0,
                   bool offset = false);
  // Applies an activation: "gelu_tanh", "gelu_erf", "gelu_10", "relu", "relu2", "silu", "tanh",
  // "laplace", "sigmoid", "quick_gelu" or "softplus". gated() returns act(gate) * up, for two
  // values or for one value with the columns [gate, up].
  ValueId activation(std::string_view name, ValueId x, const std::string& act);
  ValueId gated(std::string_view name, const std::vector<ValueId>& gate_and_up,
                const std::string& act);
  // Rotates the first `rotated` of every `period` heads; 0 means all heads.
  ValueId rope(std::string_view name, ValueId x, int64_t heads, int64_t seq,
               const RopeOptions& rope, int64_t period = 0, int64_t rotated = 0);
  // Returns attention over one value with the columns q, k, v, or over three values. Rows attend
  // only within their document if the graph has documents; attention must then be causal and have
  // no mask. Each call with dropout has a separate random stream.
  ValueId attention(std::string_view name, std::vector<ValueId> operands,
                    const AttentionOptions& options);
  ValueId add(std::string_view name, ValueId a, ValueId b);
  // Drops each element of x with probability p; returns x itself if p is 0. Each call has a
  // separate random stream.
  ValueId dropout(std::string_view name, ValueId x, double p);
  // Returns y, the result of a layer with input x, or with probability p returns x, so that the
  // layer is skipped (Fan et al., arXiv:1909.11556).
  ValueId layerdrop(std::string_view name, ValueId x, ValueId y, double p);

 private:
  int64_t width(ValueId x) const;
  ValueId param(std::string_view name, std::string_view part, Shape shape, Init init);

  Graph& graph_;
  Documents documents_;
  DType dtype_;
  int64_t dropouts_ = 0;
};

}  // namespace ds
