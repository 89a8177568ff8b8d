#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json.h"
#include "core/base/tier.h"

namespace ds {

struct ModelConfig {
  std::string family;           // "gpt"; "" when the graph comes from a folder or from the caller
  std::string folder;           // Hugging Face model folder, in place of a family
  std::string init = "folder";  // weights that a run on a folder begins with: its own, or "random" ones
  bool mask = false;            // a folder's graph takes an input `mask` whatever its family
  int64_t layers = 0, hidden = 0, heads = 0, vocab = 0, positions = 0;
  double dropout = 0;
};

// data.tokenizer that is learned from the training text, of as many tokens as the model has.
inline constexpr const char* kLearnTokenizer = "learn";

struct DataConfig {
  std::vector<std::string> paths;   // files or folders of text
  std::string tokenizer = "bytes";  // or kLearnTokenizer, or a tokenizer's file or folder
  double heldout = 0.05;            // share of files held out, chosen by content hash
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

struct RunConfig {
  std::string dir;  // run folder; "" = runs/NNN
  int64_t steps = 100, eval_every = 0, eval_batches = 8, save_every = 0, keep = 3, sample_tokens = 256;
  int64_t max_skipped_steps = 1;  // in a row: the run ends then
  int64_t sample_every = 0;       // steps between samples, the first before step 1; 0: at the end only
  std::vector<std::string> bars;  // of kBars: what the final held-out loss must be below
  uint64_t seed = 0;
};

// The devices of a Config.
inline constexpr const char* kDevices[] = {"cpu", "separate"};

inline constexpr const char* kBars[] = {"unigram", "bigram", "gzip"};

// Parameters whose updates have values of their own.
struct ParamGroup {
  std::vector<std::string> params;       // patterns of names, '*' and '?' as in file names
  std::map<std::string, double> values;  // by names of group_numbers(), in place of those of the optimizer
};

struct OptimizerConfig {
  std::string type = "AdamW";  // "Adam", "AdamW", "SGD", "OneBitAdam"
  double lr = 1e-3, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // Adam, AdamW
  bool adam_w_mode = true;                        // false: L2
  double momentum = 0;                            // SGD
  bool nesterov = false;
  int64_t freeze_step = 100000;         // OneBitAdam: updates until its variance stops
  std::vector<ParamGroup> groups = {};  // group 1 and further ones; group 0 has every other parameter
  bool adam() const { return type == "Adam" || type == "AdamW" || compressed(); }
  bool compressed() const { return type == "OneBitAdam"; }  // momentum instead of gradients, at some time
};

struct SchedulerConfig {
  std::string type;  // "", "WarmupLR", "WarmupCosineLR"
  double warmup_min_lr = 0, warmup_max_lr = 0;
  int64_t warmup_num_steps = 1000, total_num_steps = 0;
  bool warmup_max_given = false;
  double warmup_min_ratio = 0, cos_min_ratio = 1e-4;
  bool warmup_linear = false;  // warmup_type: log (default) or linear
};

struct ZeroConfig {
  int stage = 0;
  int64_t reduce_bucket_size = 500000000;        // elements
  int64_t prefetch_bucket_size = 50000000;       // stage3_prefetch_bucket_size, elements
  int64_t max_live_parameters = 1000000000;      // stage3_max_live_parameters, elements
  int64_t max_reuse_distance = 1000000000;       // stage3_max_reuse_distance, elements
  int64_t param_persistence_threshold = 100000;  // stage3_param_persistence_threshold, elements
  int64_t sub_group_size = 1000000000;           // elements per rank of one update instruction
  bool overlap_comm = true;                      // prefetch and overlap; never changes bits
  Tier optimizer_tier = Tier::device;            // offload_optimizer.device: states and gradient accumulators
  Tier param_tier = Tier::device;                // offload_param.device: parameter shards, stage 3
  std::string nvme_path;                         // of either offload section
  int64_t mics_shard_size = -1;                  // ranks that hold all state among them; -1: all ranks
  bool mics_hierarchical_gather = false;         // in a shard group of several nodes, too
  int64_t hpz_partition_size = 1;    // ranks that hold all parameters among them; 1: as the states
  bool quantized_weights = false;    // gathered as 8-bit codes; stage 3
  bool quantized_gradients = false;  // reduced as codes; stages 2 and 3
  int gradient_bits = 4;             // of these: 4 or 8
  bool error_feedback = false;       // zeropp_loco_param is given
  double err_beta = 0.8;             // share of an error that stays
  int64_t err_reset = 1024;          // steps between which errors are forgotten
  int buffer_count = 4;              // sub-groups of states on files that host memory has slots for
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

struct MemoryBudget {
  int64_t device = -1, host = -1, nvme = -1;  // bytes per rank; -1: none
};

// Everything a run may say, checked and completed. One struct, validated in one place.
inline constexpr int64_t kNeverPrint = INT64_MAX;

struct Config {
  int64_t train_batch = 0, micro_batch = 0, accumulation = 0;  // samples; the DeepSpeed triangle, all > 0
  double gradient_clipping = 1.0;                              // 0: off
  DType compute = DS_DTYPE_F32;                                // bf16.enabled -> BF16
  ModelConfig model;
  int64_t sequence = 128;  // run.sequence: tokens per sample
  DataConfig data;
  RunConfig run;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ZeroConfig zero;
  AioConfig aio;
  MemoryBudget memory_budget;
  int64_t nodes = 0;                 // machines that the ranks are spread over evenly; 0: as detected
  std::string communicator = "env";  // the command joins it before it reads anything else
  std::string device = "cpu";        // a name of make_device(); never changes bits on devices of one kind
  bool emulate_tiers = false;
  std::string fused_head = "auto";  // "always", "never": head and cross-entropy in one; "auto": where f32
  bool recompute = false;           // cheap activations are made again in backward; never changes bits
  bool sparse_gradients = false;    // of embeddings as rows where that moves fewer bytes; never changes bits
  bool reproducible = false;
  std::vector<std::string> frozen;  // patterns of names of parameters that are not trained
  std::string reduction = "micro";  // "micro"; "tree" when reproducible
  int threads = 0;                  // compute threads per rank; 0: cores / local ranks
  bool pin_threads = true;          // where the ranks of a machine have shared out its cores evenly
  int64_t comm_timeout_ms = 300000;
  int64_t steps_per_print = 10;  // kNeverPrint: no lines
  bool tensorboard = true, csv_monitor = true;
  CommsLoggerConfig comms_logger;

  // Every value with where it came from ("config", "default", "derived").
  Json effective() const;
  // A line "key value" for every key that must be equal on all ranks: all but paths and what concerns
  // threads.
  std::string shared_text() const;
  std::map<std::string, std::string> origins;  // key path -> origin
};

// Parses a document: DeepSpeed's ds_config keys with DeepSpeed's meaning, and libds keys, all listed in
// docs/reference/config.md. Unknown and misspelt keys are refused by full path with a suggestion;
// contradictions name both keys and values; known DeepSpeed keys that libds lacks are refused as unsupported,
// by path. All errors are DS_ERROR_CONFIG. world: data-parallel size, for the batch triangle.
Config parse_config(const Json& document, int world);

// Learning rate of optimizer step k (0-based) as DeepSpeed's engine uses it (deepspeed.md 4.4).
double learning_rate(const Config& config, double lr, int64_t step);

}  // namespace ds
