#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/tier.h"

namespace ds {

struct ModelConfig {
  std::string family;  // "gpt"; "" when the graph comes from a folder or from the caller
  std::string folder;  // Hugging Face model folder, in place of a family
  std::string init =
      "folder";       // weights that a run on a folder begins with: its own, or "random" ones
  bool mask = false;  // a folder's graph takes an input `mask` whatever its family
  bool documents =
      false;  // the graph takes inputs `begin` and `positions`: rows of several documents
  int64_t layers = 0, hidden = 0, heads = 0, vocab = 0, positions = 0;
  double dropout = 0;
  double layerdrop = 0;  // probability of leaving a layer out of a micro-batch of a training step
};

// data.tokenizer that is learned from the training text, of as many tokens as the model has.
inline constexpr const char* kLearnTokenizer = "learn";

struct DataConfig {
  std::vector<std::string> paths;  // files or folders of `format`
  std::string format =
      "text";  // "text", "jsonl": lines of conversations, "tokens": files of `libds tokenize`
  std::string tokenizer = "bytes";  // or kLearnTokenizer, or a tokenizer's file or folder
  // Of format jsonl.
  std::string loss_on = "answers";  // or "all": the tokens that are targets
  // Documents that share a sample: "none", "joined" (attention sees the earlier ones), "isolated".
  std::string packing = "none";
  std::string
      chat_template;  // a template file or a name of one in the tokenizer's folder; "": its default
  double heldout = 0.05;  // share of files held out, chosen by content hash
  int64_t max_bytes = 16 << 20;
  bool strip_licences = true;  // remove leading licence comments
  // Of masked language models, in the words of Transformers' DataCollatorForLanguageModeling.
  double mlm_probability = 0.15;     // share of the tokens that are targets
  double mask_replace_prob = 0.8;    // share of these that become the mask token
  double random_replace_prob = 0.1;  // and a random one; the others stay
  int64_t mask_token = -1;           // -1: the tokenizer's
};

// The keys of masked language models in DataConfig.
inline constexpr const char* kMaskingKeys[] = {"data.mlm_probability", "data.mask_replace_prob",
                                               "data.random_replace_prob", "data.mask_token"};

// DeepSpeed's legacy `curriculum_learning`: how many tokens of each sample count, by step.
struct CurriculumConfig {
  bool enabled = false;
  std::string type = "seqlen", schedule;           // "fixed_linear", "fixed_root", "fixed_discrete"
  int64_t min_difficulty = 0, max_difficulty = 0;  // tokens
  int64_t total_step = 0, difficulty_step = 0;     // fixed_linear, fixed_root
  double root_degree = 0;                          // fixed_root
  std::vector<int64_t> difficulty, max_step;       // fixed_discrete
};

// data_efficiency.data_sampling.dynamic_batching: micro-batches of as many documents as their
// tokens allow.
struct DynamicBatchingConfig {
  bool enabled = false;  // here, and in both sections around it:
  bool outer = false,
       sampling = false;   // data_efficiency.enabled, data_efficiency.data_sampling.enabled
  bool given = false;      // enabled here, whatever they say
  int64_t max_tokens = 0;  // of a group of documents; a micro-batch is micro_batch groups
  std::string lr_scaling = "linear";     // lr_scaling_method: "linear", "sqrt", "none"
  int64_t min_batch = 1, max_batch = 0;  // documents of a group; 0: no bound
  std::string order = "dataloader";      // sequence_picking_order: "dataloader", "random", "seqlen"
  uint64_t seed = 1234;                  // data_efficiency.seed, of the order "random"
};

struct RunConfig {
  std::string dir;     // run folder; "" = runs/NNN
  std::string resume;  // a run in `dir` that was begun with the same text goes on; "": none does
  int64_t steps = 100, eval_every = 0, eval_samples = 0, save_every = 0, keep = 3,
          sample_tokens = 256;
  int64_t max_skipped_steps =
      1;  // in a row: the run ends then; of a dynamic loss scale, those at its minimum
  int64_t sample_every = 0;  // steps between samples, the first before step 1; 0: at the end only
  std::vector<std::string> bars;  // of kBars: what the final held-out loss must be below
  bool async_save =
      false;  // saves every save_every steps are written by a thread while steps go on
  bool device_fallback = true;  // a device that is not there: the CPU and a warning, not a refusal
  uint64_t seed = 0;
};

// The devices of a Config.
inline constexpr const char* kDevices[] = {"cpu", "separate"};

inline constexpr const char* kBars[] = {"unigram", "bigram", "gzip"};

// Parameters whose updates have values of their own.
struct ParamGroup {
  std::vector<std::string> params;  // patterns of names, '*' and '?' as in file names
  std::map<std::string, double>
      values;  // by names of group_numbers(), in place of those of the optimizer
  // optimizer.no_decay: instead of patterns, every parameter of fewer than two dimensions in no
  // other group.
  bool norms_and_biases = false;
};

// Which fields an optimizer has says core/config/optimizer_types.h.
struct OptimizerConfig {
  std::string type = "AdamW";
  double lr = 1e-3, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool adam_w_mode = true;      // false: L2
  bool bias_correction = true;  // false: moments as they are, as if long-running
  double momentum = 0,
         dampening = 0;            // dampening: share of the gradient that stays out of the buffer
  bool nesterov = false;           // looks ahead by one more step of the buffer
  bool maximize = false;           // up the gradient
  double lr_decay = 0;             // update t has the rate lr / (1 + (t - 1) * lr_decay)
  double initial_accumulator = 0;  // initial_accumulator_value: of sums of squares
  double min_coeff = 0.01, max_coeff = 10;  // bounds of the trust ratio
  bool eps_inside_sqrt = false;             // eps is added below the root
  DType masters = DS_DTYPE_F32;  // BF16: bf16_master_weights_and_grads, the parameters themselves
  // Of what the optimizer keeps of each element: F32, BF16, or U8: codes
  // (core/program/state_codes.h).
  DType states = DS_DTYPE_F32;
  bool stochastic = false;  // rounding of masters and states in bf16; else to nearest
  bool fp32_states = true;  // fp32_optimizer_states; false: of the type of masters
  // Muon: rates of matrices and of what AdamW updates; none: that of lr, and where none is given,
  // the type's.
  std::optional<double> muon_lr = {}, adam_lr = {};
  std::string ns_method =
      "gram";  // Newton-Schulz iterates on Gram matrices, or "standard": on matrices
  int64_t freeze_step = 100000;  // updates until the variance stands and momenta are compressed
  // 0/1 Adam: updates until the variance stands for good; updates of the variance after which the
  // steps between two of them double; behind the freeze, steps after which the steps between two
  // synchronisations double, and the most that there can be.
  int64_t var_freeze_step = 100000, var_update_scaler = 16;
  int64_t local_step_scaler = 32678, local_step_clipper = 16;
  // 1-bit LAMB: decay of the trust ratio's mean; bounds of what its mean is multiplied by behind
  // the freeze, and how far this moves in a step.
  double coeff_beta = 0.9, factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
  std::vector<ParamGroup> groups =
      {};  // group 1 and further ones; group 0 has every other parameter
  // Whether ranks exchange signs in place of gradients, at some time.
  bool compressed() const {
    return type == "OneBitAdam" || type == "OneBitLamb" || type == "ZeroOneAdam";
  }
};

// Section fp16: how the loss scale of a run begins and moves (core/config/loss_scaler.h).
struct LossScaleConfig {
  double loss_scale = 0;             // of every step; 0: dynamic
  int64_t initial_scale_power = 16;  // a dynamic scale begins at 2 to this power
  int64_t window = 1000;             // loss_scale_window: clean steps until it doubles
  int64_t hysteresis = 2;            // overflows until it halves
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool from_first =
      false;  // the window counts the first clean step, too, as torch's GradScaler does
};

// Section torch_autocast: parameters stay f32, and products are made in `dtype`.
struct AutocastConfig {
  bool enabled = false;
  std::string dtype = "bf16";
};

// A schedule's parameters by the names of schedule.h: every number and word of the type, given or
// not.
struct SchedulerConfig {
  std::string type;                                    // "": the rate of each group stays
  std::map<std::string, std::vector<double>> numbers;  // one for all groups, or one for each
  std::map<std::string, std::string> words;
};

struct ZeroConfig {
  int stage = 0;
  int64_t reduce_bucket_size = 500000000;           // elements
  int64_t prefetch_bucket_size = 50000000;          // stage3_prefetch_bucket_size, elements
  int64_t max_live_parameters = 1000000000;         // stage3_max_live_parameters, elements
  int64_t max_reuse_distance = 1000000000;          // stage3_max_reuse_distance, elements
  int64_t param_persistence_threshold = 100000;     // stage3_param_persistence_threshold, elements
  int64_t model_persistence_threshold = INT64_MAX;  // elements of all parameters that persist
  int64_t sub_group_size = 1000000000;              // elements per rank of one update instruction
  bool overlap_comm = true;                         // prefetch and overlap; never changes bits
  Tier optimizer_tier = Tier::device;  // offload_optimizer.device: states and gradient accumulators
  Tier param_tier = Tier::device;      // offload_param.device: parameter shards, stage 3
  std::string nvme_path;               // of either offload section
  int64_t mics_shard_size = -1;        // ranks that hold all state among them; -1: all ranks
  bool mics_hierarchical_gather = false;  // in a shard group of several nodes, too
  int64_t hpz_partition_size = 1;    // ranks that hold all parameters among them; 1: as the states
  bool quantized_weights = false;    // gathered as 8-bit codes; stage 3
  bool quantized_gradients = false;  // reduced as codes; stages 2 and 3
  int gradient_bits = 4;             // of these: 4 or 8
  bool error_feedback = false;       // zeropp_loco_param is given
  double err_beta = 0.8;             // share of an error that stays
  int64_t err_reset = 1024;          // steps between which errors are forgotten
  int buffer_count = 4;              // sub-groups of states on files that host memory has slots for

  // The ranks of a shard group that either key asks for; 0: neither does.
  int64_t shard_group() const {
    return mics_shard_size > 0 ? mics_shard_size : hpz_partition_size > 1 ? hpz_partition_size : 0;
  }
};

// Section gradient_compression: in which form ranks exchange gradients in stages 0 and 1.
struct GradientCompressionConfig {
  std::string type = "none";  // "int8"; "top_k"
  double ratio = 0.01;        // of "top_k": share of each tensor's elements that a rank sends
  bool on() const { return type != "none"; }
};

struct AioConfig {
  int64_t block_size = 1 << 20;
  int queue_depth = 8;
};

struct CommsLoggerConfig {
  bool enabled = false;
  bool all = true;  // every collective, else:
  std::vector<std::string> operations;
};

// A file that metrics go to.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path = {};  // folder of its jobs; "": the run folder
  std::string job_name = "DeepSpeedJobName";
};

// Section flops_profiler: a report of one step by module (engine/module_report.h).
struct FlopsProfilerConfig {
  bool enabled = false;
  int64_t profile_step = 1;         // the step that is reported, counted from 1
  int64_t module_depth = -1;        // of the lists of the longest modules; -1: the deepest
  int64_t top_modules = 1;          // of each list
  bool detailed = true;             // with the tree of modules
  std::string output_file = {};     // "": the log
  double recompute_fwd_factor = 0;  // forward passes that recomputing adds to a step's operations
};

struct MemoryBudget {
  int64_t device = -1, host = -1, nvme = -1;  // bytes per rank; -1: none
};

// Everything a run may say, checked and completed. One struct, validated in one place.
inline constexpr int64_t kNeverPrint = INT64_MAX;

struct Config {
  int64_t train_batch = 0, micro_batch = 0,
          accumulation = 0;        // samples; the DeepSpeed triangle, all > 0
  double gradient_clipping = 1.0;  // 0: off
  DType compute = DS_DTYPE_F32;    // bf16.enabled -> BF16, fp16.enabled -> F16
  LossScaleConfig loss_scale;      // where scales_loss()
  bool check_grad_overflow =
      true;                // bf16.check_grad_overflow; false: NaN and infinity are updated with
  bool auto_cast = false;  // fp16.auto_cast: inputs may be f32
  DType communication = DS_DTYPE_NONE;  // communication_data_type; NONE: the compute type
  // Of gradients when they travel. Sums are f32, so that an f32 copy of what is narrower gives the
  // same bits.
  DType wire() const {
    return communication == DS_DTYPE_NONE || communication == DS_DTYPE_F32 ? compute
                                                                           : communication;
  }
  DType grad_accum =
      DS_DTYPE_F32;  // data_types.grad_accum_dtype: of sums over micro-steps; also BF16, F16
  AutocastConfig autocast;
  // Some gradients are f16.
  bool scales_loss() const {
    return compute == DS_DTYPE_F16 || (autocast.enabled && autocast.dtype == "f16");
  }
  ModelConfig model;
  int64_t sequence = 128;  // run.sequence: tokens per sample
  DataConfig data;
  CurriculumConfig curriculum;
  DynamicBatchingConfig dynamic_batching;
  RunConfig run;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  GradientCompressionConfig gradient_compression;
  AioConfig aio;
  MemoryBudget memory_budget;
  int64_t nodes = 0;             // machines that the ranks are spread over evenly; 0: as detected
  std::string levels = "hosts";  // "auto": the memory nodes of a machine are a level, too
  std::string communicator = "env";  // the command joins it before it reads anything else
  std::string device = "cpu";  // a name of make_device(); never changes bits on devices of one kind
  bool tf32 = false;           // f32 products of a GPU round their operands to TF32
  bool emulate_tiers = false;
  // Whether the tiers device and host are memories of their own: those of "cpu" are one unless
  // emulate_tiers keeps them apart, those of every other device are two.
  bool separate_tiers() const { return emulate_tiers || device != kDevices[0]; }
  std::string fused_head =
      "auto";  // "always", "never": head and cross-entropy in one; "auto": where f32
  std::string recompute =
      "none";  // what is made again in backward: "cheap", "layers"; never changes bits
  int64_t recompute_num_layers = 1;  // of "layers": those between two activations that are kept
  bool sparse_gradients =
      false;  // of embeddings as rows where that moves fewer bytes; never changes bits
  bool reproducible = false;
  std::vector<std::string> frozen;  // patterns of names of parameters that are not trained
  std::string reduction = "micro";  // or "boundary"; "tree" when reproducible
  int threads = 0;                  // compute threads per rank; 0: cores / local ranks
  bool pin_threads = true;          // where the ranks of a machine have shared out its cores evenly
  int64_t comm_timeout_ms = 300000;
  int64_t steps_per_print = 10;  // kNeverPrint: no lines
  MonitorConfig tensorboard{.enabled = true}, csv_monitor{.enabled = true}, jsonl_monitor;
  CommsLoggerConfig comms_logger;
  FlopsProfilerConfig flops_profiler;
  bool wall_clock_breakdown = false;  // times by module every steps_per_print steps

  // What the loss of a step is a mean over: "micro_batch", or the targets of all of them, "tokens".
  std::string loss_average = "micro_batch";
  bool by_tokens() const { return loss_average == "tokens"; }

  // Every value with where it came from ("config", "default", "derived").
  Json effective() const;
  // A line "key value" for every key that must be equal on all ranks: all but paths and what
  // concerns threads.
  std::string shared_text() const;
  std::map<std::string, std::string>
      origins;  // key path -> "config", "auto", "derived" or "default"
  // What the document says beyond its values. Keys that choose how DeepSpeed works and nothing that
  // comes out, by path; what a user should hear; and keys whose "auto" waits for the model
  // (fill_from_model).
  std::vector<std::string> without_effect, warnings, waiting;
};

// What is wrong with a document: the errors that parse_config would raise one at a time.
struct ConfigRefusals {
  std::vector<Error> errors;
  // Keys whose values are not known, because they were refused or misspelt: what else is refused
  // because of them is their consequence and says nothing new.
  std::set<std::string> doubtful;
};

// Parses a document: DeepSpeed's ds_config keys with DeepSpeed's meaning, and libds keys, all
// listed in docs/reference/config.md. Unknown and misspelt keys are refused by full path with a
// suggestion; contradictions name both keys and values; known DeepSpeed keys that libds lacks are
// refused as unsupported, by path. All errors are DS_ERROR_CONFIG. world: data-parallel size, for
// the batch triangle.
Config parse_config(const Json& document, int world);
// The same, but what parse_config would refuse is collected: all of it at once. The result is worth
// what the other keys say.
Config parse_config(const Json& document, int world, ConfigRefusals& refusals);

// Gives the sizes that Hugging Face's integration makes from the model's width to the keys that
// wait for it.
void fill_from_model(Config& config, int64_t hidden);

// Rows of a micro-batch at most.
int64_t batch_rows(const Config& config);

// Tokens of each sample that count in optimizer step k (0-based) with config.curriculum
// (deepspeed.md 4.15).
int64_t curriculum_difficulty(const CurriculumConfig& config, int64_t step);

}  // namespace ds
