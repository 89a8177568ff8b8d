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
  Tier tier = Tier::device;  // states and accumulators; in stage 3 also parameter shards, which hpz
                             // keeps in memory
  int world = 2;
  int threads = 1;
  bool overlap = true;
  bool emulate = true;
  bool reproducible = false;
  bool boundary = false;   // reduction; stages 0 and 1
  bool by_tokens = false;  // loss_average; leaves then have different numbers of targets, some none
  int64_t nodes = 0;       // 0: one
  int64_t mics = -1;       // ranks of a shard group; stage 3
  int64_t hpz = 1;         // the same of parameters alone
  bool gather_by_node = false;  // mics_hierarchical_params_gather
  bool quantized_weights = false;
  int gradient_bits = 0;  // of quantized gradients; 0: none
  double err_beta = -1;   // of their errors; below 0: no feedback
  int64_t leaves = 4;     // a step; accumulation = leaves / world
  std::optional<uint64_t> chaos;
  std::string device;  // "": of the configuration; "cuda:*": of each rank a GPU of its own
  std::optional<uint64_t> separate;  // on the separate device; a seed of its jitter, 0: without
  DType compute = DS_DTYPE_BF16;
  bool standard = false;            // ns_method of Muon
  std::string optimizer = "AdamW";  // "SGD": momentum 0.9, weight decay 0.01, nesterov
  DType communication = DS_DTYPE_NONE, grad_accum = DS_DTYPE_F32;
  std::string autocast;                                 // torch_autocast.dtype; "": off
  DType masters = DS_DTYPE_F32, states = DS_DTYPE_F32;  // bf16: with stochastic rounding
  bool groups = false;  // parameters with values of their own: norms and biases, and wte
  std::string recompute = "none";
  std::string fused_head = "auto";  // unfused: the vocabulary is small
  double dropout = 0.1;
  double clipping = 0.05;
  int64_t bucket_size = 500000000;    // elements
  int64_t max_reuse_distance = 2000;  // elements
  int64_t vocab = 29;
  bool tied = true;     // embedding and head
  bool sparse = false;  // sparse_gradients
  uint64_t seed = 7;
  int64_t written_out = 16;  // PlanPrograms
  bool row_granules = false;
  std::vector<Action> schedule;
  std::optional<Mesh> mesh;  // none: `world` ranks along `data`; else `world` is its data_size()
  std::string name() const;
};

// Bytes that this process moved to and from storage, from /proc/self/io.
struct ProcessIo {
  int64_t read = 0, written = 0;
};

// What one rank counted.
struct RankLedger {
  std::map<std::string, CommCount> steps;  // by operation, from the first step to the last
  std::map<std::pair<Tier, std::string>, int64_t> state;
  int64_t file_bytes = 0;  // of the scratch file
  ProcessIo process;       // over the steps; of all ranks where ranks are threads
};

// What a run of a point leaves behind.
struct Outcome {
  std::string hash;       // of masters, moments, parameters and gradients, unpadded, in name order
  std::string loss_hash;  // of the losses of all steps
  std::string norm_hash;  // of the gradient's norms of all steps
  std::vector<double> losses;
  std::vector<RankLedger> ledgers;  // per rank
  std::vector<double> grad_norms;
  // The three hashes as text: what points that promise the same bits are compared by.
  std::string bits() const;
};

// Of an engine's states and compute copies, but not of its gradients: what is frozen has none, and
// those of 1-bit optimizers are each rank's own.
std::string hash_of_states(Engine& engine);

// Where the files of offloaded states are made.
std::string scratch_folder();

// Trains the tiny GPT for `steps` steps with every rank a thread of this process. `filter` may
// change rank r's compiled step (faults of `mutate`). Throws what a rank throws.
Outcome train_threads(const Point& point, int steps,
                      const std::function<void(Program&)>& filter = {});

// What train_rank is made of.
void set_device(EngineOptions& options, const Point& point, int rank = 0);
Config config_of(const Point& point);
Graph graph_of(const Point& point);
StepResult train_step(const Point& point, Engine& engine, int64_t step);
// The same by forward, backward and step; `before_update` runs before the last.
StepResult train_step_in_pieces(const Point& point, Engine& engine, int64_t step,
                                const std::function<void()>& before_update);
// Of masters, moments, parameters and gradients as train_rank's. Collective.
std::string state_hash(StateStore& store);

// One rank's part of the above on a communicator of the caller.
// before_instr is called before each instruction of the step.
Outcome train_rank(const Point& point, int steps, Communicator& comm,
                   const std::function<void(Program&)>& filter = {},
                   const std::function<void(size_t)>& before_instr = {});

}  // namespace ds::test
