#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "compile/pipeline.h"
#include "core/base/trace.h"
#include "engine/arena.h"
#include "exec/executor.h"

namespace ds {

// Data of one graph input for a whole step of this rank: accumulation micro-steps one after the other.
struct InputView {
  const void* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
};

struct StepResult {
  int64_t step = 0;      // optimizer steps taken so far
  double loss = 0;       // mean of the leaf means over all ranks
  double grad_norm = 0;  // before clipping
  double lr = 0;
};

struct EngineOptions {
  int threads = 1;
  bool trace = false;
  std::optional<uint64_t> chaos_seed;  // run on the chaos device
  Machine machine;
  // Tests only: changes a compiled program before it runs; called before each instruction of the step.
  std::function<void(Program&)> program_filter;
  std::function<void(size_t)> before_instr;
};

// One rank of a training run: compiled programs, memory, and the state machine of a step. One thread at a
// time. Every call marked collective is made by all ranks in the same order. After a failed instruction the
// engine is poisoned: every later call throws DS_ERROR_POISONED.
class Engine final : public StateAccess {
 public:
  // Collective: compares plan hashes over all ranks before any memory is taken. comm is borrowed.
  Engine(Config config, const Graph& forward, Communicator& comm, EngineOptions options);
  ~Engine() override;

  // Collective. inputs follow Graph::inputs; every input has the same number of tokens n per micro-step.
  StepResult train_batch(std::span<const InputView> inputs);
  // The same in pieces, in this order: (forward, backward) x accumulation, step. forward returns this rank's
  // loss.
  double forward(std::span<const InputView> micro_inputs);
  void backward();
  StepResult step();
  // Collective: mean over ranks of the loss of one batch a rank, without dropout; refused between forward and
  // step.
  double eval_batch(std::span<const InputView> inputs);
  // Collective: output 1 of the graph for `n` rows of inputs, as f32 rows of the last dimension. Returns
  // rows.
  std::vector<float> infer(std::span<const InputView> inputs);

  // Collective: whole tensors by parameter index. kind "param" (compute copy), "master", "exp_avg",
  // "exp_avg_sq", "grad" (mean gradient of the last step before clipping). f32.
  std::vector<float> read_tensor(int32_t param, const std::string& kind);
  void write_tensor(int32_t param, const std::string& kind,
                    std::span<const float> values);  // master, exp_avg*

  // Collective.
  std::string save(const std::string& folder, const Json& client = {}, int keep = 0);
  CheckpointInfo load(const std::string& path);

  int64_t steps_taken() const { return static_cast<int64_t>(scalars_.step); }
  const Config& config() const { return config_; }
  const Plan& plan() const { return plan_; }
  std::string numerics_key() const;
  Trace* trace() { return trace_.get(); }
  const EngineMemory& memory() const { return *memory_; }
  // Counted traffic: collectives, copies, file bytes, by operation.
  std::map<std::string, CommCount> ledger() const;

  // StateAccess
  Communicator& comm() override { return comm_; }
  const Layout& layout() const override { return plan_.zero.layout; }
  const std::vector<std::string>& param_names() const override { return names_; }
  const std::vector<std::vector<int64_t>>& param_shapes() const override { return shapes_; }
  int64_t first(size_t bucket) const override;
  int64_t held(size_t bucket) const override { return plan_.zero.part(bucket); }
  void read_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, float* out) override;
  void write_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, const float* in) override;

 private:
  enum class Phase { idle, forward_done, backward_done };

  void compare_plans();
  void build_executors();
  std::unique_ptr<Executor> executor(Program& program);
  void host_call(const Instr& in, std::span<const TensorView> views);
  void clip(const Instr& in, const TensorView& norms);
  void losses(const TensorView& losses);
  int64_t check_inputs(std::span<const InputView> inputs, int64_t micros) const;
  void check_ids(size_t input, const InputView& view) const;
  void put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n);
  void begin_step();
  StepResult finish_step();
  void name_bad_tensor();
  void guarded(const std::function<void()>& body);
  void require_idle(const char* call) const;
  InstrId segment_end(const std::string& name) const;
  std::byte* device_bytes(BufferId id) const;
  void transfer_state(BufferId id, int64_t element, int64_t count, float* out, const float* in);
  std::vector<float> gather_part(int32_t param, const StateRef& part);

  Config config_;
  Communicator& comm_;
  EngineOptions options_;
  Plan plan_;
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<int64_t> norm_order_;
  KernelRegistry kernels_;
  StepScalars scalars_;
  std::unique_ptr<EngineMemory> memory_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<IoLane> read_lane_, write_lane_;
  std::unique_ptr<Executor> init_, refresh_, step_, eval_, infer_;
  Phase phase_ = Phase::idle;
  int64_t micro_ = 0;
  double loss_ = 0;
  std::string poison_;
};

}  // namespace ds
