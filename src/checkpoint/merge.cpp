// A merge of an adapter into the model that it was trained on. The weights are computed piece by
// piece while the files are written, so a merge needs memory for one adapter only. Products are
// summed in f64 and rounded once to f32; the file's type rounds the sum once more.
#include "checkpoint/merge.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/open_weights.h"
#include "checkpoint/state_access.h"
#include "checkpoint/stored_weights.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "core/graph/ops.h"
#include "nn/adapter_keys.h"
#include "nn/adapter_names.h"
#include "nn/models/hf.h"
#include "passes/adapters.h"

namespace ds {
namespace {

class MergedSource : public StateSource {
 public:
  MergedSource(const std::string& adapter, const std::string& base, bool subtract)
      : keys_(read_adapter_config(adapter)), sign_(subtract ? -1 : 1) {
    keys_.folder = adapter;
    const HfModel model = build_hf_model(base, 1, 1);
    with_ = add_adapters(model.graph, keys_);
    const ParamTable own(model.graph), all(with_);
    base_ = open_weights(own.names, own.shapes, base);
    adapter_ = open_weights(all.names, all.shapes, adapter);
    all_shapes_ = all.shapes;
    form = subtract ? "unmerged" : "merged";
    info.path = adapter;
    kinds = {kMasterName};
    for (ParamId p : own.names.ids()) {
      if (!base_->has(p)) continue;
      source_.push_back(p);
      names.push_back(own.names[p]);
      shapes.push_back(own.shapes[p]);
      if (subtract && adapter_->has(p))
        raise(DS_ERROR_CONFIG,
              "'{}' has parameter '{}' of the model itself (modules_to_save or bias), so the "
              "values that it replaced are unknown",
              adapter, TensorName(own.names[p]));
    }
    find_transposed();
  }

  void read(size_t, ParamId param, int64_t begin, int64_t count, float* out) override {
    const ParamId p = source_[param];
    (adapter_->has(p) ? *adapter_ : *base_).read(p, begin, count, out);
    const std::string module(module_of(names[param]));
    const ParamId a = with_.find_param(adapter_param(module, AdapterPart::a));
    if (a.exists() && names[param].ends_with(".weight"))
      add_product(p, module, a, begin, count, out);
  }

 private:
  void find_transposed() {
    transposed_.assign(with_.params.size(), 0);
    for (const Node& node : with_.nodes) {
      if (!op(node.op).linear || node.attrs.integer_or("transposed", 0) == 0) continue;
      for (ParamId p : with_.params.ids())
        if (with_.params[p].value == node.in[1]) transposed_[p] = 1;
    }
  }

  // Returns all elements of a matrix of the adapter.
  std::vector<float> whole(ParamId param) {
    int64_t count = 1;
    for (int64_t extent : all_shapes_[param]) count *= extent;
    std::vector<float> out(static_cast<size_t>(count));
    adapter_->read(param, 0, count, out.data());
    return out;
  }

  // Throws unless the elements from `begin` on are finite numbers of the type of the base.
  void check_sums(ParamId weight, int64_t begin, std::span<const float> sums) const {
    const DType dtype = base_->dtype(weight);
    std::vector<std::byte> stored(sums.size() * sizeof(float));
    std::vector<float> rounded(sums.size());
    narrow(dtype, sums.data(), std::ssize(sums), stored.data());
    widen(dtype, stored.data(), std::ssize(sums), rounded.data());
    for (size_t i = 0; i < sums.size(); ++i) {
      if (std::isfinite(rounded[i])) continue;
      raise(DS_ERROR_CONFIG, "'{}': element {} of '{}' becomes {}, which is no finite {} number",
            info.path, begin + static_cast<int64_t>(i), TensorName(with_.params[weight].name),
            sums[i], dtype_name(dtype));
    }
  }

  // Adds elements [begin, begin + count) of s B A, or of its transpose, to `out`.
  void add_product(ParamId weight, const std::string& module, ParamId a, int64_t begin,
                   int64_t count, float* out) {
    if (cached_ != a) {
      a_ = whole(a);
      b_ = whole(with_.find_param(adapter_param(module, AdapterPart::b)));
      cached_ = a;
    }
    const auto rank = static_cast<size_t>(rank_of(keys_, module));
    const size_t inputs = a_.size() / rank, outputs = b_.size() / rank;
    const double scale = sign_ * scale_of(keys_, module);
    const size_t columns = transposed_[weight] ? outputs : inputs;
    for (int64_t e = 0; e < count; ++e) {
      const size_t row = static_cast<size_t>(begin + e) / columns,
                   column = static_cast<size_t>(begin + e) % columns;
      const size_t output = transposed_[weight] ? column : row,
                   input = transposed_[weight] ? row : column;
      double sum = 0;
      for (size_t k = 0; k < rank; ++k)
        sum += static_cast<double>(b_[output * rank + k]) * a_[k * inputs + input];
      out[e] = static_cast<float>(out[e] + scale * sum);
    }
    check_sums(weight, begin, {out, static_cast<size_t>(count)});
  }

  AdapterKeys keys_;
  const double sign_;
  // The graph of the base with the adapters.
  Graph with_;
  std::unique_ptr<StoredWeights> base_, adapter_;
  IdVector<ParamId, std::vector<int64_t>> all_shapes_;
  // The number in the graph of each parameter of this source.
  IdVector<ParamId, ParamId> source_;
  IdVector<ParamId, char> transposed_;
  // The matrices of the adapter whose A is parameter `cached_`.
  ParamId cached_;
  std::vector<float> a_, b_;
};

}  // namespace

std::unique_ptr<StateSource> open_merged(const std::string& adapter, const std::string& base,
                                         bool subtract) {
  return std::make_unique<MergedSource>(adapter, base, subtract);
}

}  // namespace ds
