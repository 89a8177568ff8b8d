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

// Section model: the source of the model's graph, and the sizes of a built-in model.
struct ModelConfig {
  // "gpt", or "" when the graph comes from a folder or from the caller.
  std::string family;
  // The folder of a Hugging Face model, given instead of a family.
  std::string folder;
  // The initial weights of a run on a folder: "folder" reads the folder's, "random" draws them.
  std::string init = "folder";
  // Gives a folder's graph an input `mask`, whatever its family.
  bool mask = false;
  // Gives the graph inputs `begin` and `positions`, so that a row may hold several documents.
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
  // The values that replace the optimizer's, by the names that group_numbers() returns.
  std::map<std::string, double> values;
  // True for the group of optimizer.no_decay. It has no patterns: its members are the parameters
  // with fewer than two dimensions that no other group contains.
  bool norms_and_biases = false;
};

// The fields of all optimizers. optim/optimizer_types.h says which of them a type has.
struct OptimizerConfig {
  std::string type = "AdamW";
  double lr = 1e-3, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  // If true, weight decay is decoupled from the gradient (AdamW); otherwise it is added to the
  // gradient (L2 regularization).
  bool adam_w_mode = true;
  // Whether the moments are corrected for their start at zero.
  bool bias_correction = true;
  // SGD: a gradient enters the momentum buffer with the factor 1 - dampening.
  double momentum = 0, dampening = 0;
  // SGD: Nesterov momentum; the step uses the buffer as if it had been updated once more.
  bool nesterov = false;
  // Whether the objective is maximized, so that steps ascend the gradient.
  bool maximize = false;
  // Adagrad: update t has the rate lr / (1 + (t - 1) * lr_decay).
  double lr_decay = 0;
  // Adagrad: initial_accumulator_value, which a parameter's first update adds to its sum of
  // squares.
  double initial_accumulator = 0;
  // LAMB: the bounds of the trust ratio.
  double min_coeff = 0.01, max_coeff = 10;
  // LAMB: whether eps is added inside the square root instead of to its result.
  bool eps_inside_sqrt = false;
  // The type of masters. If it is BF16 (bf16_master_weights_and_grads), the parameters are their
  // own masters.
  DType masters = DS_DTYPE_F32;
  // The type of the states that the optimizer keeps for each element: F32, BF16, or U8 for codes
  // (core/program/state_codes.h).
  DType states = DS_DTYPE_F32;
  // Whether masters and states in bf16 are rounded stochastically; otherwise to nearest.
  bool stochastic = false;
  // fp32_optimizer_states. If false, states have the type of masters.
  bool fp32_states = true;
  // Muon: the rate for matrices, and the rate for the parameters that AdamW updates. A missing rate
  // defaults to lr or, if lr is also missing, to the default of the optimizer type.
  std::optional<double> muon_lr = {}, adam_lr = {};
  // Muon: the Newton-Schulz iteration runs on Gram matrices ("gram") or on the matrices themselves
  // ("standard").
  std::string ns_method = "gram";
  // 1-bit optimizers: the number of updates until the variance freezes and momenta are compressed.
  int64_t freeze_step = 100000;
  // 0/1 Adam: the number of updates until the variance freezes for good, and the number of variance
  // updates after which the interval between variance updates doubles.
  int64_t var_freeze_step = 100000, var_update_scaler = 16;
  // 0/1 Adam after the freeze: the number of steps after which the interval between
  // synchronizations doubles, and the largest interval.
  int64_t local_step_scaler = 32678, local_step_clipper = 16;
  // 1-bit LAMB: the decay of the running mean of the trust ratio, and the bounds of the factor by
  // which this mean is multiplied after the freeze. In a step the factor changes by at most
  // factor_threshold.
  double coeff_beta = 0.9, factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
  // Callback: the names of the states that the host's update keeps for each element.
  std::vector<std::string> own_states = {};
  // Groups 1, 2 and so on. Group 0 has all parameters that no group of this list contains.
  std::vector<ParamGroup> groups = {};
  // Returns whether ranks exchange signs instead of gradients in some steps (1-bit optimizers).
  bool compressed() const {
    return type == "OneBitAdam" || type == "OneBitLamb" || type == "ZeroOneAdam";
  }
};

// Section fp16: the initial loss scale of a run and how it changes (core/config/loss_scaler.h).
struct LossScaleConfig {
  // The loss scale of every step, or 0 for a dynamic scale, which the other fields describe.
  double loss_scale = 0;
  // The exponent of the first dynamic scale, which is a power of two.
  int64_t initial_scale_power = 16;
  // loss_scale_window: the number of clean steps until the scale doubles.
  int64_t window = 1000;
  // The number of overflows after which the scale halves.
  int64_t hysteresis = 2;
  // Whether every clean step restores the hysteresis.
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  // Whether the window includes the first clean step, as in torch's GradScaler.
  bool from_first = false;
};

// Section torch_autocast: matrix products are computed in `dtype`, and parameters keep their type.
struct AutocastConfig {
  bool enabled = false;
  std::string dtype = "bf16";
};

// Section scheduler: the parameters of a schedule by their names in optim/schedule.h. All
// parameters of the type are present, given or not.
struct SchedulerConfig {
  // The type of the schedule. If it is "", each group keeps its rate.
  std::string type;
  // Each parameter has one value for all groups, or one value per group.
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::string> words;
};

// Section zero_optimization.
struct ZeroConfig {
  int stage = 0;
  // Sizes in elements. All but the first are keys of stage 3, whose names begin with "stage3_".
  int64_t reduce_bucket_size = 500000000;
  int64_t prefetch_bucket_size = 50000000;
  int64_t max_live_parameters = 1000000000;
  int64_t max_reuse_distance = 1000000000;
  int64_t param_persistence_threshold = 100000;
  // The largest total number of elements of persistent parameters.
  int64_t model_persistence_threshold = INT64_MAX;
  // The number of a rank's elements that one update instruction covers.
  int64_t sub_group_size = 1000000000;
  // Whether transfers are prefetched and overlap with compute. The bits do not depend on it.
  bool overlap_comm = true;
  // Whether the memory of ended leases is filled with NaN (delegate mode).
  bool sanity_checks = false;
  // offload_optimizer.device: the tier of states and gradient accumulators.
  Tier optimizer_tier = Tier::device;
  // offload_param.device: the tier of parameter shards in stage 3.
  Tier param_tier = Tier::device;
  // nvme_path of either offload section.
  std::string nvme_path;
  // MiCS: the number of ranks that together hold the complete state, or -1 for all ranks.
  int64_t mics_shard_size = -1;
  // MiCS: whether a shard group that spans several nodes gathers in two steps.
  bool mics_hierarchical_gather = false;
  // ZeRO++: the number of ranks that together hold all parameters. If it is 1, parameters are
  // partitioned like the states.
  int64_t hpz_partition_size = 1;
  // Whether stage 3 gathers weights as 8-bit codes.
  bool quantized_weights = false;
  // Whether stages 2 and 3 reduce gradients as codes of `gradient_bits` bits, 4 or 8.
  bool quantized_gradients = false;
  int gradient_bits = 4;
  // Whether quantization errors of gradients are fed back. Set if zeropp_loco_param is given.
  bool error_feedback = false;
  // The weight of the earlier error in the error that is kept.
  double err_beta = 0.8;
  // The number of steps after which errors are reset to zero.
  int64_t err_reset = 1024;
  // The number of sub-groups that have slots in host memory when states are in files.
  int buffer_count = 4;

  // Returns the number of ranks of a shard group, which mics_shard_size or hpz_partition_size sets,
  // or 0 if neither does.
  int64_t shard_group() const {
    return mics_shard_size > 0 ? mics_shard_size : hpz_partition_size > 1 ? hpz_partition_size : 0;
  }
};

// Section gradient_compression: the form in which ranks exchange gradients at ZeRO stages 0 and 1.
struct GradientCompressionConfig {
  // "none", "int8" or "top_k".
  std::string type = "none";
  // "top_k": the share of each tensor's elements that a rank sends.
  double ratio = 0.01;
  bool on() const { return type != "none"; }
};

// Section aio: reads and writes of files of the nvme tier.
struct AioConfig {
  // In bytes.
  int64_t block_size = 1 << 20;
  int queue_depth = 8;
};

// Section memory_budget: the memory that a plan may need in each tier.
struct MemoryBudget {
  // In bytes per rank; -1 if the tier has no budget.
  int64_t device = -1, host = -1, nvme = -1;
};

// A configuration, checked and completed by parse_config(). Sections of core are members; sections
// of the layers above core are looked up by type.
struct Config {
  // Returns the section of a layer above core. Keys that the document does not set have their
  // defaults.
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

  // The number of samples in a step, of samples in a micro-batch, and of micro-steps in a step. All
  // are positive, and train_batch = micro_batch * accumulation * ranks (DeepSpeed's batch
  // triangle).
  int64_t train_batch = 0, micro_batch = 0, accumulation = 0;
  // The bound of the global gradient norm, or 0 if gradients are not clipped.
  double gradient_clipping = 1.0;
  // The compute type: BF16 if bf16.enabled, F16 if fp16.enabled, otherwise F32.
  DType compute = DS_DTYPE_F32;
  // Used only if scales_loss().
  LossScaleConfig loss_scale;
  // bf16.check_grad_overflow. If false, a bf16 step whose gradients have NaN or infinity is not
  // skipped.
  bool check_grad_overflow = true;
  // fp16.auto_cast: whether floating-point inputs of a graph may be f32.
  bool auto_cast = false;
  // communication_data_type. NONE stands for the compute type.
  DType communication = DS_DTYPE_NONE;
  // Returns the type in which gradients are sent, except with reduction "boundary"
  // (zero/policy.cpp). Sums are computed in f32, so sending an f32 copy of narrower gradients would
  // give the same bits; such gradients are sent as they are.
  DType wire() const {
    return communication == DS_DTYPE_NONE || communication == DS_DTYPE_F32 ? compute
                                                                           : communication;
  }
  // data_types.grad_accum_dtype: the type of gradient sums over micro-steps, F32, BF16 or F16.
  DType grad_accum = DS_DTYPE_F32;
  AutocastConfig autocast;
  // Returns whether some gradients are f16, so that the loss must be scaled.
  bool scales_loss() const {
    return compute == DS_DTYPE_F16 || (autocast.enabled && autocast.dtype == "f16");
  }
  ModelConfig model;
  // run.sequence: the number of tokens in a sample.
  int64_t sequence = 128;
  // run.seed: initial values, the order of data and dropout depend on it.
  uint64_t seed = 0;
  // run.async_save: whether a thread writes checkpoints while training goes on.
  bool async_save = false;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  GradientCompressionConfig gradient_compression;
  AioConfig aio;
  MemoryBudget memory_budget;
  // topology.nodes: the number of machines over which the ranks are spread evenly, or 0 if the
  // communicator detects them.
  int64_t nodes = 0;
  // topology.levels: with "auto", the NUMA nodes of a machine also form a level.
  std::string levels = "hosts";
  // The communicator that `libds train` joins.
  std::string communicator = "env";
  // The name of a device, for make_device(). Devices of one kind give the same bits.
  std::string device = "cpu";
  // Whether f32 matrix products on a GPU round their operands to TF32.
  bool tf32 = false;
  bool emulate_tiers = false;
  // Returns whether the tiers device and host are separate memories. On "cpu" they are one memory
  // unless emulate_tiers keeps them apart; on every other device they are two.
  bool separate_tiers() const { return emulate_tiers || device != kDevices[0]; }
  // When the head and the cross-entropy are one operation: "always", "never", or by the rule of
  // "auto" (docs/reference/config.md).
  std::string fused_head = "auto";
  // Which results backward computes again instead of keeping them: "none", "cheap" or "layers".
  // The choice never changes bits.
  std::string recompute = "none";
  // With "layers", the number of consecutive layers that keep one activation together.
  int64_t recompute_num_layers = 1;
  // Whether gradients of embeddings are sent as rows where that moves fewer bytes.
  bool sparse_gradients = false;
  bool reproducible = false;
  // Patterns of names of parameters that are not trained.
  std::vector<std::string> frozen;
  // The order of gradient sums: "micro" or "boundary", or "tree" if reproducible.
  std::string reduction = "micro";
  // The number of compute threads of a rank. 0 divides the machine's cores by its ranks.
  int threads = 0;
  // Whether threads are pinned if the ranks of a machine divide its cores evenly.
  bool pin_threads = true;
  // The time-out of the communicator in milliseconds; 0: it keeps its own.
  int64_t comm_timeout_ms = 0;

  // The mean that is the loss of a step: over its micro-batches ("micro_batch") or over the targets
  // of all its micro-batches ("tokens").
  std::string loss_average = "micro_batch";
  // missing_gradients. If true, a step leaves out each parameter for which no rank has a gradient;
  // otherwise its gradient is zero.
  bool skip_missing = false;
  bool by_tokens() const { return loss_average == "tokens"; }

  // Returns an object with the value and the origin of every key that applies.
  Json effective() const;
  // Returns a line "key value" for every key that must be equal on all ranks. Keys of paths,
  // devices, the communicator and threads are left out, since ranks may differ in them.
  std::string shared_text() const;
  // The origin of each key by its path: "config", "auto", "derived", "default", or kRefused
  // (core/config/document.h) for a value that was given and refused.
  std::map<std::string, std::string> origins;
  // The keys of the document that have no effect, because they choose how DeepSpeed works but not
  // its results; the warnings for the user; and the keys whose "auto" waits for the model
  // (fill_from_model).
  std::vector<std::string> without_effect, warnings, waiting;

 private:
  std::map<std::type_index, std::any> sections_;
};

}  // namespace ds
