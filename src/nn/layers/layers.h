#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

struct LinearOptions {
  double stddev = 0.02;  // W ~ normal(stddev), b 0
  bool bias = true;
  bool transposed = false;  // W is stored [inputs, outputs]
};

// Rotation of queries and keys by position; docs/reference/ops.md, `rope`, has the formulas.
struct RopeOptions {
  double theta = 10000;
  int64_t dims = 0;  // of each head that turn; 0: all
  std::string scaling = "none";
  double factor = 1, low = 1, high = 1;
  int64_t original = 0;  // positions before scaling
  double power = 0;      // of dynamic
  std::vector<double> factors,
      long_factors;      // of longrope, by pair; long: of texts beyond `original`
  double magnitude = 0;  // of the rotation; 0: as the scaling has it
  bool truncate = true;  // of yarn: whole pairs begin and end the change
};

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t seq = 1;
  bool causal = true;
  int64_t window = 0;  // keys that a row sees, itself included; 0: all
  double scale = 0;    // of scores; 0: 1 / sqrt(head width)
  double softcap = 0;  // 0: none
  bool per_head = false;
  ValueId mask;        // i32[n], 0: a row that no row sees
  double dropout = 0;  // of weights
};

// Inputs i32[n] of a graph whose rows are documents one behind the other: the first row of each
// row's document
// (`begin` of attention), and the place of each row in it (rows of a table of positions, from its
// first).
struct Documents {
  ValueId begin, positions;  // none: rows are sequences
};

// Builds layers into a graph. Every layer takes and gives [n, C] values of the element type of
// `dtype`; its parameters are NAME.weight and NAME.bias. The graph outlives the builder.
class LayerBuilder {
 public:
  explicit LayerBuilder(Graph& graph, Documents documents = {}, DType dtype = DS_DTYPE_F32)
      : graph_(graph), documents_(documents), dtype_(dtype) {}

  // ids i32[n] -> [n, width]; weight [rows, width] ~ normal(stddev). The weight's name is
  // NAME.weight. Row `padding` (-1: none) gets no gradient from here.
  ValueId embedding(std::string_view name, ValueId ids, int64_t rows, int64_t width, double stddev,
                    int64_t padding = -1);
  // Adds row r mod seq of weight [rows, width] ~ normal(stddev) to row r of x; with documents, the
  // row of its place.
  ValueId position(std::string_view name, ValueId x, int64_t rows, int64_t seq, double stddev);
  // x W^T + b; W [outputs, C].
  ValueId linear(std::string_view name, ValueId x, int64_t outputs, const LinearOptions& options);
  // x W^T with an existing parameter (a tied head), and + b with a new one unless `bias` is empty.
  ValueId tied_linear(std::string_view name, ValueId x, std::string_view param,
                      std::string_view bias = "");
  // weight 1, bias 0; not `affine`: without either.
  ValueId layer_norm(std::string_view name, ValueId x, double eps = 1e-5, bool affine = true);
  // Every `width` columns by themselves (0: whole rows). weight [width] 1; `offset`: 0, and 1 is
  // added to it.
  ValueId rms_norm(std::string_view name, ValueId x, double eps, int64_t width = 0,
                   bool offset = false);
  // "gelu_tanh", "gelu_erf", "gelu_10", "relu", "relu2", "silu", "tanh", "laplace", "sigmoid",
  // "quick_gelu", "softplus"; also of a gated pair, act(gate) * up, or of both in one [gate, up].
  ValueId activation(std::string_view name, ValueId x, const std::string& act);
  ValueId gated(std::string_view name, const std::vector<ValueId>& gate_and_up,
                const std::string& act);
  // Turns the first `rotated` of every `period` heads (0: all).
  ValueId rope(std::string_view name, ValueId x, int64_t heads, int64_t seq,
               const RopeOptions& rope, int64_t period = 0, int64_t rotated = 0);
  // qkv, or q, k and v; within documents where the graph has them, which excludes a mask. Each call
  // with dropout gets a random stream of its own.
  ValueId attention(std::string_view name, std::vector<ValueId> operands,
                    const AttentionOptions& options);
  ValueId add(std::string_view name, ValueId a, ValueId b);
  // x itself when p is 0. Each call gets a random stream of its own.
  ValueId dropout(std::string_view name, ValueId x, double p);
  // y, the result of a layer whose input is x, or x where the layer is left out, with probability
  // p.
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
