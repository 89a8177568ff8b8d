// A magnitude divided by the norm must be 1 at the beginning, bit for bit, or evaluation would
// differ from that of the base. So the norms come from the same kernel, in the compute type.
#include "engine/magnitudes.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/half.h"
#include "core/base/ids.h"
#include "core/device/view.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

// A tensor in the compute type.
struct Held {
  Held(DType dtype, const std::vector<int64_t>& shape) {
    view.dtype = dtype;
    view.rank = static_cast<int>(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) view.dims[i] = shape[i];
    bytes.resize(static_cast<size_t>(view.bytes()));
    view.data = bytes.data();
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

// Returns the parameter whose value, or a cast of it, an operand is.
ParamId param_of(const Graph& graph, ValueId value) {
  while (graph.values[value].producer.exists())
    value = graph.nodes[graph.values[value].producer].in[0];
  for (ParamId p : graph.params.ids())
    if (graph.params[p].value == value) return p;
  return {};
}

Held read(const Graph& graph, ValueId value, StateStore& store) {
  const ParamId p = param_of(graph, value);
  Held out(graph.type(value).dtype, store.param_shapes()[p]);
  const std::vector<float> values = store.read_tensor(p, "param");
  narrow(out.view.dtype, values.data(), out.view.numel(), out.bytes.data());
  return out;
}

// Returns the results of a node `dora_norm`. Collective.
std::vector<float> norms_of(const Graph& graph, const Node& node, Runtime& runtime,
                            StateStore& store) {
  std::vector<Held> in;
  std::vector<TensorView> views;
  std::vector<DType> types;
  for (ValueId operand : node.in) {
    in.push_back(read(graph, operand, store));
    types.push_back(in.back().view.dtype);
  }
  for (Held& held : in) views.push_back(held.view);
  Held out(types[0], {in[2].view.dims[0]});
  const KernelQuery query{node.op, types, std::span(types).first(1), node.attrs};
  runtime.kernels().find(query).run(
      {views, {&out.view, 1}, node.attrs, StepScalars{}, 0, runtime.team()});
  std::vector<float> norms(static_cast<size_t>(out.view.numel()));
  widen(out.view.dtype, out.bytes.data(), out.view.numel(), norms.data());
  return norms;
}

}  // namespace

// All norms are computed before the first magnitude is written, since parameters cannot be read
// between a write and refresh_params().
void set_magnitudes(const Graph& graph, Runtime& runtime, StateStore& store) {
  std::map<ParamId, std::vector<float>> norms;
  for (const Node& node : graph.nodes) {
    if (node.op != "dora") continue;
    const ParamId m = param_of(graph, node.in[2]);
    if (norms.contains(m)) continue;
    const Node& norm = graph.nodes[graph.values[node.in[3]].producer];
    norms[m] = norms_of(graph, norm, runtime, store);
  }
  for (const auto& [m, values] : norms) {
    const auto [begin, count] = store.local_range(m);
    store.write_local(
        m, kMasterName,
        std::span(values).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
  }
  if (!norms.empty()) store.refresh_params();
}

}  // namespace ds
