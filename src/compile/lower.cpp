// Emits instructions for the nodes of a graph. Values of a graph have no memory, while instructions
// read and write buffers. A value gets its place when its node is emitted. The place of a gradient
// is in its bucket, so that it is reduced without a copy, and the place of the loss is among the
// losses of all micro-steps. Every other value gets a separate transient buffer, unless an
// operation updates its operand in place. Which transient buffers share memory is decided later,
// from their uses (passes/offsets.cpp).
//
// Invariant. The places of each micro-step's values are kept from its forward to its backward. So
// the forwards and backwards of several micro-steps may interleave as a schedule chooses.
#include "compile/lower.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"
#include "core/graph/readers.h"

namespace ds {

Lowering::Lowering(const Graph& graph, const ZeroPlan& plan,
                   const IdVector<InputId, BufferId>& inputs, ProgramBuilder& builder,
                   StepBuffers& buffers)
    : graph_(graph),
      plan_(plan),
      inputs_(inputs),
      builder_(builder),
      buffers_(buffers),
      param_of_(graph.values.size()),
      grad_of_(graph.values.size()),
      input_of_(graph.values.size()),
      readers_(count_readers(graph)),
      rewards_(rewards_of(graph)) {
  for (ParamId p : graph.params.ids()) {
    param_of_[graph.params[p].value] = p;
    ValueId grad = graph.params[p].grad;
    // A value that is the gradient of several parameters is written to the place of the first and
    // copied to the places of the rest.
    if (grad.exists() && graph.values[grad].producer.exists() && !grad_of_[grad].exists()) {
      grad_of_[grad] = p;
    }
  }
  for (InputId i : graph.inputs.ids()) input_of_[graph.inputs[i]] = i;
}

Operand& Lowering::place(ValueId id) {
  IdVector<ValueId, Operand>& places = places_[micro_];
  if (places.empty()) places.resize(graph_.values.size());
  return places[id];
}

void Lowering::run(std::span<const Action> schedule, int32_t micros) {
  for (const Action& action : schedule) {
    micro_ = action.micro;
    if (action.kind == Action::Kind::forward) {
      forward();
    } else {
      backward(micro_.number() + 1 == micros);
      places_.erase(micro_);
    }
  }
}

Operand Lowering::value(ValueId id, Access access) {
  const TensorType& type = graph_.values[id].type;
  if (ParamId p = param_of_[id]; p.exists()) {
    BufferId full = buffers_.full[plan_.layout.bucket_of[p]];
    return param_operand(plan_, builder_, full, p, type.shape, access);
  }
  if (InputId i = input_of_[id]; i.exists()) {
    int64_t bytes = type.shape.numel(graph_.bound) * size_of(type.dtype);
    return {inputs_[i], micro_.number() * bytes, type, access, false, bytes};
  }
  Operand o = place(id);
  ensure(o.buffer.exists(), "value %{} is used before it is computed", graph_.values[id].name);
  o.access = access;
  return o;
}

Operand Lowering::result(ValueId id) {
  const TensorType& type = graph_.values[id].type;
  Operand o{none, 0, type, Access::write, false};
  if (ParamId p = grad_of_[id]; p.exists() && !buffers_.grads.empty()) {
    BufferId grads = buffers_.grads[micro_][plan_.layout.bucket_of[p]];
    o = param_operand(plan_, builder_, grads, p, type.shape, Access::write);
  } else if (!graph_.outputs.empty() && id == graph_.outputs[0].value &&
             plan_.memory.loss.exists() && type.shape.rank() == 0) {
    o.buffer = plan_.memory.loss;
    o.stride = size_of(type.dtype);
    o.begin = micro_.number() * o.stride;
  } else if (id == rewards_ && plan_.memory.rewards.exists()) {
    o.buffer = plan_.memory.rewards;
    o.stride = type.shape.numel(1) * size_of(type.dtype);
    o.begin = micro_.number() * o.stride;
  } else if (id == graph_.loss_weight && plan_.memory.loss_unit > 0) {
    // The weights of all micro-steps follow the losses of all micro-steps.
    o.buffer = plan_.memory.loss;
    o.stride = size_of(type.dtype);
    o.begin = (plan_.accumulation + micro_.number()) * o.stride;
  } else {
    o.buffer = builder_.transient(graph_.values[id].name, type.dtype,
                                  type.shape.numel(graph_.bound), Tier::device);
  }
  place(id) = o;
  return o;
}

void Lowering::node(NodeId id) {
  const Node& n = graph_.nodes[id];
  std::vector<Operand> operands;
  for (ValueId in : n.in) operands.push_back(value(in, Access::read));
  // An input that only this node reads, such as a cache, is updated in place. If another node also
  // reads the input, it must not change.
  bool in_place = op(n.op).updates_last && !n.in.empty() && input_of_[n.in.back()].exists() &&
                  readers_[n.in.back()] == 1;
  for (ValueId out : n.out) {
    bool update = in_place && out == n.out.back();
    operands.push_back(update ? value(n.in.back(), Access::update) : result(out));
  }
  Instr instr = make_instr(instruction(n.op), std::move(operands), n.attrs, micro_);
  instr.custom = n.custom;
  instr.node = id;
  builder_.emit(std::move(instr));
}

NodeId Lowering::forward_end() const {
  return graph_.backward_begin.exists() ? graph_.backward_begin : graph_.nodes.past();
}

// Nodes come after the nodes whose results they read, so one walk backwards finds all.
void Lowering::need_inputs(IdVector<NodeId, char>& needed) const {
  for (NodeId id = graph_.nodes.last(); id.exists(); --id) {
    if (!needed[id]) continue;
    for (ValueId in : graph_.nodes[id].in) {
      NodeId producer = graph_.values[in].producer;
      if (producer.exists()) needed[producer] = 1;
    }
  }
}

// Emits only the nodes on which the backward part, the loss or its weight depends. A step does not
// compute other outputs.
void Lowering::forward() {
  NodeId end = forward_end();
  IdVector<NodeId, char> needed(graph_.nodes.size(), 0);
  std::fill(needed.begin() + end.number(), needed.end(), 1);
  NodeId loss = graph_.outputs.empty() ? NodeId() : graph_.values[graph_.outputs[0].value].producer;
  if (loss.exists()) needed[loss] = 1;
  if (graph_.loss_weight.exists()) needed[graph_.values[graph_.loss_weight].producer] = 1;
  need_inputs(needed);
  for (NodeId id : IdRange(NodeId(0), end)) {
    if (needed[id]) node(id);
  }
  builder_.end_segment(Phase::forward, micro_);
}

void Lowering::backward(bool last) {
  add_grad_buffers(builder_, plan_, buffers_);
  const IdVector<BucketId, BufferId>& grads = buffers_.grads[micro_];
  for (BucketId b : grads.ids()) {
    if (!grads[b].exists()) continue;
    zero_holes(builder_, plan_, b, grads[b], micro_,
               [&](ParamId p) { return graph_.params[p].grad.exists(); });
  }
  for (NodeId id : IdRange(graph_.backward_begin, graph_.nodes.past())) node(id);
  // Copies the gradients that no node has written into the bucket. Such a value is an input, a
  // parameter, or also the gradient of another parameter.
  for (ParamId p : graph_.params.ids()) {
    ValueId grad = graph_.params[p].grad;
    if (!grad.exists() || grad_of_[grad] == p) continue;
    BucketId bucket = plan_.layout.bucket_of[p];
    const TensorType& type = graph_.type(graph_.params[p].value);
    Operand into = param_operand(plan_, builder_, grads[bucket], p, type.shape, Access::write);
    builder_.emit(cast_instr({value(grad, Access::read), into}, type.dtype, micro_));
  }
  builder_.end_segment(last ? Phase::backward_last : Phase::backward, micro_);
}

void Lowering::evaluate(Phase phase, const std::vector<std::pair<ValueId, BufferId>>& wanted) {
  NodeId end = forward_end();
  IdVector<NodeId, char> needed(graph_.nodes.size(), 0);
  for (auto [value, target] : wanted) {
    NodeId producer = graph_.values[value].producer;
    ensure(producer.exists() && producer < end, "output %{} is not a result of the forward part",
           graph_.values[value].name);
    needed[producer] = 1;
  }
  need_inputs(needed);
  for (NodeId id : IdRange(NodeId(0), end)) {
    if (!needed[id]) continue;
    node(id);
    // A wanted result is redirected into its persistent buffer; later nodes read it there.
    for (auto [value, target] : wanted) {
      for (Operand& o : builder_.program().instrs.back().operands) {
        if (o.access == Access::write && o.buffer == place(value).buffer) {
          o.buffer = target;
          o.begin = 0;
          place(value) = o;
        }
      }
    }
  }
  builder_.end_segment(phase);
}

}  // namespace ds
