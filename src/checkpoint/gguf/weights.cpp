// Reads the parameters of a GGUF file in the order of a model folder. Ranges of elements are read
// when they are requested: a run of rows at a time, or a whole matrix if it is transposed.
#include "checkpoint/gguf/weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "checkpoint/gguf/data.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/gguf/row_order.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "io/gguf.h"
#include "io/gguf_values.h"
#include "nn/adapter_names.h"

namespace ds {
namespace {

// The tensors that a file may have beside those of parameters: factors of the rope.
constexpr std::array<std::string_view, 3> kFactorTensors{
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};

// The tensor that holds a parameter.
struct HeldBy {
  const GgufTensor* tensor = nullptr;
  GgufOrder order = GgufOrder::same;
  // The index of the parameter's first element in the tensor.
  int64_t first = 0;
  // The row of the tensor for each row of the parameter; empty if they are the same.
  std::vector<int64_t> rows;
};

class GgufWeights : public StoredWeights {
 public:
  GgufWeights(const IdVector<ParamId, std::string>& names,
              const IdVector<ParamId, std::vector<int64_t>>& shapes, const std::string& path)
      : path_(path),
        header_(read_gguf_header(path)),
        data_(path),
        config_(read_gguf_model(path).config),
        family_(&gguf_family(header_)),
        shapes_(shapes) {
    naming_file(path, [&] {
      for (ParamId p : names.ids())
        held_.push_back(is_adapter_param(names[p]) ? HeldBy() : hold(names[p], shapes[p]));
      check_used();
    });
  }

  bool has(ParamId param) const override { return held_[param].tensor != nullptr; }
  DType dtype(ParamId param) const override { return folder_dtype(*held_[param].tensor->type); }

  void read(ParamId param, int64_t begin, int64_t count, float* out) override {
    naming_file(path_, [&] { read_part(param, begin, count, out); });
  }

 private:
  void read_part(ParamId param, int64_t begin, int64_t count, float* out) {
    const HeldBy& held = held_[param];
    if (held.order == GgufOrder::transposed) return read_transposed(param, begin, count, out);
    if (held.rows.empty()) {
      data_.read(*held.tensor, held.first + begin, count, out);
    } else {
      read_rows(param, begin, count, out);
    }
    if (held.order != GgufOrder::plus_one) return;
    for (int64_t i = 0; i < count; ++i) out[i] -= 1;
  }

  HeldBy hold(const std::string& param, const std::vector<int64_t>& shape) {
    const GgufPlace place = gguf_place(*family_, param);
    HeldBy out{header_.find(place.name), place.order};
    if (out.tensor == nullptr)
      raise(DS_ERROR_CONFIG, "tensor '{}' of parameter '{}' is missing", TensorName(place.name),
            param);
    used_.insert(place.name);
    std::vector<int64_t> wanted = shape;
    if (place.order == GgufOrder::transposed) std::ranges::reverse(wanted);
    if (place.expert >= 0) {
      const int64_t experts = config_.at("num_local_experts").integer();
      if (place.expert >= experts)
        raise(DS_ERROR_CONFIG, "parameter '{}' is of expert {}, but the file has {} experts",
              TensorName(param), place.expert, experts);
      wanted.insert(wanted.begin(), experts);
      out.first = place.expert * elements_of(shape);
    }
    if (out.tensor->shape != wanted)
      raise(DS_ERROR_CONFIG, "tensor '{}' has shape {}, but that of '{}' is {}",
            TensorName(place.name), shown_shape(out.tensor->shape), param, shown_shape(wanted));
    const char* heads =
        place.order == GgufOrder::key_pairs ? "num_key_value_heads" : family_->heads.data();
    out.rows = gguf_rows(place.order, shape.front(), config_.at(heads).integer());
    return out;
  }

  // Throws for a tensor that is neither a parameter's nor one of factors. Leaving it out would
  // silently make another model.
  void check_used() const {
    for (const GgufTensor& tensor : header_.tensors) {
      if (used_.contains(tensor.name) ||
          std::ranges::find(kFactorTensors, tensor.name) != kFactorTensors.end())
        continue;
      raise(DS_ERROR_UNSUPPORTED, "tensor '{}' has no parameter in a {} model",
            TensorName(tensor.name), family_->model_type);
    }
  }

  // Reads a range of elements row by row.
  void read_rows(ParamId param, int64_t begin, int64_t count, float* out) {
    const HeldBy& held = held_[param];
    const int64_t width = elements_of(shapes_[param]) / shapes_[param].front();
    for (int64_t at = begin, end = begin + count; at < end;) {
      const int64_t row = at / width, column = at % width;
      const int64_t n = std::min(end - at, width - column);
      const int64_t from = held.rows[static_cast<size_t>(row)] * width + column;
      data_.read(*held.tensor, held.first + from, n, out);
      out += n;
      at += n;
    }
  }

  // Reads a range of a matrix that is transposed in the file. The matrix is kept until another one
  // is read.
  void read_transposed(ParamId param, int64_t begin, int64_t count, float* out) {
    if (!(whole_param_ == param)) {
      whole_ = data_.all(*held_[param].tensor);
      whole_param_ = param;
    }
    const int64_t rows = shapes_[param][0], columns = shapes_[param][1];
    for (int64_t i = begin; i < begin + count; ++i)
      *out++ = whole_[static_cast<size_t>(i % columns * rows + i / columns)];
  }

  std::string path_;
  GgufHeader header_;
  GgufData data_;
  Json config_;
  const GgufFamily* family_;
  IdVector<ParamId, std::vector<int64_t>> shapes_;
  IdVector<ParamId, HeldBy> held_;
  std::set<std::string> used_;
  ParamId whole_param_;
  std::vector<float> whole_;
};

}  // namespace

std::unique_ptr<StoredWeights> open_gguf_weights(
    const IdVector<ParamId, std::string>& names,
    const IdVector<ParamId, std::vector<int64_t>>& shapes, const std::string& path) {
  return std::make_unique<GgufWeights>(names, shapes, path);
}

}  // namespace ds
