#include "compile/lower.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/ops.h"
#include "core/graph/readers.h"

namespace ds {

Lowering::Lowering(const Graph& graph, const ZeroPlan& plan, const std::vector<BufferId>& inputs,
                   ProgramBuilder& builder, StepBuffers& buffers)
    : graph_(graph),
      plan_(plan),
      inputs_(inputs),
      builder_(builder),
      buffers_(buffers),
      param_of_(graph.values.size(), -1),
      grad_of_(graph.values.size(), -1),
      input_of_(graph.values.size(), -1),
      readers_(count_readers(graph)) {
  for (size_t p = 0; p < graph.params.size(); ++p) {
    param_of_[static_cast<size_t>(graph.params[p].value)] = static_cast<int32_t>(p);
    ValueId grad = graph.params[p].grad;
    // A value that is the gradient of several parameters is written once and copied to the others.
    if (grad >= 0 && graph.values[static_cast<size_t>(grad)].producer >= 0 &&
        grad_of_[static_cast<size_t>(grad)] < 0) {
      grad_of_[static_cast<size_t>(grad)] = static_cast<int32_t>(p);
    }
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    input_of_[static_cast<size_t>(graph.inputs[i])] = static_cast<int32_t>(i);
  }
}

void Lowering::start_micro(int32_t micro) {
  micro_ = micro;
  place_.assign(graph_.values.size(), Operand{});
}

Operand Lowering::value(ValueId id, Access access) {
  size_t v = static_cast<size_t>(id);
  const TensorType& type = graph_.values[v].type;
  if (int32_t p = param_of_[v]; p >= 0) {
    BufferId full = buffers_.full[static_cast<size_t>(plan_.layout.bucket_of[static_cast<size_t>(p)])];
    return param_operand(plan_, builder_, full, p, type.shape, access);
  }
  if (int32_t i = input_of_[v]; i >= 0) {
    int64_t bytes = type.shape.numel(graph_.bound) * size_of(type.dtype);
    return {inputs_[static_cast<size_t>(i)], micro_ * bytes, type, access, false};
  }
  Operand o = place_[v];
  ensure(o.buffer >= 0, "value %{} is used before it is made", graph_.values[v].name);
  o.access = access;
  return o;
}

Operand Lowering::result(ValueId id) {
  size_t v = static_cast<size_t>(id);
  const TensorType& type = graph_.values[v].type;
  Operand o{-1, 0, type, Access::write, false};
  if (int32_t p = grad_of_[v]; p >= 0 && !buffers_.grads.empty()) {
    size_t bucket = static_cast<size_t>(plan_.layout.bucket_of[static_cast<size_t>(p)]);
    BufferId grads = buffers_.grads[static_cast<size_t>(micro_)][bucket];
    o = param_operand(plan_, builder_, grads, p, type.shape, Access::write);
  } else if (!graph_.outputs.empty() && id == graph_.outputs[0] && plan_.loss >= 0 &&
             type.shape.rank() == 0) {
    o.buffer = plan_.loss;
    o.begin = micro_ * size_of(type.dtype);
  } else {
    o.buffer =
        builder_.transient(graph_.values[v].name, type.dtype, type.shape.numel(graph_.bound), Tier::device);
  }
  place_[v] = o;
  return o;
}

void Lowering::node(NodeId id, int32_t micro) {
  const Node& n = graph_.nodes[static_cast<size_t>(id)];
  std::vector<Operand> operands;
  for (ValueId in : n.in) operands.push_back(value(in, Access::read));
  // An input that only this node reads is updated where it is; others must find it as it was.
  size_t last = static_cast<size_t>(n.in.empty() ? 0 : n.in.back());
  bool in_place = op(n.op).updates_last && input_of_[last] >= 0 && readers_[last] == 1;
  for (ValueId out : n.out) {
    bool update = in_place && out == n.out.back();
    operands.push_back(update ? value(n.in.back(), Access::update) : result(out));
  }
  builder_.emit(make_instr(instruction(n.op), std::move(operands), n.attrs, micro));
}

NodeId Lowering::forward_end() const {
  return graph_.backward_begin >= 0 ? graph_.backward_begin : static_cast<NodeId>(graph_.nodes.size());
}

void Lowering::need_inputs(std::vector<char>& needed) const {
  for (size_t id = graph_.nodes.size(); id-- > 0;) {
    if (!needed[id]) continue;
    for (ValueId in : graph_.nodes[id].in) {
      NodeId producer = graph_.values[static_cast<size_t>(in)].producer;
      if (producer >= 0) needed[static_cast<size_t>(producer)] = 1;
    }
  }
}

void Lowering::forward(int32_t micro) {
  start_micro(micro);
  NodeId end = forward_end();
  std::vector<char> needed(graph_.nodes.size(), 0);
  std::fill(needed.begin() + end, needed.end(), 1);
  NodeId loss = graph_.outputs.empty() ? -1 : graph_.values[static_cast<size_t>(graph_.outputs[0])].producer;
  if (loss >= 0) needed[static_cast<size_t>(loss)] = 1;
  need_inputs(needed);
  for (NodeId id = 0; id < end; ++id) {
    if (needed[static_cast<size_t>(id)]) node(id, micro);
  }
  builder_.end_segment(Phase::forward, micro);
}

void Lowering::backward(int32_t micro, bool last) {
  add_grad_buffers(builder_, plan_, buffers_);
  const std::vector<BufferId>& grads = buffers_.grads[static_cast<size_t>(micro)];
  for (size_t b = 0; b < grads.size(); ++b) {
    if (grads[b] < 0) continue;
    zero_holes(builder_, plan_, b, grads[b], micro,
               [&](int32_t p) { return graph_.params[static_cast<size_t>(p)].grad >= 0; });
  }
  for (NodeId id = graph_.backward_begin; id < static_cast<NodeId>(graph_.nodes.size()); ++id)
    node(id, micro);
  for (size_t p = 0; p < graph_.params.size(); ++p) {  // gradients that are not a node's own result
    ValueId grad = graph_.params[p].grad;
    if (grad < 0 || grad_of_[static_cast<size_t>(grad)] == static_cast<int32_t>(p)) continue;
    size_t bucket = static_cast<size_t>(plan_.layout.bucket_of[p]);
    const TensorType& type = graph_.type(graph_.params[p].value);
    Operand into =
        param_operand(plan_, builder_, grads[bucket], static_cast<int32_t>(p), type.shape, Access::write);
    builder_.emit(cast_instr({value(grad, Access::read), into}, type.dtype, micro));
  }
  builder_.end_segment(last ? Phase::backward_last : Phase::backward, micro);
}

void Lowering::evaluate(Phase phase, const std::vector<std::pair<ValueId, BufferId>>& wanted) {
  start_micro(0);
  NodeId end = forward_end();
  std::vector<char> needed(graph_.nodes.size(), 0);
  for (auto [value, target] : wanted) {
    NodeId producer = graph_.values[static_cast<size_t>(value)].producer;
    ensure(producer >= 0 && producer < end, "output %{} is no result of the forward part",
           graph_.values[static_cast<size_t>(value)].name);
    needed[static_cast<size_t>(producer)] = 1;
  }
  need_inputs(needed);
  for (NodeId id = 0; id < end; ++id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    node(id, 0);
    for (auto [value, target] : wanted) {  // redirect a wanted result into its persistent buffer
      for (Operand& o : builder_.program().instrs.back().operands) {
        if (o.access == Access::write && o.buffer == place_[static_cast<size_t>(value)].buffer) {
          o.buffer = target;
          o.begin = 0;
          place_[static_cast<size_t>(value)] = o;
        }
      }
    }
  }
  builder_.end_segment(phase);
}

}  // namespace ds
