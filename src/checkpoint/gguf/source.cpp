// Reads the parameters of a GGUF file in the order of a model folder. Ranges of elements are read
// when they are requested: a run of rows at a time, or a whole matrix if it is transposed.
#include "checkpoint/gguf/source.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/model_keys.h"
#include "checkpoint/gguf/row_order.h"
#include "core/base/error.h"
#include "core/base/shape.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_types.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// Elements that are expanded at a time; a multiple of every block.
constexpr int64_t kExpandBlock = 1 << 14;

// The tensors that a file may have beside those of parameters: factors of the rope.
constexpr std::array<std::string_view, 3> kFactorTensors{
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};

// A reader of ranges of elements of GGUF tensors.
class GgufData {
 public:
  explicit GgufData(const std::string& path) : file_(path, File::Mode::read) {}

  // Reads elements [begin, begin + count) of a tensor, which need not be whole blocks.
  void read(const GgufTensor& tensor, int64_t begin, int64_t count, float* out) {
    const GgufType& type = *tensor.type;
    for (int64_t at = begin, end = begin + count; at < end;) {
      const int64_t first = at / type.block * type.block;
      const int64_t last =
          std::min((end + type.block - 1) / type.block * type.block, first + kExpandBlock);
      const int64_t bytes = gguf_bytes(type, last - first);
      bytes_.resize(static_cast<size_t>(bytes));
      values_.resize(static_cast<size_t>(last - first));
      file_.read(bytes_.data(), bytes_.size(), tensor.begin + gguf_bytes(type, first));
      expand_gguf(type, bytes_.data(), last - first, values_.data());
      const int64_t stop = std::min(end, last);
      out = std::copy(values_.data() + (at - first), values_.data() + (stop - first), out);
      at = stop;
    }
  }

 private:
  File file_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t out = 1;
  for (int64_t extent : shape) out *= extent;
  return out;
}

std::string shown_shape(const std::vector<int64_t>& extents) {
  return Shape(std::vector<Dim>(extents.begin(), extents.end())).text();
}

// The tensor that holds a parameter.
struct HeldBy {
  const GgufTensor* tensor = nullptr;
  GgufOrder order = GgufOrder::same;
  // The index of the parameter's first element in the tensor.
  int64_t first = 0;
  // The row of the tensor for each row of the parameter; empty if they are the same.
  std::vector<int64_t> rows;
};

class OpenGguf : public GgufSource {
 public:
  explicit OpenGguf(const std::string& path)
      : header_(read_gguf_header(path)), data_(path), family_(&gguf_family(header_)) {
    form = "gguf";
    info.path = path;
    kinds = {"master"};
    config = gguf_config(header_, [&](const std::string& name) { return read_factors(name); });
    vocabulary = read_vocabulary(header_);
    name_tokens();
    dtype = lossless_type();
    const HfModel model = hf_model(config, 1, 1);
    for (const Parameter& param : model.graph.params) {
      names.push_back(param.name);
      shapes.emplace_back();
      for (const Dim& dim : model.graph.type(param.value).shape.dims())
        shapes.back().push_back(dim.extent);
      held_.push_back(hold(param.name, shapes.back()));
    }
    check_used();
  }

  void read(size_t, ParamId param, int64_t begin, int64_t count, float* out) override {
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

 private:
  std::vector<float> read_factors(const std::string& name) {
    const GgufTensor* tensor = header_.find(name);
    if (tensor == nullptr) raise(DS_ERROR_CORRUPT, "tensor '{}' is missing", TensorName(name));
    std::vector<float> out(static_cast<size_t>(elements_of(tensor->shape)));
    data_.read(*tensor, 0, std::ssize(out), out.data());
    return out;
  }

  // config.json names the tokens that begin and end a text.
  void name_tokens() {
    for (const char* name : {"bos", "eos", "pad"}) {
      const auto id = vocabulary.find_special(name);
      config.set(std::string(name) + "_token_id", id ? Json(*id) : Json());
    }
  }

  DType lossless_type() const {
    std::set<std::string_view> types;
    for (const GgufTensor& tensor : header_.tensors) {
      if (tensor.shape.size() > 1) types.insert(tensor.type->name);
    }
    if (types.size() > 1) types.erase("F32");
    if (types.size() != 1) return DS_DTYPE_BF16;
    return *types.begin() == "F32"   ? DS_DTYPE_F32
           : *types.begin() == "F16" ? DS_DTYPE_F16
                                     : DS_DTYPE_BF16;
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
      wanted.insert(wanted.begin(), config.at("num_local_experts").integer());
      out.first = place.expert * elements_of(shape);
    }
    if (out.tensor->shape != wanted)
      raise(DS_ERROR_CONFIG, "tensor '{}' has shape {}, but that of '{}' is {}",
            TensorName(place.name), shown_shape(out.tensor->shape), param, shown_shape(wanted));
    const char* heads =
        place.order == GgufOrder::key_pairs ? "num_key_value_heads" : family_->heads.data();
    out.rows = gguf_rows(place.order, shape.front(), config.at(heads).integer());
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
    const int64_t width = numel(param) / shapes[param].front();
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
      whole_.resize(static_cast<size_t>(numel(param)));
      data_.read(*held_[param].tensor, 0, numel(param), whole_.data());
      whole_param_ = param;
    }
    const int64_t rows = shapes[param][0], columns = shapes[param][1];
    for (int64_t i = begin; i < begin + count; ++i)
      *out++ = whole_[static_cast<size_t>(i % columns * rows + i / columns)];
  }

  GgufHeader header_;
  GgufData data_;
  const GgufFamily* family_;
  IdVector<ParamId, HeldBy> held_;
  std::set<std::string> used_;
  ParamId whole_param_;
  std::vector<float> whole_;
};

}  // namespace

std::unique_ptr<GgufSource> open_gguf(const std::string& path) {
  try {
    return std::make_unique<OpenGguf>(path);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(path)) throw;
    throw Error(error.status(), one_line(path + ": " + error.what()), error.details());
  }
}

}  // namespace ds
