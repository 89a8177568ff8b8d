#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "compile/schedule.h"
#include "core/graph/graph.h"
#include "core/program/builder.h"
#include "zero/step_buffers.h"

namespace ds {

// The linear order of one micro-step: a compute instruction per node, parameters as places in whole
// buckets, gradients written straight into the micro-step's gradient buckets.
class Lowering {
 public:
  // The graph has its final types; `inputs` are its inputs' buffers, of which those of micro-step m
  // are read at m * bound elements. All are borrowed.
  Lowering(const Graph& graph, const ZeroPlan& plan, const IdVector<InputId, BufferId>& inputs,
           ProgramBuilder& builder, StepBuffers& buffers);

  // The actions of a step of `micros` micro-steps, one after the other, each with a segment of its
  // own. forward: nodes before the backward part that it or the loss needs; loss and loss_weight go
  // to plan.loss. backward: nodes of the backward part, after zeroing the padding of the gradient
  // buckets; "backward_last" of the last micro-step.
  void run(std::span<const Action> schedule, int32_t micros);
  // Only the nodes that `wanted` depends on, which lands in the persistent buffer `target`. Ends a
  // segment of that phase.
  void evaluate(Phase phase, const std::vector<std::pair<ValueId, BufferId>>& wanted);

 private:
  void forward();
  void backward(bool last);
  NodeId forward_end() const;
  void need_inputs(
      IdVector<NodeId, char>& needed) const;  // adds those that a needed one reads from
  void node(NodeId id);
  Operand value(ValueId id, Access access);
  Operand result(ValueId id);
  Operand& place(ValueId id);  // in this micro-step

  const Graph& graph_;
  const ZeroPlan& plan_;
  const IdVector<InputId, BufferId>& inputs_;
  ProgramBuilder& builder_;
  StepBuffers& buffers_;
  MicroId micro_{0};
  IdVector<ValueId, ParamId> param_of_;
  IdVector<ValueId, ParamId> grad_of_;  // whose gradient it is
  IdVector<ValueId, InputId> input_of_;
  IdVector<ValueId, int> readers_;  // operands and outputs of the graph that it is
  // Where values are, of the micro-steps that are on their way from forward to backward.
  std::map<MicroId, IdVector<ValueId, Operand>> places_;
};

}  // namespace ds
