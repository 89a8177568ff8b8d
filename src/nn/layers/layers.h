#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace ds {

// Builds layers into a graph. Every layer takes and gives [n, C] values of the element type of `dtype`; its
// parameters are NAME.weight and NAME.bias. The graph outlives the builder.
class LayerBuilder {
 public:
  explicit LayerBuilder(Graph& graph, DType dtype = DS_DTYPE_F32) : graph_(graph), dtype_(dtype) {}

  // ids i32[n] -> [n, width]; weight [rows, width] ~ normal(stddev). The weight's name is NAME.weight.
  ValueId embedding(std::string_view name, ValueId ids, int64_t rows, int64_t width, double stddev);
  // Adds row r mod seq of weight [rows, width] ~ normal(stddev) to row r of x.
  ValueId position(std::string_view name, ValueId x, int64_t rows, int64_t seq, double stddev);
  // x W^T + b; W [outputs, C] ~ normal(stddev), b 0.
  ValueId linear(std::string_view name, ValueId x, int64_t outputs, double stddev);
  // x W^T with an existing parameter (a tied head).
  ValueId tied_linear(std::string_view name, ValueId x, std::string_view param);
  ValueId layer_norm(std::string_view name, ValueId x);  // eps 1e-5; weight 1, bias 0
  // x itself when p is 0. Each call gets a random stream of its own.
  ValueId dropout(std::string_view name, ValueId x, double p);

 private:
  int64_t width(ValueId x) const;
  ValueId param(std::string_view name, std::string_view part, Shape shape, Init init);

  Graph& graph_;
  DType dtype_;
  int64_t dropouts_ = 0;
};

}  // namespace ds
