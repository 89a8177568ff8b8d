#include "support/interpret.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/base/error.h"
#include "core/base/random.h"

namespace ds::test {
namespace {

std::vector<int64_t> extents(const Shape& shape, int64_t n) {
  std::vector<int64_t> dims;
  for (const Dim& dim : shape.dims()) dims.push_back(dim.symbolic ? n : dim.extent);
  return dims;
}

template <typename F>
auto with_elements(const TensorView& view, F f) {
  switch (view.dtype) {
    case DS_DTYPE_F32:
      return f(view.as<float>());
    case DS_DTYPE_BF16:
      return f(view.as<bf16>());
    case DS_DTYPE_F16:
      return f(view.as<f16>());
    case DS_DTYPE_F64:
      return f(view.as<double>());
    case DS_DTYPE_I32:
      return f(view.as<int32_t>());
    default:
      raise(DS_ERROR_UNSUPPORTED, "test tensors are f32, bf16, f16, f64 or i32, got {}",
            dtype_name(view.dtype));
  }
}

}  // namespace

Tensor::Tensor(DType dtype, std::vector<int64_t> dims) : dtype_(dtype), dims_(std::move(dims)) {
  lines_.resize(static_cast<size_t>(numel() * size_of(dtype_)) / sizeof(Line) + 1);
}

Tensor::Tensor(const TensorType& type, int64_t n) : Tensor(type.dtype, extents(type.shape, n)) {}

int64_t Tensor::numel() const {
  return std::accumulate(dims_.begin(), dims_.end(), int64_t{1}, std::multiplies<>());
}

std::span<std::byte> Tensor::bytes() {
  return {lines_.data()->bytes, static_cast<size_t>(numel() * size_of(dtype_))};
}

std::span<const std::byte> Tensor::bytes() const {
  return {lines_.data()->bytes, static_cast<size_t>(numel() * size_of(dtype_))};
}

double Tensor::at(int64_t e) const {
  return with_elements(view(), [e](auto* data) { return static_cast<double>(data[e]); });
}

void Tensor::set(int64_t e, double x) {
  with_elements(view(), [e, x](auto* data) {
    using T = std::remove_reference_t<decltype(*data)>;
    if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
      data[e] = T(static_cast<float>(x));
    } else {
      data[e] = static_cast<T>(x);
    }
  });
}

void Tensor::poison() { std::memset(bytes().data(), 0xff, bytes().size()); }

TensorView Tensor::view() const {
  TensorView view{lines_.data(), dtype_, static_cast<int>(dims_.size())};
  std::copy(dims_.begin(), dims_.end(), view.dims);
  return view;
}

Tensor Tensor::as(DType dtype) const {
  if (dtype_ == DS_DTYPE_I32 || dtype == dtype_) return *this;
  Tensor out(dtype, dims_);
  for (int64_t e = 0; e < numel(); ++e) out.set(e, at(e));
  return out;
}

bool Tensor::operator==(const Tensor& other) const {
  return dtype_ == other.dtype_ && dims_ == other.dims_ &&
         std::memcmp(bytes().data(), other.bytes().data(), bytes().size()) == 0;
}

Tensor random_tensor(DType dtype, std::vector<int64_t> dims, uint64_t seed) {
  Tensor out(dtype, std::move(dims));
  RandomStream stream{seed, 0, 0, 0};
  for (int64_t e = 0; e < out.numel(); ++e) {
    uint32_t word = stream.block(static_cast<uint64_t>(e / 4))[static_cast<size_t>(e % 4)];
    out.set(e, static_cast<double>(bf16(2 * uniform01(word) - 1)));
  }
  return out;
}

Tensor random_ids(int64_t count, int64_t end, uint64_t seed) {
  Tensor out(DS_DTYPE_I32, {count});
  RandomStream stream{seed, 0, 0, 1};
  for (int64_t e = 0; e < count; ++e) {
    out.set(e, static_cast<double>(stream.block(static_cast<uint64_t>(e))[0] %
                                   static_cast<uint64_t>(end)));
  }
  return out;
}

Tensor rows_of(const Tensor& all, int64_t first, int64_t count) {
  const int64_t columns = all.dims()[1];
  Tensor part(all.dtype(), {count, columns});
  for (int64_t e = 0; e < part.numel(); ++e) part.set(e, all.at(first * columns + e));
  return part;
}

Tensor columns_of(const Tensor& all, int64_t first, int64_t count) {
  const int64_t rows = all.dims()[0], columns = all.dims()[1];
  Tensor part(all.dtype(), {rows, count});
  for (int64_t e = 0; e < part.numel(); ++e)
    part.set(e, all.at(e / count * columns + first + e % count));
  return part;
}

void launch(const KernelImpl& impl, const Attrs& attrs, std::span<const TensorView> in,
            std::span<const TensorView> out, ThreadTeam& team, const StepScalars& scalars,
            int64_t leaf) {
  impl.run(KernelContext{in, out, attrs, scalars, leaf, team});
}

const KernelImpl& implementation(const KernelRegistry& registry, std::string_view op,
                                 std::string_view family) {
  for (const KernelImpl& impl : registry.all()) {
    if (impl.op == op && impl.name == family) return impl;
  }
  raise(DS_ERROR_NOT_FOUND, "no implementation '{}' of '{}'", family, op);
}

Interpreter::Interpreter(const Graph& graph, const KernelRegistry& registry, ThreadTeam& team,
                         int64_t n)
    : graph_(graph), registry_(registry), team_(team) {
  require(n >= 1 && n <= graph.bound, "n must be from 1 to the bound {}, got {}", graph.bound, n);
  for (const Value& value : graph.values) values_.emplace_back(value.type, n);
}

void Interpreter::set(ValueId value, const Tensor& tensor) {
  require(at(value).dims() == tensor.dims(), "value %{} has other extents than the tensor",
          graph_.values[value].name);
  at(value) = tensor.as(at(value).dtype());
}

void Interpreter::run(NodeId end) {
  for (NodeId i : IdRange(NodeId(0), end.exists() ? end : graph_.nodes.past())) {
    const Node& node = graph_.nodes[i];
    std::vector<TensorView> in, out;
    std::vector<DType> in_types, out_types;
    for (ValueId value : node.in) {
      in.push_back(at(value).view());
      in_types.push_back(at(value).dtype());
    }
    for (ValueId value : node.out) {
      at(value).poison();
      out.push_back(at(value).view());
      out_types.push_back(at(value).dtype());
    }
    const KernelImpl& impl = registry_.find({node.op, in_types, out_types, node.attrs});
    launch(impl, node.attrs, in, out, team_, scalars, leaf);
  }
}

void Interpreter::init_params(uint64_t seed) {
  StepScalars draw;
  draw.seed = seed;
  const KernelImpl& impl = implementation(registry_, "init_param", "ref");
  for (size_t i = 0; i < graph_.params.size(); ++i) {
    const Parameter& param = graph_.params[i];
    Tensor shard(DS_DTYPE_F32, {at(param.value).numel()});
    Attrs attrs{{"kind", param.init.kind},
                {"scale", param.init.scale},
                {"param", static_cast<int64_t>(i)},
                {"begin", int64_t{0}}};
    std::vector<TensorView> out{shard.view()};
    launch(impl, attrs, {}, out, team_, draw);
    for (int64_t e = 0; e < shard.numel(); ++e) at(param.value).set(e, shard.at(e));
  }
}

}  // namespace ds::test
