// Keys of batches, clipping, communication, devices and memory, with the checks between them.
//
// Each row contains the key's text in docs/reference/config.md, so the meaning of a key is
// explained in its row only. The checks run after all keys are set (run/config_sections.cpp has the
// order). They either refuse a contradiction, or derive a value and record the origin "derived".
#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/device_name.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/core_sections.h"
#include "core/config/document.h"
#include "core/config/key.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"
#include "core/config/schema.h"

namespace ds {
namespace {

// Returns the key `device`. It accepts the built-in names and those of the CUDA plugin. Whether the
// machine has such a device is checked when an engine is created.
Key device_key() {
  auto set = [](Config& c, const Json& given) {
    const std::string name = read_value<std::string>("device", given);
    if (names_cuda(name)) {
      c.device = name;
      return;
    }
    KeyWords supported(std::begin(kDevices), std::end(kDevices));
    supported.insert(supported.end(), {std::string(kOwnCuda), "cuda:N"});
    c.device = choose("device", given, supported);
    if (c.device == supported.back()) {
      refuse("device", "\"{}\" must have the number of a device, as in \"cuda:0\"", name);
    }
  };
  return {
      "device", set, [](const Config& c) { return Json(c.device); }, KeyKind::text,
      "the device of an engine. `cpu` is the memory and the threads of the process. `separate` is "
      "memory that only its queues can touch, with a thread for each queue, for tests of programs "
      "and hosts. `cuda:N` is GPU number N by `libds_cuda.so`, and `cuda` is the rank's own GPU: "
      "the number of the rank on its host modulo the number of GPUs that it sees. Both need a CUDA "
      "driver of version 13.0 or later and an architecture from sm_80 on (docs/guides/cuda.md). If "
      "the device is missing, the engine is refused with the reason; nothing falls back to the "
      "CPU. A plan depends on the name only: device and host are separate memories except on "
      "`cpu`, and `libds plan` has the engine's hash and bytes whether the device is present or "
      "not. `cpu` and `separate` give the same bits, and ranks may differ in them. Ranks on GPUs "
      "and ranks on CPUs have equal plans only if `fused_head` is not `auto`"};
}

void memory_keys(KeyList& keys) {
  KeyRows rows(keys, "memory_budget.", &Config::memory_budget);
  rows.bytes(
      "device", &MemoryBudget::device,
      "the largest number of bytes per rank that a plan may need on the device. A larger plan is "
      "refused before anything is allocated; `libds plan` says by how much it is too large and "
      "what would help");
  rows.bytes("host", &MemoryBudget::host, "the same limit for host memory");
  rows.bytes("nvme", &MemoryBudget::nvme, "the same limit for files");
}

}  // namespace

void batch_keys(KeyList& keys) {
  KeyRows rows(keys, "", std::identity());
  rows.add("train_batch_size", &Config::train_batch, "samples of one optimizer step over all ranks",
           most)
      .shown("derived");
  rows.add("train_micro_batch_size_per_gpu", &Config::micro_batch,
           "samples of one forward on one rank", most)
      .shown("derived");
  rows.add("gradient_accumulation_steps", &Config::accumulation,
           "micro-steps of one optimizer step, at most 65536", Limits{.high = kMostAccumulation})
      .shown("derived (1)");
  rows.add("gradient_clipping", &Config::gradient_clipping,
           "bound of the global gradient norm; 0: gradients are not clipped", not_negative);
}

void exchange_keys(KeyList& keys) {
  KeyRows rows(keys, "", std::identity());
  rows.row(
          "comm_timeout_ms", &Config::comm_timeout_ms,
          [](const std::string& path, const Json& given) {
            return read_value<int64_t>(path, given, positive);
          },
          [](int64_t ms) { return ms == 0 ? Json() : Json(ms); }, KeyKind::integer,
          "a peer that makes no progress for this many milliseconds is an error. Without this key "
          "the comm keeps the time-out that it was created with",
          positive)
      .shown("the time-out of the comm, usually 300000");
  rows.nonempty(
      "communicator", &Config::communicator,
      "the way in which the ranks of `libds train` are connected. `env` does what the "
      "launcher's environment says; `env:URL` takes rank and size from that environment but "
      "uses another transport, for example `env:tcp` or `env:mpi`. The key is read from the "
      "file of `--config` or else from the resumed run, if the rank's host sees the run's "
      "folder; a program calls `ds_run_communicator`. The bits do not depend on this key");
  rows.put(device_key());
  rows.words(
      "reduction", &Config::reduction, {"micro", "boundary", "tree"},
      "the order in which gradients are added, and how often ranks reduce them. `micro`: over "
      "ranks in each micro-step, then over micro-steps. `boundary`: each rank adds up its own "
      "micro-steps, and ranks reduce once, in the last one, as DeepSpeed does. For k micro-steps "
      "this moves 1/k of the bytes, and the bits differ ([below](#reduction-once-a-step)). It "
      "works at ZeRO stages 0 and 1; it is refused at stages 2 and 3, which keep only a part of "
      "the gradients, and with `reproducible`. `tree` is the order of `reproducible` and needs it",
      {"vendor"});
  rows.words(
      "loss_average", &Config::loss_average, {"micro_batch", "tokens"},
      "the mean that is the loss of a step and whose gradient is applied. `micro_batch`: the mean "
      "over the micro-batches of all ranks, which have equal weights whatever their number of "
      "targets, as in DeepSpeed. `tokens`: the mean over the targets of the whole step, in all "
      "micro-steps and on all ranks. Then 4 x 1, 1 x 4 and 2 x 2 (micro-batch x accumulation) on "
      "any number of ranks are the same step except for rounding. A micro-batch without targets "
      "has no weight, and a step without targets is skipped. `tokens` needs a loss that is the "
      "mean of `cross_entropy` over targets; a term that is added to it, such as the routers' loss "
      "of Mixtral, is weighted by the targets of its micro-batch. `ds_eval_batch` then weights "
      "ranks by their targets. In delegate mode the host gives the weight of each micro-step "
      "([delegate.md](../guides/delegate.md#losses-by-tokens)). This key is a part of the numerics "
      "key");
}

void engine_keys(KeyList& keys) {
  KeyRows rows(keys, "", std::identity());
  rows.add("sparse_gradients", &Config::sparse_gradients,
           "reduces the gradient of an embedding, in every stage, as only those rows that the ids "
           "of a micro-step name (with `reduction` \"boundary\": the ids of a step), if that moves "
           "fewer bytes than reducing the whole gradient. The embedding must be read by input ids "
           "alone, so it must not be tied to the head. Notes of the plan name these embeddings. "
           "The bits are the same as without this key, except with quantized gradients, since the "
           "rows are not quantized. The key is refused in delegate mode, where libds sees no ids");
  rows.add("tf32", &Config::tf32,
           "products of f32 on a GPU, by cuBLASLt, round their operands to TF32, which has the "
           "range of f32 and the 10 bits of mantissa of f16, and which GPUs multiply faster (how "
           "much faster is not measured yet). Sums stay f32. This key is a part of the numerics "
           "key; it has no effect on the CPU or on products of bf16 and f16");
  rows.add("reproducible", &Config::reproducible,
           "the same bits on any number of ranks, if the number of leaves in a step is the same; "
           "accumulation times ranks must be a power of two. Codes of one rank's elements "
           "(`gradient_compression`, `zero_quantized_gradients`, 1-bit optimizers) still depend on "
           "the number of ranks, and a warning says so");
  rows.add("topology.nodes", &Config::nodes,
           "number of machines over which the ranks are spread evenly, in order. 0: the "
           "communicator detects it, and `libds plan`, which has no communicator, assumes one. "
           "Collectives over several nodes take two steps, so that as few bytes as possible cross "
           "between nodes. The bits do not depend on this key. Nodes whose number of ranks is not "
           "a power of two count as one node",
           count);
  rows.words("topology.levels", &Config::levels, {"hosts", "auto"},
             "\"auto\": the memory nodes (NUMA) of a host form a level below the host, if hwloc "
             "shows several and each has the same number of ranks, a power of two, with "
             "consecutive numbers and with their CPUs on that node (`libds launch --bind numa` or "
             "`cores`, or pinned threads); otherwise as \"hosts\". `\"topology\": \"auto\"` means "
             "the same. The bits do not depend on this key");
  rows.choice(
      "missing_gradients", &Config::skip_missing, {{"zero", false}, {"skip", true}},
      "delegate mode, a parameter for which no rank passes a gradient in a step: `zero`, its "
      "gradient is zero, so moments and weight decay go on, as in DeepSpeed; or `skip`, the "
      "step leaves it alone, as PyTorch does where a gradient is None, and its bias "
      "corrections do not count the step. `skip` is for Adam, AdamW, SGD, Lion, Adagrad "
      "and Callback");
  rows.add("frozen_parameters", &Config::frozen,
           "names of parameters that are not trained, with `*` and `?` as in file names. They have "
           "no gradient. Until a parameter is trained for the first time, it has no optimizer "
           "states and, in bf16 and fp16, no f32 master, so values written to it are rounded. "
           "`ds_engine_freeze` changes the set between steps; a checkpoint keeps that change, and "
           "the states of parameters that were trained before");
  rows.add("emulate_tiers", &Config::emulate_tiers,
           "keep device and host as separate memories on a CPU, so that offload moves data; on "
           "other devices they are always separate, and the value is true")
      .get = [](const Config& c) { return Json(c.separate_tiers()); };
  rows.words(
      "fused_head", &Config::fused_head, {"auto", "always", "never"},
      "computes the head (the product with the vocabulary's weight) and the cross-entropy as one "
      "operation, which holds the f32 logits of at most 1,024 words at a time: `always`, `never`, "
      "or `auto`. For a vocabulary of at least 4,096 words, `auto` does so in f32 and in "
      "evaluation; when training in bf16 or f16 on a device, the operation keeps all logits in 16 "
      "bits, for faster products. In blocks it needs less memory but computes the logits twice in "
      "a training step; in bf16 and f16 they are then not rounded, so bits differ between the "
      "choices. A head with a bias, a transposed weight or capped logits is never fused");
  rows.words("recompute", &Config::recompute, {"none", "cheap", "layers"},
             "results that backward computes again instead of keeping them: less memory, the same "
             "bits, dropout included. `none`; `cheap`: element-wise results and norms; `layers`: "
             "all of a layer except its input, which costs most of a forward pass (PyTorch's "
             "gradient checkpointing). A layer is all that is computed with the parameters of one "
             "number (`h.3.attn.weight` belongs to layer `h.3`). If `memory_budget` requires it, "
             "`cheap` and then `layers` are chosen automatically");
  rows.add("recompute_num_layers", &Config::recompute_num_layers,
           "with `layers`: number of consecutive layers that keep one activation together",
           positive)
      .when([](const Config& c) { return c.recompute == "layers"; });
  memory_keys(keys);
}

// Sets gradient_clipping from optimizer.params.max_grad_norm, where Megatron writes it. If both are
// given, they must be equal.
void complete_clipping(Config& c, const ConfigDocument& reader) {
  const Given* norm = reader.find(kMaxGradNorm);
  if (!norm) return;
  const double bound = read_value<double>(kMaxGradNorm, norm->value, not_negative);
  const bool both = c.origins.contains("gradient_clipping");
  if (both && bound != c.gradient_clipping) {
    refuse(kMaxGradNorm, "{} contradicts gradient_clipping {}, which is the same bound", bound,
           c.gradient_clipping);
  }
  if (both) return;
  c.gradient_clipping = bound;
  c.origins["gradient_clipping"] = "derived";
}

// Returns whether complete_batch() has accepted the batch. If it has not, other checks ignore the
// batch, because the cause has been reported. The product is in f64, which cannot wrap.
bool is_complete(const Config& c, int world) {
  const double product =
      static_cast<double>(c.micro_batch) * static_cast<double>(c.accumulation) * world;
  return c.micro_batch > 0 && c.accumulation > 0 && c.accumulation <= kMostAccumulation &&
         product == static_cast<double>(c.train_batch);
}

// Refuses `reproducible` unless the number of leaves is a power of two: only then does the tree of
// sums have the same shape for every number of ranks.
void check_leaves(Config& c, int world) {
  const auto leaves = static_cast<uint64_t>(c.accumulation * world);
  if (!c.reproducible || !is_complete(c, world) || std::has_single_bit(leaves)) return;
  refuse("reproducible",
         "needs a power of two leaves, got gradient_accumulation_steps {} * world size {} = {}",
         c.accumulation, world, leaves);
}

// Refuses DeepSpeed's cpu_checkpointing on devices other than "cpu". The key moves kept activations
// to host memory. On "cpu" they are already there; on other devices libds cannot move them.
void check_activations(Config& c, const ConfigDocument& reader) {
  const std::string path = "activation_checkpointing.cpu_checkpointing";
  const Given* given = reader.find(path);
  if (!given || truth_of(given->value) != true || c.device == "cpu") return;
  std::erase(c.without_effect, path);
  refuse(path,
         "true is unsupported with device {}, whose activations stay in its memory; use recompute",
         c.device);
}

// Sets `reduction` to "tree" if `reproducible` is on, and refuses "tree" if it is off. Also refuses
// "boundary" at the ZeRO stages that partition gradients.
void complete_reduction(Config& c) {
  if (c.reproducible) {
    if (c.origins.contains("reduction") && c.reduction != "tree") {
      refuse("reduction", "\"{}\" contradicts reproducible: true, which needs \"tree\"",
             c.reduction);
    }
    if (!c.origins.contains("reduction")) c.origins["reduction"] = "derived";
    c.reduction = "tree";
  } else if (c.reduction == "tree") {
    refuse("reduction", "\"tree\" needs reproducible: true, got false");
  }
  static const std::vector<ConfigNeed> rows{
      {"reduction",
       {"boundary"},
       ConfigNeed::needs,
       "zero_optimization.stage",
       {"0", "1"},
       ", whose gradients are partitioned: each micro-step must be reduced"}};
  check_needs(c, rows);
}

}  // namespace ds
