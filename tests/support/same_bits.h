#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ds::test {

// One point of the same-bits matrix.
struct Point {
  int stage = 0;
  // Tier of states and accumulators and, at stage 3, of parameter shards (with hpZ, host memory
  // instead of nvme).
  Tier tier = Tier::device;
  int world = 2;
  int threads = 1;
  bool overlap = true;
  bool emulate = true;
  bool reproducible = false;
  // Sets `reduction` to "boundary", which only stages 0 and 1 support.
  bool boundary = false;
  // Sets loss_average to "tokens". Leaves then have different numbers of targets; some have none.
  bool by_tokens = false;
  // Number of nodes. 0 means one node.
  int64_t nodes = 0;
  // Ranks of a MiCS shard group, which needs stage 3. -1 means no such groups.
  int64_t mics = -1;
  // Ranks of a secondary shard group (hpZ), which holds parameters only.
  int64_t hpz = 1;
  // Sets mics_hierarchical_params_gather.
  bool gather_by_node = false;
  bool quantized_weights = false;
  // Bits of quantized gradients, or 0 if gradients are not quantized.
  int gradient_bits = 0;
  // zeropp_loco_param.err_beta: error feedback of quantized gradients. Negative: no feedback.
  double err_beta = -1;
  // Leaves of a step: accumulation * world.
  int64_t leaves = 4;
  std::optional<uint64_t> chaos;
  // Empty: the configuration's device. "cuda:*" assigns each rank its own GPU.
  std::string device;
  // Runs on the separate device. The value seeds its jitter; 0 means no jitter.
  std::optional<uint64_t> separate;
  DType compute = DS_DTYPE_BF16;
  // Sets ns_method of Muon to "standard".
  bool standard = false;
  // For "SGD", config_of() also sets lr 0.1, momentum 0.9, weight decay 0.01 and nesterov.
  std::string optimizer = "AdamW";
  DType communication = DS_DTYPE_NONE, grad_accum = DS_DTYPE_F32;
  // Sets torch_autocast.dtype. Empty: no autocast.
  std::string autocast;
  // If either type is not f32, masters and states are rounded stochastically.
  DType masters = DS_DTYPE_F32, states = DS_DTYPE_F32;
  // Norms and biases, and wte, form parameter groups with different optimizer values.
  bool groups = false;
  std::string recompute = "none";
  // With "auto" the head is not fused here, because the vocabulary is small.
  std::string fused_head = "auto";
  double dropout = 0.1;
  double clipping = 0.05;
  // The bucket size and the reuse distance are in elements.
  int64_t bucket_size = 500000000;
  int64_t max_reuse_distance = 2000;
  int64_t vocab = 29;
  // Whether embedding and head share one weight.
  bool tied = true;
  // Sets sparse_gradients.
  bool sparse = false;
  uint64_t seed = 7;
  // See PlanPrograms.
  int64_t written_out = 16;
  bool row_granules = false;
  std::vector<Action> schedule;
  // Without a mesh, `world` ranks form the axis `data`. With a mesh, `world` is its
  // data_size().
  std::optional<Mesh> mesh;
  std::string name() const;
};

// Bytes that this process read from and wrote to storage, from /proc/self/io.
struct ProcessIo {
  int64_t read = 0, written = 0;
};

// The counters of one rank.
struct RankLedger {
  // Collectives and transfers by operation, from the first step to the last.
  std::map<std::string, CommCount> steps;
  std::map<std::pair<Tier, std::string>, int64_t> state;
  // Size of the scratch file in bytes.
  int64_t file_bytes = 0;
  // Storage traffic of the process during the steps. If ranks are threads, it includes all ranks.
  ProcessIo process;
};

// The results of training a point.
struct Outcome {
  // Hash of masters, moments, parameters and gradients, unpadded, in name order. With a 1-bit
  // optimizer it is that of hash_of_states().
  std::string hash;
  // Hash of the losses of all steps.
  std::string loss_hash;
  // Hash of the gradient norms of all steps.
  std::string norm_hash;
  std::vector<double> losses;
  // One ledger for each rank.
  std::vector<RankLedger> ledgers;
  std::vector<double> grad_norms;
  // Returns the three hashes as text. Points that promise equal bits must have equal texts.
  std::string bits() const;
};

// Hashes an engine's states and compute copies, but not its gradients: frozen parameters have none,
// and those of 1-bit optimizers differ between ranks.
std::string hash_of_states(Engine& engine);

// Returns the folder for the files of offloaded states.
std::string scratch_folder();

// Trains the tiny GPT for `steps` steps, each rank in a thread of this process. `filter` may change
// a rank's compiled step (as the faults of `mutate` do). Throws the error of a rank.
Outcome train_threads(const Point& point, int steps,
                      const std::function<void(Program&)>& filter = {});

// The parts of train_rank.
void set_device(EngineOptions& options, const Point& point, int rank = 0);
Config config_of(const Point& point);
Graph graph_of(const Point& point);
StepResult train_step(const Point& point, Engine& engine, int64_t step);
// Trains a step by forward, backward and step. Calls `before_update` just before the update.
StepResult train_step_in_pieces(const Point& point, Engine& engine, int64_t step,
                                const std::function<void()>& before_update);
// Hashes masters, moments, parameters and gradients like train_rank. Collective.
std::string state_hash(StateStore& store);

// Runs one rank of train_threads() on the caller's communicator. Calls before_instr before each
// instruction of the step.
Outcome train_rank(const Point& point, int steps, Communicator& comm,
                   const std::function<void(Program&)>& filter = {},
                   const std::function<void(size_t)>& before_instr = {});

}  // namespace ds::test
