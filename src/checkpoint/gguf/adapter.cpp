// Writes and reads adapters of llama.cpp's form.
//
// A linear layer keeps its orientation: A has the layer's inputs as columns and B its outputs as
// rows, also where the folder stores the weight transposed. Where the file reorders the rows of a
// weight, it reorders those of B. The experts of a layer are stacked; all of them must have
// adapters of one rank. Facts: llama.cpp's convert_lora_to_gguf.py and llama-adapter.cpp.
#include "checkpoint/gguf/adapter.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/gguf/data.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/row_order.h"
#include "checkpoint/gguf/written_file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/state_access.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/graph/graph.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_types.h"
#include "io/gguf_values.h"
#include "nn/adapter_keys.h"
#include "nn/adapter_names.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"
#include "passes/adapters.h"

namespace ds {
namespace {

constexpr const char *kType = "general.type", *kAdapterType = "adapter.type",
                     *kAlpha = "adapter.lora.alpha",
                     *kInvocation = "adapter.alora.invocation_tokens";
constexpr std::string_view kEndA = ".lora_a", kEndB = ".lora_b", kWeight = ".weight";

// The base of an adapter: its family and its number of heads.
struct AdapterBase {
  explicit AdapterBase(const std::string& path)
      : config(read_model_config(path)), family(gguf_family(config)) {}

  // Returns the row of the file for each row of a B of the base, or nothing if they are the same.
  std::vector<int64_t> rows_of(GgufOrder order, int64_t rows) const {
    const HfConfig values(config);
    const int64_t heads = values.size(family.heads);
    return gguf_rows(
        order, rows,
        order == GgufOrder::key_pairs ? values.size_or("num_key_value_heads", heads) : heads);
  }

  Json config;
  const GgufFamily& family;
};

// A tensor of the base with the matrices of its layers: one layer, or the experts in their order.
struct AdaptedTensor {
  GgufOrder order = GgufOrder::same;
  std::vector<ParamId> a, b;
  std::vector<std::string> modules;
};

class AdapterWriter {
 public:
  AdapterWriter(AdapterSource& source, const std::string& base, const std::string& type)
      : source_(source), base_(base), type_(type) {
    for (ParamId p : source.names.ids()) take(p);
    ensure(!tensors_.empty(), "adapter '{}' has no layer", source.info.path);
    alpha_ = source.keys.alpha;
    // With one factor and one rank the factor of the file can be exact.
    const std::string& first = tensors_.begin()->second.modules.front();
    if (source.keys.use_rslora || !source.keys.alpha_pattern.empty())
      alpha_ = scale_of(source.keys, first) * static_cast<double>(rank_of(source.keys, first));
    if (alpha_ == 0) alpha_ = 1;
    for (const auto& [name, tensor] : tensors_) {
      plan(name, kEndA, tensor.a);
      plan(name, kEndB, tensor.b);
    }
    head_ = plan_gguf(metadata(), planned_);
  }

  void write(File& file) {
    const GgufTensor& last = planned_.back();
    file.resize((last.begin + last.bytes + 31) / 32 * 32);
    file.write(head_.data(), head_.size(), 0);
    size_t t = 0;
    for (const auto& [name, tensor] : tensors_) {
      write_tensor(file, planned_[t++], tensor, false);
      write_tensor(file, planned_[t++], tensor, true);
    }
    file.sync();
  }

 private:
  void take(ParamId p) {
    const std::string& name = source_.names[p];
    const std::string module = adapted_module(name);
    const bool is_a = name == adapter_param(module, AdapterPart::a);
    if (module.empty() || !(is_a || name == adapter_param(module, AdapterPart::b)))
      raise(DS_ERROR_UNSUPPORTED,
            "'{}': '{}' is neither an A nor a B of a layer, and a GGUF file of an adapter holds no "
            "other tensor (modules_to_save, bias, DoRA): merge the adapter by `libds merge`",
            source_.info.path, TensorName(name));
    const GgufPlace place = gguf_place(base_.family, module + std::string(kWeight));
    AdaptedTensor& tensor = tensors_[place.name];
    tensor.order = place.order;
    std::vector<ParamId>& parts = is_a ? tensor.a : tensor.b;
    if (place.expert >= 0 && place.expert != std::ssize(parts)) refuse_experts(place.name);
    parts.push_back(p);
    if (is_a) tensor.modules.push_back(module);
  }

  [[noreturn]] void refuse_experts(const std::string& name) const {
    raise(
        DS_ERROR_UNSUPPORTED,
        "'{}': tensor '{}' of a GGUF file holds all experts, which must have adapters of one rank",
        source_.info.path, TensorName(name));
  }

  void plan(const std::string& name, std::string_view end, const std::vector<ParamId>& params) {
    GgufTensor tensor{name + std::string(end), nullptr, source_.shapes[params.front()]};
    const GgufPlace place =
        gguf_place(base_.family, tensors_[name].modules.front() + std::string(kWeight));
    if (place.expert >= 0) {
      const int64_t experts = HfConfig(base_.config).size("num_local_experts");
      const bool alike =
          std::ranges::all_of(params, [&](ParamId p) { return source_.shapes[p] == tensor.shape; });
      if (std::ssize(params) != experts || !alike) refuse_experts(name);
      tensor.shape.insert(tensor.shape.begin(), experts);
    }
    tensor.type = &stored_gguf_type(tensor, type_);
    planned_.push_back(std::move(tensor));
  }

  GgufMetadata metadata() const {
    GgufMetadata out;
    out.emplace_back("general.architecture",
                     GgufValue::text(std::string(base_.family.architecture)));
    out.emplace_back(kType, GgufValue::text("adapter"));
    out.emplace_back(kAdapterType, GgufValue::text("lora"));
    out.emplace_back("general.name", GgufValue::text(shown_gguf_name(source_.info.path)));
    out.emplace_back(kAlpha, GgufValue::f32(alpha_));
    add_gguf_type(type_, out);
    return out;
  }

  void write_tensor(File& file, const GgufTensor& planned, const AdaptedTensor& tensor, bool is_b) {
    int64_t at = planned.begin;
    for (size_t i = 0; i < tensor.modules.size(); ++i) {
      const std::vector<float> values = is_b ? matrix_b(tensor, i) : matrix(tensor.a[i]);
      std::vector<std::byte> bytes(
          static_cast<size_t>(gguf_bytes(*planned.type, std::ssize(values))));
      check_gguf_range(planned, source_.info.path, 0, values);
      pack_gguf(*planned.type, values.data(), std::ssize(values), bytes.data());
      file.write(bytes.data(), bytes.size(), at);
      at += std::ssize(bytes);
    }
  }

  std::vector<float> matrix(ParamId p) {
    std::vector<float> out(static_cast<size_t>(source_.numel(p)));
    source_.read(0, p, 0, std::ssize(out), out.data());
    return out;
  }

  // Returns a matrix B with the order of rows that the file has, times what its factor is more than
  // that of the file.
  std::vector<float> matrix_b(const AdaptedTensor& tensor, size_t i) {
    const ParamId p = tensor.b[i];
    const std::vector<float> values = matrix(p);
    const int64_t rows = source_.shapes[p][0], rank = source_.shapes[p][1];
    const std::vector<int64_t> order = inverse_rows(base_.rows_of(tensor.order, rows));
    const double scale = scale_of(source_.keys, tensor.modules[i]);
    const double factor = scale * static_cast<double>(rank) / alpha_;
    const bool exact = scale == alpha_ / static_cast<double>(rank);
    std::vector<float> out(values.size());
    for (int64_t e = 0; e < std::ssize(out); ++e) {
      const int64_t row = e / rank, from = order.empty() ? row : order[static_cast<size_t>(row)];
      const float value = values[static_cast<size_t>(from * rank + e % rank)];
      out[static_cast<size_t>(e)] = exact ? value : static_cast<float>(factor * value);
    }
    return out;
  }

  AdapterSource& source_;
  AdapterBase base_;
  std::string type_;
  double alpha_ = 0;
  // By the name of the base's tensor.
  std::map<std::string, AdaptedTensor> tensors_;
  // The tensors of the file: A and B of each of tensors_.
  std::vector<GgufTensor> planned_;
  std::string head_;
};

class GgufAdapter : public AdapterSource {
 public:
  GgufAdapter(const std::string& path, const std::string& base)
      : header_(read_gguf_header(path)), data_(path), base_(base) {
    form = "gguf";
    info.path = path;
    kinds = {kMasterName};
    keys.type = "lora";
    check_kind();
    const Graph graph = build_hf_model(base, 1, 1).graph;
    find_layers(graph);
    check_used(base);
    const Graph with = add_adapters(graph, keys);
    for (const Parameter& param : with.params) {
      if (is_adapter_param(param.name)) add(param.name, with.type(param.value).shape);
    }
    name_targets(graph);
  }

  void read(size_t, ParamId param, int64_t begin, int64_t count, float* out) override {
    const Held& held = held_[param];
    if (held.rows.empty()) return data_.read(*held.tensor, held.first + begin, count, out);
    const int64_t width = shapes[param].back();
    for (int64_t at = begin, end = begin + count; at < end;) {
      const int64_t row = at / width, column = at % width;
      const int64_t n = std::min(end - at, width - column);
      data_.read(*held.tensor, held.first + held.rows[static_cast<size_t>(row)] * width + column, n,
                 out);
      out += n;
      at += n;
    }
  }

 private:
  // The tensor that holds a matrix, the index of its first element there, and the order of rows.
  struct Held {
    const GgufTensor* tensor = nullptr;
    int64_t first = 0;
    std::vector<int64_t> rows;
  };

  void check_text(const char* key, std::string_view wanted) const {
    const std::string got = gguf_text(header_, key).value_or("none");
    if (got != wanted)
      raise(DS_ERROR_UNSUPPORTED, "key '{}' must be {}, got '{}'", key, wanted, got);
  }

  void check_kind() const {
    check_text(kType, "adapter");
    check_text(kAdapterType, "lora");
    check_text("general.architecture", base_.family.architecture);
    if (header_.value(kInvocation) != nullptr)
      raise(DS_ERROR_UNSUPPORTED,
            "key '{}' is given: libds has no adapters that a text switches on", kInvocation);
  }

  // Finds the layers that have an adapter, and their ranks.
  void find_layers(const Graph& graph) {
    for (const Parameter& param : graph.params) {
      if (!param.name.ends_with(kWeight) || graph.type(param.value).shape.rank() != 2) continue;
      const GgufPlace place = gguf_place(base_.family, param.name);
      const GgufTensor* a = header_.find(place.name + std::string(kEndA));
      if (a == nullptr) continue;
      if (std::ssize(a->shape) != (place.expert < 0 ? 2 : 3))
        raise(DS_ERROR_CONFIG, "tensor '{}' has shape {}", TensorName(a->name),
              shown_shape(a->shape));
      used_.insert(place.name);
      const std::string module(module_of(param.name));
      const int64_t rank = a->shape[a->shape.size() - 2];
      if (rank < 1) raise(DS_ERROR_CORRUPT, "tensor '{}' has rank 0", TensorName(a->name));
      if (keys.target_modules.names.empty()) keys.r = rank;
      if (rank != keys.r) keys.rank_pattern.emplace_back(module, static_cast<double>(rank));
      keys.target_modules.names.push_back(module);
    }
    take_alpha();
  }

  // Without an alpha, llama.cpp does not scale the product.
  void take_alpha() {
    keys.alpha = gguf_number(header_, kAlpha).value_or(0);
    if (keys.alpha != 0) {
      checked_gguf_positive(kAlpha, keys.alpha);
      return;
    }
    keys.alpha = static_cast<double>(keys.r);
    keys.alpha_pattern = keys.rank_pattern;
  }

  void check_used(const std::string& base) const {
    for (const GgufTensor& tensor : header_.tensors) {
      const std::string_view name = tensor.name;
      const bool part = name.ends_with(kEndA) || name.ends_with(kEndB);
      if (part && used_.contains(std::string(name.substr(0, name.size() - kEndA.size())))) continue;
      raise(DS_ERROR_CONFIG, "tensor '{}' belongs to no adapter of a layer of '{}'",
            TensorName(tensor.name), base);
    }
    if (header_.tensors.empty()) raise(DS_ERROR_CORRUPT, "the file has no tensors");
  }

  void add(const std::string& name, const Shape& shape) {
    const std::string module = adapted_module(name);
    const bool is_a = name == adapter_param(module, AdapterPart::a);
    const GgufPlace place = gguf_place(base_.family, module + std::string(kWeight));
    const std::string stored = place.name + std::string(is_a ? kEndA : kEndB);
    Held held{header_.find(stored)};
    if (held.tensor == nullptr)
      raise(DS_ERROR_CORRUPT, "tensor '{}' is missing", TensorName(stored));
    std::vector<int64_t> own, wanted;
    for (const Dim& dim : shape.dims()) own.push_back(dim.extent);
    wanted = own;
    if (place.expert >= 0) {
      wanted.insert(wanted.begin(), HfConfig(base_.config).size("num_local_experts"));
      held.first = place.expert * elements_of(own);
    }
    if (held.tensor->shape != wanted)
      raise(DS_ERROR_CONFIG, "tensor '{}' has shape {}, but that of '{}' is {}", TensorName(stored),
            shown_shape(held.tensor->shape), name, shown_shape(wanted));
    if (!is_a) held.rows = base_.rows_of(place.order, own.front());
    names.push_back(name);
    shapes.push_back(own);
    held_.push_back(std::move(held));
  }

  // Shortens the names of layers to their ends, as people write them, if these choose the same.
  void name_targets(const Graph& graph) {
    std::vector<std::string>& all = keys.target_modules.names;
    const std::set<std::string> chosen(all.begin(), all.end());
    std::vector<std::string> ends;
    for (const std::string& module : all) {
      std::string end = module.substr(module.rfind('.') + 1);
      if (std::ranges::find(ends, end) == ends.end()) ends.push_back(std::move(end));
    }
    for (const Parameter& param : graph.params) {
      const std::string module(module_of(param.name));
      const bool same = chosen.contains(module) || std::ranges::none_of(ends, [&](const auto& end) {
                          return is_named(end, module);
                        });
      if (!same) return;
    }
    all = std::move(ends);
  }

  GgufHeader header_;
  GgufData data_;
  AdapterBase base_;
  // The names of the base's tensors that have an adapter.
  std::set<std::string> used_;
  IdVector<ParamId, Held> held_;
};

}  // namespace

bool is_gguf_adapter(const std::string& path) {
  return is_gguf(path) && naming_file(path, [&] {
           return gguf_text(read_gguf_header(path), kType).value_or("") == "adapter";
         });
}

std::unique_ptr<AdapterSource> open_gguf_adapter(const std::string& path, const std::string& base) {
  return naming_file(path, [&] { return std::make_unique<GgufAdapter>(path, base); });
}

void write_gguf_adapter(AdapterSource& source, const std::string& base, const std::string& type,
                        const std::string& path) {
  AdapterWriter writer(source, base, type);
  make_gguf_file(path, [&](File& file) { writer.write(file); });
}

}  // namespace ds
