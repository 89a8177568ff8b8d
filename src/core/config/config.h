#pragma once
#include <any>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json.h"
#include "core/base/tier.h"

namespace ds {

// Section model: where the graph of a model comes from, or the sizes of a built-in one.
struct ModelConfig {
  // "gpt", or "" when the graph comes from a folder or from the caller.
  std::string family;
  // The folder of a Hugging Face model, given instead of a family.
  std::string folder;
  // The weights from which a run on a folder starts: those of the "folder", or "random" ones.
  std::string init = "folder";
  // A folder's graph has an input `mask`, whatever its family.
  bool mask = false;
  // The graph has inputs `begin` and `positions`, so that a row may hold several documents.
  bool documents = false;
  int64_t layers = 0, hidden = 0, heads = 0, vocab = 0, positions = 0;
  double dropout = 0;
  // The probability that a micro-batch of a training step leaves a layer out.
  double layerdrop = 0;
};

// The names of devices that need no plugin.
inline constexpr const char* kDevices[] = {"cpu", "separate"};

// Parameters whose updates use other values than those of the optimizer, such as another rate.
struct ParamGroup {
  // Patterns of names, with '*' and '?' as in file names.
  std::vector<std::string> params;
  // The values that replace those of the optimizer, by names of group_numbers().
  std::map<std::string, double> values;
  // optimizer.no_decay: in place of patterns, the group has every parameter of fewer than two
  // dimensions that is in no other group.
  bool norms_and_biases = false;
};

// The fields of all optimizers. optim/optimizer_types.h says which of them a type has.
struct OptimizerConfig {
  std::string type = "AdamW";
  double lr = 1e-3, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  // True: weight decay is decoupled from the gradient (AdamW). False: it is added to the gradient
  // (L2).
  bool adam_w_mode = true;
  // False: the moments are used without the correction for their start at zero.
  bool bias_correction = true;
  // SGD: the dampening is the share of the gradient that stays out of the momentum buffer.
  double momentum = 0, dampening = 0;
  // SGD: Nesterov momentum; the step uses the buffer as if it had been updated once more.
  bool nesterov = false;
  // True: the objective is maximized, so steps go up the gradient.
  bool maximize = false;
  // Adagrad: update t has the rate lr / (1 + (t - 1) * lr_decay).
  double lr_decay = 0;
  // Adagrad: initial_accumulator_value, which a parameter's first update adds to its sum of
  // squares.
  double initial_accumulator = 0;
  // LAMB: the bounds of the trust ratio.
  double min_coeff = 0.01, max_coeff = 10;
  // LAMB: eps is added under the root instead of to it.
  bool eps_inside_sqrt = false;
  // The type of masters. BF16 (bf16_master_weights_and_grads): the parameters are the masters.
  DType masters = DS_DTYPE_F32;
  // The type of the states that the optimizer keeps for each element: F32, BF16, or U8 for codes
  // (core/program/state_codes.h).
  DType states = DS_DTYPE_F32;
  // True: masters and states in bf16 are rounded stochastically. False: they are rounded to
  // nearest.
  bool stochastic = false;
  // fp32_optimizer_states. False: states have the type of masters.
  bool fp32_states = true;
  // Muon: the rate for matrices, and the rate for the parameters that AdamW updates. A rate that is
  // not given is lr or, if lr is not given either, the default of the type.
  std::optional<double> muon_lr = {}, adam_lr = {};
  // Muon: the Newton-Schulz iteration runs on Gram matrices ("gram") or on the matrices themselves
  // ("standard").
  std::string ns_method = "gram";
  // 1-bit optimizers: the number of updates until the variance freezes and momenta are compressed.
  int64_t freeze_step = 100000;
  // 0/1 Adam: the number of updates until the variance freezes for good, and the number of updates
  // of the variance after which the interval between two of them doubles.
  int64_t var_freeze_step = 100000, var_update_scaler = 16;
  // 0/1 Adam after the freeze: the number of steps after which the interval between two
  // synchronisations doubles, and the largest such interval.
  int64_t local_step_scaler = 32678, local_step_clipper = 16;
  // 1-bit LAMB: the decay of the mean of the trust ratio. After the freeze this mean is multiplied
  // by a factor within two bounds, which changes by at most the threshold in a step.
  double coeff_beta = 0.9, factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
  // The groups from number 1 on. Group 0 has the parameters that are in none of them.
  std::vector<ParamGroup> groups = {};
  // Returns whether ranks exchange signs in place of gradients in some steps.
  bool compressed() const {
    return type == "OneBitAdam" || type == "OneBitLamb" || type == "ZeroOneAdam";
  }
};

// Section fp16: the initial loss scale of a run and how it changes (core/config/loss_scaler.h).
struct LossScaleConfig {
  // The loss scale of every step. 0: the scale is dynamic, and the other fields apply.
  double loss_scale = 0;
  // A dynamic scale begins at 2 to this power.
  int64_t initial_scale_power = 16;
  // loss_scale_window: the number of clean steps until the scale doubles.
  int64_t window = 1000;
  // The number of overflows until the scale halves.
  int64_t hysteresis = 2;
  // True: every clean step restores the hysteresis.
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  // True: the window includes the first clean step, too, as torch's GradScaler does.
  bool from_first = false;
};

// Section torch_autocast: parameters stay f32, and matrix products are computed in `dtype`.
struct AutocastConfig {
  bool enabled = false;
  std::string dtype = "bf16";
};

// The parameters of a schedule by their names in optim/schedule.h. All parameters of the type are
// present, whether they were given or not.
struct SchedulerConfig {
  // "": each group keeps its rate.
  std::string type;
  // Each number has one value for all groups, or one for each group.
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::string> words;
};

// Section zero_optimization.
struct ZeroConfig {
  int stage = 0;
  // Sizes in elements. Four of them belong to stage 3: stage3_prefetch_bucket_size,
  // stage3_max_live_parameters, stage3_max_reuse_distance and stage3_param_persistence_threshold.
  int64_t reduce_bucket_size = 500000000;
  int64_t prefetch_bucket_size = 50000000;
  int64_t max_live_parameters = 1000000000;
  int64_t max_reuse_distance = 1000000000;
  int64_t param_persistence_threshold = 100000;
  // Largest total number of elements of the persistent parameters.
  int64_t model_persistence_threshold = INT64_MAX;
  // Number of a rank's elements that one update instruction covers.
  int64_t sub_group_size = 1000000000;
  // Transfers are prefetched and overlap with compute. Never changes bits.
  bool overlap_comm = true;
  // offload_optimizer.device: the tier of states and gradient accumulators.
  Tier optimizer_tier = Tier::device;
  // offload_param.device: the tier of parameter shards in stage 3.
  Tier param_tier = Tier::device;
  // The nvme_path of either offload section.
  std::string nvme_path;
  // MiCS: the number of ranks that together hold the complete state; -1: all ranks.
  int64_t mics_shard_size = -1;
  // MiCS gathers in two steps also in a shard group that spans several nodes.
  bool mics_hierarchical_gather = false;
  // ZeRO++: the number of ranks that together hold all parameters; 1: parameters are partitioned as
  // the states are.
  int64_t hpz_partition_size = 1;
  // Weights are gathered as 8-bit codes in stage 3.
  bool quantized_weights = false;
  // Gradients are reduced as codes of 4 or 8 bits in stages 2 and 3.
  bool quantized_gradients = false;
  int gradient_bits = 4;
  // Quantization errors of gradients are fed back; set if zeropp_loco_param is given.
  bool error_feedback = false;
  // The share of the earlier error in the error that is kept.
  double err_beta = 0.8;
  // Number of steps after which errors are reset to zero.
  int64_t err_reset = 1024;
  // The number of sub-groups for which host memory has slots when states are in files.
  int buffer_count = 4;

  // Returns the number of ranks in a shard group that mics_shard_size or hpz_partition_size sets,
  // or 0 if neither does.
  int64_t shard_group() const {
    return mics_shard_size > 0 ? mics_shard_size : hpz_partition_size > 1 ? hpz_partition_size : 0;
  }
};

// Section gradient_compression: the form in which ranks exchange gradients at ZeRO stages 0 and 1.
struct GradientCompressionConfig {
  // "none", "int8" or "top_k".
  std::string type = "none";
  // The share of each tensor's elements that a rank sends with "top_k".
  double ratio = 0.01;
  bool on() const { return type != "none"; }
};

// Section aio: reads and writes of files of the nvme tier.
struct AioConfig {
  int64_t block_size = 1 << 20;  // bytes
  int queue_depth = 8;
};

// Section memory_budget: the most memory that a plan may need.
struct MemoryBudget {
  // -1: the tier has no budget.
  int64_t device = -1, host = -1, nvme = -1;  // bytes per rank
};

// A configuration: the sections of core are members; those of layers above core are looked up by
// type. After parse_config() it is checked and complete.
struct Config {
  // Returns the section of a layer above core. It has its defaults until the document sets its
  // keys.
  template <typename Section>
  Section& get() {
    const auto [at, fresh] = sections_.try_emplace(typeid(Section));
    if (fresh) at->second = Section();
    return *std::any_cast<Section>(&at->second);
  }
  template <typename Section>
  const Section& get() const {
    static const Section defaults;
    const auto at = sections_.find(typeid(Section));
    return at == sections_.end() ? defaults : *std::any_cast<Section>(&at->second);
  }

  // Samples of a step and of a micro-batch, and micro-steps of a step: all are above 0, and
  // train_batch = micro_batch * accumulation * ranks (DeepSpeed's batch triangle).
  int64_t train_batch = 0, micro_batch = 0, accumulation = 0;
  // The bound of the gradient's norm; 0: gradients are not clipped.
  double gradient_clipping = 1.0;
  // BF16 if bf16.enabled, F16 if fp16.enabled.
  DType compute = DS_DTYPE_F32;
  // Used only if scales_loss().
  LossScaleConfig loss_scale;
  // bf16.check_grad_overflow. False: a step updates with NaN and infinity instead of being skipped.
  bool check_grad_overflow = true;
  // fp16.auto_cast: floating-point inputs of a graph may be f32.
  bool auto_cast = false;
  // communication_data_type; NONE: the compute type.
  DType communication = DS_DTYPE_NONE;
  // Returns the type in which gradients are sent. Sums are computed in f32, so sending an f32 copy
  // of narrower gradients would give the same bits; such gradients are sent as they are.
  DType wire() const {
    return communication == DS_DTYPE_NONE || communication == DS_DTYPE_F32 ? compute
                                                                           : communication;
  }
  // data_types.grad_accum_dtype: the type of sums over micro-steps, F32, BF16 or F16.
  DType grad_accum = DS_DTYPE_F32;
  AutocastConfig autocast;
  // Returns whether some gradients are f16, so that the loss must be scaled.
  bool scales_loss() const {
    return compute == DS_DTYPE_F16 || (autocast.enabled && autocast.dtype == "f16");
  }
  ModelConfig model;
  // run.sequence.
  int64_t sequence = 128;  // tokens per sample
  // run.seed: initial values, the order of data and dropout depend on it.
  uint64_t seed = 0;
  // run.async_save: a thread writes saves between steps while steps go on.
  bool async_save = false;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  GradientCompressionConfig gradient_compression;
  AioConfig aio;
  MemoryBudget memory_budget;
  // The number of machines that the ranks are spread over evenly; 0: as detected.
  int64_t nodes = 0;
  // topology.levels: with "auto" the NUMA nodes of a machine are a level, too.
  std::string levels = "hosts";
  // The communicator that the command joins before it reads anything else.
  std::string communicator = "env";
  // The name of a device, for make_device(). Never changes bits among devices of one kind.
  std::string device = "cpu";
  // True: f32 matrix products on a GPU round their operands to TF32.
  bool tf32 = false;
  bool emulate_tiers = false;
  // Returns whether the tiers device and host are separate memories. On "cpu" they are one memory
  // unless emulate_tiers keeps them apart; on every other device they are two.
  bool separate_tiers() const { return emulate_tiers || device != kDevices[0]; }
  // The cases in which the head and the cross-entropy are one operation: "always", "never", or
  // "auto": mostly where the logits would be f32 (docs/reference/config.md has the rule).
  std::string fused_head = "auto";
  // The results that backward recomputes: "none", "cheap" or "layers". Never changes bits.
  std::string recompute = "none";
  // With "layers": the number of layers between two activations that are kept.
  int64_t recompute_num_layers = 1;
  // Gradients of embeddings are sent as rows if that moves fewer bytes. Never changes bits.
  bool sparse_gradients = false;
  bool reproducible = false;
  // Patterns of names of parameters that are not trained.
  std::vector<std::string> frozen;
  // "micro" or "boundary"; "tree" if reproducible.
  std::string reduction = "micro";
  // Compute threads of a rank; 0: the cores of the machine divided by its ranks.
  int threads = 0;
  // Threads are pinned if the ranks of a machine share out its cores evenly.
  bool pin_threads = true;
  // 0: the communicator keeps its own time-out.
  int64_t comm_timeout_ms = 0;

  // "micro_batch": the loss of a step is the mean of those of its micro-batches. "tokens": it is
  // the mean over the targets of all micro-batches.
  std::string loss_average = "micro_batch";
  bool by_tokens() const { return loss_average == "tokens"; }

  // Returns every value and its origin.
  Json effective() const;
  // Returns a line "key value" for every key that must be equal on all ranks. Paths, devices, the
  // communicator and the keys about threads may differ.
  std::string shared_text() const;
  // The origin of each key by its path: "config", "auto", "derived", "default", or kRefused
  // (core/config/document.h) for a value that was given and refused.
  std::map<std::string, std::string> origins;
  // The document's keys without effect (they choose how DeepSpeed works, but not its results), the
  // warnings for the user, and the keys whose "auto" waits for the model (fill_from_model).
  std::vector<std::string> without_effect, warnings, waiting;

 private:
  std::map<std::type_index, std::any> sections_;
};

}  // namespace ds
