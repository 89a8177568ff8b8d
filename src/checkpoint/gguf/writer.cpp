// Writes a GGUF file tensor by tensor, in blocks of rows. A tensor takes its rows from one
// parameter, or from the experts of a layer one after the other.
#include "checkpoint/gguf/writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/model_keys.h"
#include "checkpoint/gguf/rope_keys.h"
#include "checkpoint/gguf/row_order.h"
#include "checkpoint/gguf/written_file.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_types.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {
namespace {

// Elements that are converted at a time, unless a row has more.
constexpr int64_t kPackBlock = 1 << 16;
// The parameters whose rows a tensor has.
struct TensorParts {
  GgufOrder order = GgufOrder::same;
  std::vector<ParamId> params;
};

// Throws unless the source has every parameter of the model that config.json describes, in its
// shape. The source may also have a head that config.json ties.
void check_parameters(const StateSource& source, const Json& config) {
  std::map<std::string_view, ParamId> held;
  for (ParamId p : source.names.ids()) held[source.names[p]] = p;
  const HfModel model = hf_model(config, 1, 1);
  for (const Parameter& param : model.graph.params) {
    std::vector<int64_t> wanted;
    for (const Dim& dim : model.graph.type(param.value).shape.dims()) wanted.push_back(dim.extent);
    const auto found = held.find(param.name);
    if (found == held.end())
      raise(DS_ERROR_CONFIG, "parameter '{}' of config.json is missing from '{}'",
            TensorName(param.name), source.info.path);
    if (source.shapes[found->second] != wanted)
      raise(DS_ERROR_CONFIG,
            "parameter '{}' has {} elements in '{}', but another shape by config.json",
            TensorName(param.name), source.numel(found->second), source.info.path);
  }
}

class GgufWriter {
 public:
  GgufWriter(StateSource& source, const GgufContent& content)
      : source_(source),
        content_(content),
        family_(gguf_family(content.config)),
        keys_(gguf_model_keys(content.config)) {
    check_parameters(source_, content.config);
    for (ParamId p : source_.names.ids()) plan(p);
    for (const auto& [name, values] : keys_.factors)
      tensors_.push_back({name, &written_gguf_type("f32"), {std::ssize(values)}});
    head_ = plan_gguf(metadata(), tensors_);
  }

  void write(File& file) {
    const GgufTensor& last = tensors_.back();
    file.resize((last.begin + last.bytes + 31) / 32 * 32);
    file.write(head_.data(), head_.size(), 0);
    for (size_t t = 0; t < parts_.size(); ++t) {
      int64_t at = tensors_[t].begin;
      for (ParamId param : parts_[t].params) at = write_param(file, t, param, at);
    }
    for (size_t f = 0; f < keys_.factors.size(); ++f) {
      const std::vector<float>& values = keys_.factors[f].second;
      file.write(values.data(), values.size() * sizeof(float), tensors_[parts_.size() + f].begin);
    }
    file.sync();
  }

 private:
  // Adds a parameter to the plan.
  void plan(ParamId param) {
    const GgufPlace place = gguf_place(family_, source_.names[param]);
    GgufTensor tensor{place.name, nullptr, source_.shapes[param]};
    if (place.order == GgufOrder::transposed) std::ranges::reverse(tensor.shape);
    if (place.expert > 0) {
      add_expert(place, param);
      return;
    }
    if (place.expert == 0)
      tensor.shape.insert(tensor.shape.begin(),
                          HfConfig(content_.config).size("num_local_experts"));
    tensor.type = &stored_gguf_type(tensor, content_.type);
    index_[place.name] = tensors_.size();
    tensors_.push_back(std::move(tensor));
    parts_.push_back({place.order, {param}});
  }

  void add_expert(const GgufPlace& place, ParamId param) {
    const auto found = index_.find(place.name);
    ensure(found != index_.end() && std::ssize(parts_[found->second].params) == place.expert,
           "experts of '{}' are out of order", place.name);
    parts_[found->second].params.push_back(param);
  }

  GgufMetadata metadata() const {
    GgufMetadata out;
    out.emplace_back("general.architecture", GgufValue::text(std::string(family_.architecture)));
    out.emplace_back("general.type", GgufValue::text("model"));
    out.emplace_back("general.name", GgufValue::text(content_.name));
    out.insert(out.end(), keys_.metadata.begin(), keys_.metadata.end());
    const std::string vocab_size = std::string(family_.architecture) + ".vocab_size";
    if (content_.vocabulary.model == "none" && family_.architecture != "llama")
      out.emplace_back(vocab_size, GgufValue::u32(HfConfig(content_.config).size("vocab_size")));
    add_gguf_type(content_.type, out);
    add_vocabulary(content_.vocabulary, out);
    return out;
  }

  int64_t heads_of(GgufOrder order) const {
    const HfConfig config(content_.config);
    const int64_t heads = config.size(family_.heads);
    return order == GgufOrder::key_pairs ? config.size_or("num_key_value_heads", heads) : heads;
  }

  // Writes the rows of a parameter at byte `at` of the file. Returns the end of these bytes.
  int64_t write_param(File& file, size_t t, ParamId param, int64_t at) {
    const GgufType& type = *tensors_[t].type;
    const GgufOrder order = parts_[t].order;
    const int64_t width = tensors_[t].shape.back(), rows = source_.numel(param) / width;
    if (order == GgufOrder::transposed) load_transposed(param);
    // The rows of a vector are its elements.
    const bool vector = source_.shapes[param].size() == 1;
    order_ = inverse_rows(gguf_rows(order, vector ? width : rows, heads_of(order)));
    const int64_t step = std::max<int64_t>(1, kPackBlock / width);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t n = std::min(step, rows - row) * width;
      values_.resize(static_cast<size_t>(n));
      bytes_.resize(static_cast<size_t>(gguf_bytes(type, n)));
      read_elements(param, order, row * width, vector ? 1 : width);
      pack_gguf(type, values_.data(), n, bytes_.data());
      check_gguf_range(tensors_[t], source_.info.path, row * width, values_);
      file.write(bytes_.data(), bytes_.size(), at);
      at += std::ssize(bytes_);
    }
    return at;
  }

  // Fills values_ with the elements of a tensor from `begin` on. `width` is that of the rows that
  // order_ reorders.
  void read_elements(ParamId param, GgufOrder order, int64_t begin, int64_t width) {
    const int64_t count = std::ssize(values_);
    if (order == GgufOrder::transposed) {
      std::copy_n(whole_.begin() + begin, count, values_.begin());
    } else if (order_.empty()) {
      source_.read(0, param, begin, count, values_.data());
    } else {
      for (int64_t i = 0; i < count; i += width) {
        const int64_t row = order_[static_cast<size_t>((begin + i) / width)];
        source_.read(0, param, row * width, width, values_.data() + i);
      }
    }
    if (order != GgufOrder::plus_one) return;
    for (float& value : values_) value += 1;
  }

  // Reads a whole matrix and transposes it.
  void load_transposed(ParamId param) {
    const int64_t rows = source_.shapes[param][0], columns = source_.shapes[param][1];
    std::vector<float> matrix(static_cast<size_t>(rows * columns));
    source_.read(0, param, 0, rows * columns, matrix.data());
    whole_.resize(matrix.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        whole_[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
    }
  }

  StateSource& source_;
  const GgufContent& content_;
  const GgufFamily& family_;
  GgufModelKeys keys_;
  // The tensors of parameters, by the index that parts_ has, too, and then those of factors.
  std::vector<GgufTensor> tensors_;
  std::vector<TensorParts> parts_;
  std::map<std::string, size_t> index_;
  std::string head_;
  // For each row of the tensor the row of the parameter; empty if they are the same.
  std::vector<int64_t> order_;
  std::vector<float> values_, whole_;
  std::vector<std::byte> bytes_;
};

}  // namespace

void write_gguf(StateSource& source, const GgufContent& content, const std::string& path) {
  GgufWriter writer(source, content);
  make_gguf_file(path, [&](File& file) { writer.write(file); });
}

}  // namespace ds
