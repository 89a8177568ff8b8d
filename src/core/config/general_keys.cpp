// Keys of batches, clipping, communication, devices and memory, with the checks between them.
//
// A row contains the text of docs/reference/config.md, so the meaning of a key is explained there
// and only there. The checks run after all keys are set (run/config_sections.cpp has the order).
// They either refuse a contradiction, or derive a value and record the origin "derived".
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

// Returns the key of the device. It accepts the built-in names and those of the CUDA plugin; the
// engine finds out whether the machine has such a device.
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
  return {"device", set, [](const Config& c) { return Json(c.device); }, KeyKind::text,
          "the device of an engine: `cpu`, memory and threads of the process; `separate`, memory "
          "that only its queues can touch, a thread for each queue, for tests of programs and "
          "hosts. `cuda:N`, GPU number N by `libds_cuda.so`, or `cuda`, the rank's own: the number "
          "of the rank on its host modulo the GPUs that it sees. They need a CUDA driver of "
          "version 13.0 or later and an architecture from sm_80 on (docs/guides/cuda.md). Without "
          "one the engine is refused with the reason; nothing falls back to the CPU by itself. "
          "What the name means for a plan, memories of their own everywhere but on `cpu`, is a "
          "matter of the configuration alone: `libds plan` has the engine's hash and bytes for "
          "each name, with the device at hand or without. Never changes bits between `cpu` and "
          "`separate`, and ranks may differ in them; of ranks on GPUs and on CPUs together the "
          "plans are the same only where `fused_head` is not `auto`"};
}

void memory_keys(KeyList& keys) {
  KeyRows rows(keys, "memory_budget.", &Config::memory_budget);
  rows.bytes("device", &MemoryBudget::device,
             "refuse a plan above so many bytes a rank, before anything is allocated; `libds plan` "
             "says by how much and what would help");
  rows.bytes("host", &MemoryBudget::host, "the same for the host tier");
  rows.bytes("nvme", &MemoryBudget::nvme, "the same for files");
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
           "bound of the global gradient norm; 0 is off", not_negative);
}

void exchange_keys(KeyList& keys) {
  KeyRows rows(keys, "", std::identity());
  rows.row(
          "comm_timeout_ms", &Config::comm_timeout_ms,
          [](const std::string& path, const Json& given) {
            return read_value<int64_t>(path, given, positive);
          },
          [](int64_t ms) { return ms == 0 ? Json() : Json(ms); }, KeyKind::integer,
          "a peer that makes no progress for so many milliseconds is an error. Without the key, "
          "the "
          "time-out with which the comm was created stays",
          positive)
      .shown("that of the comm, 300000");
  rows.add(
      "communicator", &Config::communicator,
      "joins the ranks of `libds train`: `env`, as the launcher's environment says; `env:URL`, its "
      "rank and size over another transport, for example `env:tcp` or `env:mpi`. Read from the "
      "file of `--config`, else from the run that is resumed, where the rank's host sees its "
      "folder; a program asks `ds_run_communicator`. Never changes bits");
  rows.put(device_key());
  rows.words("reduction", &Config::reduction, {"micro", "boundary", "tree"},
             "the order in which gradients are added, and how often ranks reduce them. `micro`: "
             "over ranks in each micro-step, then over micro-steps. `boundary`: each rank adds up "
             "its own micro-steps, and ranks reduce once, in the last one, as DeepSpeed does: of k "
             "micro-steps 1/k of the bytes, in other bits ([below](#reduction-once-a-step)). ZeRO "
             "stages 0 and 1; refused in stages 2 and 3, which keep a part of the gradients, and "
             "beside `reproducible`. `tree` needs and follows from `reproducible`",
             {"vendor"});
  rows.words("loss_average", &Config::loss_average, {"micro_batch", "tokens"},
             "loss and gradient of a step are a mean over one of these: `micro_batch`, the means "
             "of the micro-batches of all ranks, which count alike whatever their targets, as in "
             "DeepSpeed; or `tokens`, the targets of the whole step, all micro-steps and ranks. "
             "Then 4 x 1, 1 x 4 and 2 x 2 (micro-batch x accumulation) on any number of ranks are "
             "one step but for rounding. A micro-batch without targets counts for nothing, and a "
             "step without any is skipped. Needs a loss that is the mean of `cross_entropy` over "
             "targets; what is added to it, such as the routers' loss of Mixtral, is of a "
             "micro-batch and counts with the targets of its micro-batch. `ds_eval_batch` then "
             "weighs ranks by their targets. In delegate mode the host says in each micro-step "
             "what it counts for ([delegate.md](../guides/delegate.md#losses-by-tokens)). A key of "
             "its own in the numerics key");
}

void engine_keys(KeyList& keys) {
  KeyRows rows(keys, "", std::identity());
  rows.add("sparse_gradients", &Config::sparse_gradients,
           "the gradient of an embedding that is read by input ids alone (not tied to the head) is "
           "reduced as the rows that the ids of a micro-step name (with `reduction` \"boundary\": "
           "of a step), in every stage, where that moves fewer bytes than its whole reduction; "
           "notes of the plan say which and how many. Never changes bits, but beside quantized "
           "gradients, where such a table is exact. Refused in delegate mode, which sees no ids");
  rows.add("tf32", &Config::tf32,
           "products of f32 on a GPU, by cuBLASLt, round their operands to TF32, which has the "
           "range of f32 and the 10 bits of mantissa of f16, and which GPUs multiply faster (how "
           "much faster is not measured yet). Sums stay f32. Part of the numerics key; without "
           "effect on the CPU and on products of bf16 and f16");
  rows.add("reproducible", &Config::reproducible,
           "the same bits for every data-parallel size with equal leaves a step; accumulation "
           "times ranks must be a power of two. Codes of one rank's elements "
           "(`gradient_compression`, `zero_quantized_gradients`, 1-bit optimizers) depend on the "
           "number of ranks all the same, with a warning");
  rows.add("topology.nodes", &Config::nodes,
           "machines that the ranks are spread over evenly, in order; 0: as the communicator "
           "detects, and one for `libds plan`, which has no communicator. Collectives over several "
           "nodes go in two steps, and the one across nodes carries the least. Never changes bits; "
           "nodes whose number of ranks is not a power of two count as one",
           count);
  rows.words(
      "topology.levels", &Config::levels, {"hosts", "auto"},
      "\"auto\": the memory nodes (NUMA) of a host are a level below the host, too, where hwloc "
      "shows several and every one has as many ranks, a power of two, numbered in a row, whose "
      "CPUs lie on it (`libds launch --bind numa` or `cores`, or pinned threads); else as "
      "\"hosts\". `\"topology\": \"auto\"` means the same. Never changes bits");
  rows.add(
      "frozen_parameters", &Config::frozen,
      "names of parameters that are not trained, `*` and `?` as in file names. They have no "
      "gradient, and until they are trained no optimizer states and in bf16 and fp16 no f32 "
      "master: what is written to one is rounded; `ds_engine_freeze` changes it between steps, and "
      "a checkpoint keeps what it has changed, with the states of what was trained before");
  rows.add("emulate_tiers", &Config::emulate_tiers,
           "keep device and host apart on a CPU, so that offload is real; on other devices they "
           "are, and the value is true")
      .get = [](const Config& c) { return Json(c.separate_tiers()); };
  rows.words("fused_head", &Config::fused_head, {"auto", "always", "never"},
             "the product with the vocabulary's weight and the cross-entropy as one operation that "
             "holds the f32 logits of 1,024 words at a time: `always`, `never`, or `auto`: from "
             "4,096 words on where the logits would be f32, and in evaluation; on a device 16-bit "
             "logits of training are kept whole within the operation, for faster products. By "
             "blocks it needs less memory and makes the logits twice in a training step; in bf16 "
             "and f16 they are then not rounded, so bits differ between the choices. A head with a "
             "bias, a transposed weight or capped logits is never fused");
  rows.words(
      "recompute", &Config::recompute, {"none", "cheap", "layers"},
      "results that backward computes again instead of keeping them: less memory, the same bits, "
      "dropout included. `none`; `cheap`: element-wise results and norms; `layers`: all of a layer "
      "except its input, which costs most of a forward pass (PyTorch's gradient checkpointing). A "
      "layer is what the parameters of one number compute (`h.3.attn.weight`: layer `h.3`). Where "
      "`memory_budget` needs it, `cheap` and then `layers` are taken by themselves");
  rows.add("recompute_num_layers", &Config::recompute_num_layers,
           "with `layers`: neighbouring layers that keep one activation together", positive)
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
         "gradient_accumulation_steps {} * world size {} = {} leaves is no power of two",
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
