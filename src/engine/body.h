#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/memory_plan.h"
#include "compile/plan.h"
#include "engine/checkpoints.h"
#include "engine/generation.h"
#include "engine/options.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "engine/trained_set.h"
#include "exec/executor.h"

namespace ds {

// The common part of all engines: a plan, an executor for each of its programs, and the state that
// they work on. Native mode, delegate mode and generation add their calls and rules for the order
// of calls.
class EngineBody : protected StateStore::Owner {
 public:
  const Plan& plan() const { return plan_; }
  Runtime& runtime() { return runtime_; }
  const Runtime& runtime() const { return runtime_; }
  const StepControl& control() const { return control_; }
  StateStore& store() { return store_; }
  const StateStore& store() const { return store_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  TrainedSet& trained() { return trained_; }
  // Returns the object that continues text. Throws DS_ERROR_STATE if the engine was created without
  // options.programs.decode.
  Generation& generation();
  // Calls StepControl::set; all ranks must make the same call.
  virtual void set(std::string_view name, double value);
  // Returns the compiled programs of a step as text.
  virtual std::string print_plan() const { return print_steps(plan_); }
  // Returns the bytes of each tier that are allocated now.
  std::vector<TierMemory> memory() const;

 protected:
  // Compiles a plan. `first` is PlanPrograms::first_choice.
  using Compile = std::function<Plan(size_t first)>;

  // `comm` is borrowed.
  EngineBody(Config config, Communicator& comm, EngineOptions options, StateStore::Keeps keeps);

  // Collective: finds the first memory choice that fits on every rank. attempt(first) returns the
  // position of the first choice, from `first` on, for which this rank has room. An error on one
  // rank is thrown on all.
  void agree_on_choice(const std::function<size_t(size_t first)>& attempt);
  // Compiles the plan. Collective; called once.
  void compile(const Compile& make) { compile(make, plan_); }
  // Compares plan hashes over all ranks, then allocates the plan's memory. Collective; called once,
  // after compile().
  void take_memory() { runtime_.start(plan_.memory, unbacked_bytes()); }
  // Collective: creates executors for all programs of the plan except init, which runs only once.
  void make_executors();
  void end_executors();
  // Creates an executor for a program that was added to the plan later. Not collective.
  Executor& make_executor_late(const ProgramKey& key);
  bool has_executor(const ProgramKey& key) const { return executors_.contains(key); }
  Executor& executor(const ProgramKey& key) const { return *executors_.at(key); }

  // Collective, between steps: compiles the plan for another set of trained parameters and
  // allocates memory for it.
  virtual void recompile(const TrainedParams& trained) = 0;
  void replace_plan(const Compile& make);
  // Hooks of replace_plan(). plan_ends() is called when the executors have ended and the old plan
  // is about to be replaced, plan_replaced() when the executors of the new plan exist.
  virtual void plan_ends() {}
  virtual void plan_replaced() {}
  // Collective: computes the states that the engine starts with.
  virtual void make_states();
  // Returns the bytes of the plan that are not backed by pages at first.
  virtual int64_t unbacked_bytes() const { return 0; }

  // StateStore::Owner
  Executor& refresh() override { return executor(ProgramKind::refresh); }

  const Config& config() const { return runtime_.config(); }
  const Machine& machine() const { return runtime_.options().machine; }

  Plan plan_;
  Runtime runtime_;
  StepControl control_;
  StateStore store_;
  TrainedSet trained_;
  Checkpoints checkpoints_;

 private:
  void compile(const Compile& make, Plan& plan);
  // Throws unless the options have the function that optimizer.type says, on a device that may call
  // it.
  void check_update() const;

  const StateStore::Keeps keeps_;

  std::map<ProgramKey, std::unique_ptr<Executor>> executors_;
  std::optional<Generation> generation_;
};

}  // namespace ds
