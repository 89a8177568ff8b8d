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

// Emits micro-steps in linear order: a compute instruction for each node, parameters as places in
// whole buckets, gradients written straight into the micro-step's gradient buckets.
class Lowering {
 public:
  // The graph has its final types. `inputs` are the buffers of its inputs, each with room for the
  // input of every micro-step, in order, at full bound. All arguments are borrowed.
  Lowering(const Graph& graph, const ZeroPlan& plan, const IdVector<InputId, BufferId>& inputs,
           ProgramBuilder& builder, StepBuffers& buffers);

  // Emits the actions of a step of `micros` micro-steps, one after the other, each as a segment.
  // Forward has the nodes that the loss or the backward part needs; loss and loss_weight go to the
  // plan's buffer of losses. Backward zeroes the padding of the gradient buckets and has the nodes
  // of the backward part; in the last micro-step its phase is backward_last.
  void run(std::span<const Action> schedule, int32_t micros);
  // Emits only the nodes that the values in `wanted` depend on, as a segment of that phase. Each
  // value is written to the persistent buffer that it is paired with.
  void evaluate(Phase phase, const std::vector<std::pair<ValueId, BufferId>>& wanted);

 private:
  void forward();
  void backward(bool last);
  NodeId forward_end() const;
  // Marks all nodes that the marked ones read from, directly or not.
  void need_inputs(IdVector<NodeId, char>& needed) const;
  void node(NodeId id);
  // Returns the place of a parameter, an input or a result that has been emitted.
  Operand value(ValueId id, Access access);
  // Assigns a place to a result of a node: a gradient bucket, the buffer of losses, or a new
  // transient buffer.
  Operand result(ValueId id);
  // Returns the place of a result in this micro-step.
  Operand& place(ValueId id);

  const Graph& graph_;
  const ZeroPlan& plan_;
  const IdVector<InputId, BufferId>& inputs_;
  ProgramBuilder& builder_;
  StepBuffers& buffers_;
  MicroId micro_{0};
  IdVector<ValueId, ParamId> param_of_;
  // The parameter that a value is the gradient of.
  IdVector<ValueId, ParamId> grad_of_;
  IdVector<ValueId, InputId> input_of_;
  // The number of times that a value is an operand of a node or an output of the graph.
  IdVector<ValueId, int> readers_;
  // The places of the values of each micro-step whose forward has been emitted, but not its
  // backward.
  std::map<MicroId, IdVector<ValueId, Operand>> places_;
};

}  // namespace ds
