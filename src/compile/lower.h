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

// Emits micro-steps in linear order, with one compute instruction for each node. Nodes read their
// parameters from whole buckets and write their gradients directly into the gradient buckets of the
// micro-step.
class Lowering {
 public:
  // The graph must have its final types. `inputs` are the buffers of its inputs. Each holds the
  // input of every micro-step, in order, with n at its bound. All arguments are borrowed.
  Lowering(const Graph& graph, const ZeroPlan& plan, const IdVector<InputId, BufferId>& inputs,
           ProgramBuilder& builder, StepBuffers& buffers);

  // Emits the actions of a step of `micros` micro-steps, one after the other, each as a segment. A
  // forward segment has the nodes on which the loss or the backward part depends; loss and
  // loss_weight are written to the plan's buffer of losses. A backward segment zeroes the gaps of
  // the gradient buckets and has the nodes of the backward part; in the last micro-step its phase
  // is backward_last.
  void run(std::span<const Action> schedule, int32_t micros);
  // Emits only the forward nodes on which the values in `wanted` depend, as a segment of this
  // phase. Each value is written to the persistent buffer with which it is paired.
  void evaluate(Phase phase, const std::vector<std::pair<ValueId, BufferId>>& wanted);

 private:
  void forward();
  void backward(bool last);
  NodeId forward_end() const;
  // Marks all nodes on which marked nodes depend, directly or indirectly.
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
  // The parameter whose gradient a value is.
  IdVector<ValueId, ParamId> grad_of_;
  IdVector<ValueId, InputId> input_of_;
  // The number of times that a value is an operand of a node or an output of the graph.
  IdVector<ValueId, int> readers_;
  // The rewards of a preference_loss, which are written to the plan's buffer of rewards.
  ValueId rewards_;
  // The places of the values of each micro-step whose forward has been emitted, but not its
  // backward.
  std::map<MicroId, IdVector<ValueId, Operand>> places_;
};

}  // namespace ds
