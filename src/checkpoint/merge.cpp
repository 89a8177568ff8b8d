// A merge of an adapter into the model that it was trained on. The weights are computed piece by
// piece while the files are written, so a merge needs memory for one adapter only, and with DoRA
// for one weight, whose norms every piece needs. Products are summed in f64 and rounded once to
// f32; the file's type rounds the sum once more.
#include "checkpoint/merge.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
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
    if (subtract && keys_.use_dora)
      raise(DS_ERROR_UNSUPPORTED,
            "'{}' is an adapter of DoRA (use_dora): the merged weights do not have the norms that "
            "they were divided by, so it cannot be taken out; its base is '{}'",
            adapter, adapter_base(adapter));
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
    const bool adapted = a.exists() && names[param].ends_with(".weight");
    if (adapted) add_product(p, module, a, begin, count, out);
    if (adapted || adapter_->has(p)) check_values(p, begin, {out, static_cast<size_t>(count)});
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

  // Returns all elements of a parameter.
  std::vector<float> all(StoredWeights& weights, ParamId param) const {
    int64_t count = 1;
    for (int64_t extent : all_shapes_[param]) count *= extent;
    std::vector<float> out(static_cast<size_t>(count));
    weights.read(param, 0, count, out.data());
    return out;
  }

  // Throws if the type of the base's file cannot hold a merged value.
  void check_values(ParamId param, int64_t begin, std::span<const float> values) const {
    const DType dtype = base_->dtype(param);
    std::vector<std::byte> stored(values.size() * sizeof(float));
    std::vector<float> rounded(values.size());
    narrow(dtype, values.data(), std::ssize(values), stored.data());
    widen(dtype, stored.data(), std::ssize(values), rounded.data());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(rounded[i])) continue;
      raise(
          DS_ERROR_CONFIG,
          "adapter '{}': element {} of '{}' would be {} after the {}, which {} of the base cannot "
          "hold",
          keys_.folder, begin + static_cast<int64_t>(i), TensorName(with_.params[param].name),
          values[i], sign_ < 0 ? "unmerge" : "merge", dtype_name(dtype));
    }
  }

  // Reads the matrices of the adapter whose A is `a`, and computes the factors of DoRA.
  void read_adapter(ParamId weight, const std::string& module, ParamId a) {
    a_ = all(*adapter_, a);
    b_ = all(*adapter_, with_.find_param(adapter_param(module, AdapterPart::b)));
    cached_ = a;
    rank_ = static_cast<size_t>(rank_of(keys_, module));
    inputs_ = a_.size() / rank_;
    outputs_ = b_.size() / rank_;
    scale_ = sign_ * scale_of(keys_, module);
    if (!keys_.use_dora) return;
    const std::string m = adapter_param(module, AdapterPart::magnitude);
    const std::vector<float> w = all(*base_, weight), sizes = all(*adapter_, with_.find_param(m));
    std::vector<double> squares(outputs_, 0);
    for (size_t e = 0; e < w.size(); ++e) {
      const double x = w[e] + product_at(weight, e);
      squares[output_of(weight, e)] += x * x;
    }
    factors_.resize(outputs_);
    for (size_t o = 0; o < outputs_; ++o) factors_[o] = sizes[o] / std::sqrt(squares[o]);
  }

  size_t output_of(ParamId weight, size_t element) const {
    return transposed_[weight] ? element % outputs_ : element / inputs_;
  }
  // Returns an element of s B A, or of its transpose.
  double product_at(ParamId weight, size_t element) const {
    const size_t output = output_of(weight, element),
                 input = transposed_[weight] ? element / outputs_ : element % inputs_;
    double sum = 0;
    for (size_t k = 0; k < rank_; ++k)
      sum += static_cast<double>(b_[output * rank_ + k]) * a_[k * inputs_ + input];
    return scale_ * sum;
  }

  // Adds elements [begin, begin + count) of s B A, or of its transpose, to `out`.
  void add_product(ParamId weight, const std::string& module, ParamId a, int64_t begin,
                   int64_t count, float* out) {
    if (cached_ != a) read_adapter(weight, module, a);
    for (int64_t e = 0; e < count; ++e) {
      const auto element = static_cast<size_t>(begin + e);
      const double sum = out[e] + product_at(weight, element);
      out[e] =
          static_cast<float>(keys_.use_dora ? factors_[output_of(weight, element)] * sum : sum);
    }
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
  size_t rank_ = 1, inputs_ = 1, outputs_ = 1;
  double scale_ = 1;
  // With DoRA, the factor m / |W + s B A| of each output.
  std::vector<double> factors_;
};

}  // namespace

std::unique_ptr<StateSource> open_merged(const std::string& adapter, const std::string& base,
                                         bool subtract) {
  return std::make_unique<MergedSource>(adapter, base, subtract);
}

}  // namespace ds
