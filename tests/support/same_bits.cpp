#include "support/same_bits.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/device/named_device.h"
#include "core/device/separate_device.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

constexpr int64_t kSeq = 8, kRows = 2 * kSeq, kWidth = 24;

// Draws tokens and targets of leaf `leaf` in step `step`, independently of the layout of ranks.
void draw_tokens(int64_t vocab, int64_t step, int64_t leaf, int32_t* tokens, int32_t* targets) {
  auto words = static_cast<uint32_t>(vocab);
  RandomStream stream{99, static_cast<uint32_t>(step), static_cast<uint32_t>(leaf), 0};
  for (int64_t i = 0; i < kRows; ++i) {
    uint32_t drawn = stream.block(static_cast<uint64_t>(i))[0];
    tokens[i] = static_cast<int32_t>(drawn % words);
    targets[i] = static_cast<int32_t>((drawn * 7 + 3) % words);
  }
  targets[0] = -100;
}

// Masks targets at the end: leaf 1 keeps none, and the other leaves keep a number that varies with
// leaf and step, from 0 to all.
void drop_targets(int64_t step, int64_t leaf, int32_t* targets) {
  const int64_t kept = leaf == 1 ? 0 : (leaf * 5 + step * 3) % (kRows + 1);
  std::fill(targets + kept, targets + kRows, -100);
}

int64_t leaf_of(Engine& engine, int64_t micro) {
  return engine.plan().zero.mesh.leaf(micro, engine.runtime().comm().rank());
}

ProcessIo process_io() {
  std::ifstream file("/proc/self/io");
  ProcessIo io;
  std::string word;
  int64_t value = 0;
  while (file >> word >> value) {
    if (word == "read_bytes:") io.read = value;
    if (word == "write_bytes:") io.written = value;
  }
  return io;
}

// A measurement of everything between its construction and finish().
class LedgerSpan {
 public:
  explicit LedgerSpan(const Engine& engine)
      : engine_(engine), before_(engine.runtime().ledger()), process_(process_io()) {}
  RankLedger finish() const {
    RankLedger out;
    std::map<std::string, CommCount> counted = engine_.runtime().ledger();
    ProcessIo process = process_io();
    for (const auto& [name, count] : counted) {
      auto it = before_.find(name);
      CommCount start = it == before_.end() ? CommCount{} : it->second;
      out.steps[name] = {count.calls - start.calls, count.bytes - start.bytes};
    }
    out.state = engine_.store().state_bytes();
    out.file_bytes = engine_.runtime().mapped(Tier::nvme);
    out.process = {process.read - process_.read, process.written - process_.written};
    return out;
  }

 private:
  const Engine& engine_;
  std::map<std::string, CommCount> before_;
  ProcessIo process_;
};

std::string hash_of(const std::vector<double>& values) {
  Hash128 hash;
  hash.update(values.data(), values.size() * sizeof(double));
  return hash.hex();
}

// Returns "" if all ranks, each of which computes the loss and the norm itself, have equal bits.
// Otherwise returns a text that is unique in this process, so that the run equals no other, not
// even one whose ranks disagree in the same way.
std::string disagreement(const std::vector<Outcome>& ranks) {
  static std::atomic<int> runs{0};
  std::string out;
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].bits() != ranks[0].bits())
      out += fmt::format(" (rank {}: {})", r, ranks[r].bits());
  }
  return out.empty() ? out : fmt::format(" in run {}{}", ++runs, out);
}

}  // namespace

Config config_of(const Point& p) {
  Config c = make_config(p.stage, p.leaves / p.world, p.world);
  // The chaos device reorders work on the host.
  if (p.chaos) c.device = "cpu";
  c.zero.optimizer_tier = c.zero.param_tier = p.tier;
  if (p.hpz > 1 && p.tier == Tier::nvme) c.zero.param_tier = Tier::host;
  c.zero.nvme_path = scratch_folder();
  c.zero.overlap_comm = p.overlap;
  c.zero.param_persistence_threshold = 600;
  c.zero.max_reuse_distance = p.max_reuse_distance;
  c.zero.sub_group_size = 4096;
  c.zero.reduce_bucket_size = p.bucket_size;
  c.nodes = p.nodes;
  c.zero.mics_shard_size = p.mics;
  c.zero.hpz_partition_size = p.hpz;
  c.zero.mics_hierarchical_gather = p.gather_by_node;
  c.zero.quantized_weights = p.quantized_weights;
  c.zero.quantized_gradients = p.gradient_bits > 0;
  if (p.gradient_bits > 0) c.zero.gradient_bits = p.gradient_bits;
  c.zero.error_feedback = p.err_beta >= 0;
  c.zero.err_beta = std::max(0.0, p.err_beta);
  // The configuration cannot name a device that is set through options (set_device).
  const bool apart = p.separate || !(p.device.empty() || p.device == "cpu");
  c.emulate_tiers = p.emulate || apart;
  c.reproducible = p.reproducible;
  if (p.boundary) c.reduction = "boundary";
  if (p.by_tokens) c.loss_average = "tokens";
  c.sparse_gradients = p.sparse;
  c.compute = p.compute;
  c.communication = p.communication;
  c.grad_accum = p.grad_accum;
  c.autocast.enabled = !p.autocast.empty();
  if (c.autocast.enabled) c.autocast.dtype = p.autocast;
  c.fused_head = p.fused_head;
  c.recompute = p.recompute;
  c.gradient_clipping = p.clipping;
  c.seed = p.seed;
  c.optimizer.type = p.optimizer;
  c.optimizer.masters = p.masters;
  c.optimizer.states = p.states;
  c.optimizer.stochastic = p.masters == DS_DTYPE_BF16 || p.states != DS_DTYPE_F32;
  if (p.optimizer == "Adagrad") c.optimizer.initial_accumulator = 0.1;
  if (p.groups) {
    const char* other = p.optimizer == "SGD"       ? "momentum"
                        : p.optimizer == "Adagrad" ? "eps"
                                                   : "beta1";
    c.optimizer.groups = {{{"*.bias", "*ln_*.weight"}, {{"weight_decay", 0}, {"lr", 0.002}}},
                          {{"wte.weight"}, {{other, 0.5}}}};
  }
  if (c.optimizer.compressed()) {
    // With 0/1 Adam, updates 0 and 2 reduce gradients, and updates 1 and 3 send them as signs.
    // Update 4 is the first after the freeze. Updates 5, 6 and 10 synchronise, and so does every
    // fourth from there on. The others are local.
    c.optimizer.freeze_step = 3;
    c.optimizer.var_freeze_step = 4;
    c.optimizer.var_update_scaler = 1;
    c.optimizer.local_step_scaler = 2;
    c.optimizer.local_step_clipper = 4;
    // A sign moves even elements that never had a gradient, by momentum / eps.
    if (p.optimizer == "ZeroOneAdam") c.optimizer.eps = 1e-3;
  }
  if (p.optimizer == "Muon") {
    c.optimizer.momentum = 0.95;
    c.optimizer.adam_lr = 0.003;
    if (p.standard) c.optimizer.ns_method = "standard";
  }
  if (p.optimizer == "SGD") {
    c.optimizer.lr = 0.1;
    c.optimizer.momentum = 0.9;
    c.optimizer.weight_decay = 0.01;
    c.optimizer.nesterov = true;
  }
  return c;
}

std::string state_hash(StateStore& store) {
  Hash128 hash;
  std::vector<size_t> order(store.param_names().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return store.param_names()[a] < store.param_names()[b]; });
  std::vector<std::string> kinds = store.state_kinds();
  kinds.insert(kinds.end(), {"param", "grad"});
  for (const std::string& kind : kinds) {
    for (size_t p : order) {
      std::vector<float> tensor = store.read_tensor(ParamId(p), kind);
      hash.update(store.param_names()[p]);
      hash.update(tensor.data(), tensor.size() * sizeof(float));
    }
  }
  return hash.hex();
}

Graph graph_of(const Point& p) {
  return make_tiny_gpt(2, kWidth, 2, p.vocab, kSeq, kRows, p.dropout, p.tied);
}

StepResult train_step(const Point& p, Engine& engine, int64_t step) {
  int64_t micros = p.leaves / p.world;
  std::vector<int32_t> tokens(static_cast<size_t>(micros * kRows)), targets(tokens.size());
  for (int64_t m = 0; m < micros; ++m) {
    draw_tokens(p.vocab, step, leaf_of(engine, m), tokens.data() + m * kRows,
                targets.data() + m * kRows);
    if (p.by_tokens) drop_targets(step, leaf_of(engine, m), targets.data() + m * kRows);
  }
  int64_t numel = static_cast<int64_t>(tokens.size());
  InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, numel},
                        {targets.data(), DS_DTYPE_I32, numel}};
  return engine.train_batch(inputs);
}

StepResult train_step_in_pieces(const Point& p, Engine& engine, int64_t step,
                                const std::function<void()>& before_update) {
  std::vector<int32_t> tokens(static_cast<size_t>(kRows)), targets(tokens.size());
  for (int64_t m = 0; m < p.leaves / p.world; ++m) {
    draw_tokens(p.vocab, step, leaf_of(engine, m), tokens.data(), targets.data());
    if (p.by_tokens) drop_targets(step, leaf_of(engine, m), targets.data());
    InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, kRows},
                          {targets.data(), DS_DTYPE_I32, kRows}};
    engine.forward(inputs);
    engine.backward();
  }
  before_update();
  return engine.step();
}

std::string scratch_folder() {
  std::string folder = std::string(DS_BINARY_DIR) + "/scratch";
  std::filesystem::create_directories(folder);
  return folder;
}

std::string Point::name() const {
  std::string rest =
      written_out != Point{}.written_out ? fmt::format(" written out {}", written_out) : "";
  if (states != DS_DTYPE_F32) rest += fmt::format(" {} states", dtype_name(states));
  if (standard) rest += " standard";
  if (masters != DS_DTYPE_F32) rest += " bf16 masters";
  if (communication != DS_DTYPE_NONE)
    rest += fmt::format(" communication {}", dtype_name(communication));
  if (grad_accum != DS_DTYPE_F32) rest += fmt::format(" sums {}", dtype_name(grad_accum));
  if (!autocast.empty()) rest += " autocast " + autocast;
  if (boundary) rest += " boundary";
  if (row_granules) rest += " row granules";
  if (by_tokens) rest += " by tokens";
  if (mesh) rest += " mesh " + mesh->name();
  if (separate) rest += fmt::format(" separate {}", *separate);
  if (recompute != "none") rest += " recompute " + recompute;
  return fmt::format(
             "stage {} tier {} world {} nodes {} mics {} hpz {} by node {} quantized {} {} {} "
             "threads {} overlap {} emulate {} reproducible {} leaves {} chaos {} {} {} head {} "
             "dropout {} clipping {} bucket {} reuse {} vocab {} tied {} sparse {} seed {}",
             stage, tier_name(tier), world, nodes, mics, hpz, gather_by_node, quantized_weights,
             gradient_bits, err_beta, threads, overlap, emulate, reproducible, leaves,
             chaos ? std::to_string(*chaos) : "off", dtype_name(compute), optimizer, fused_head,
             dropout, clipping, bucket_size, max_reuse_distance, vocab, tied, sparse, seed) +
         rest;
}

std::string hash_of_states(Engine& engine) {
  std::string text;
  std::vector<std::string> kinds = engine.store().state_kinds();
  kinds.emplace_back("param");
  for (const std::string& kind : kinds) {
    for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
      std::vector<float> values = engine.store().read_tensor(ParamId(i), kind);
      text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
  }
  return std::to_string(std::hash<std::string>{}(text));
}

std::string Outcome::bits() const {
  return fmt::format("payload {} losses {} norms {}", hash, loss_hash, norm_hash);
}

void set_device(EngineOptions& options, const Point& p, int rank) {
  options.chaos_seed = p.chaos;
  if (!p.device.empty()) {
    const std::string name = p.device == "cuda:*" ? fmt::format("cuda:{}", rank) : p.device;
    options.device = [name] { return make_device(name); };
  }
  if (!p.separate) return;
  Delays delays;
  if (*p.separate > 0) delays.jitter = *p.separate;
  options.device = [delays] { return std::make_unique<SeparateDevice>(delays); };
}

Outcome train_rank(const Point& p, int steps, Communicator& comm,
                   const std::function<void(Program&)>& filter,
                   const std::function<void(size_t)>& before_instr) {
  EngineOptions options;
  options.threads = p.threads;
  set_device(options, p, comm.rank());
  options.program_filter = filter;
  options.before_instr = before_instr;
  options.programs.written_out = p.written_out;
  options.programs.row_granules = p.row_granules;
  options.programs.schedule = p.schedule;
  options.mesh = p.mesh;
  Engine engine(config_of(p), graph_of(p), comm, options);
  Outcome out;
  LedgerSpan span(engine);
  for (int s = 0; s < steps; ++s) {
    StepResult r = train_step(p, engine, s);
    out.losses.push_back(r.loss);
    out.grad_norms.push_back(r.grad_norm);
  }
  out.ledgers.push_back(span.finish());
  // In a step without a reduction, gradients differ between ranks.
  const bool own = engine.runtime().config().optimizer.compressed();
  out.hash = own ? hash_of_states(engine) : state_hash(engine.store());
  out.loss_hash = hash_of(out.losses);
  out.norm_hash = hash_of(out.grad_norms);
  return out;
}

Outcome train_threads(const Point& p, int steps, const std::function<void(Program&)>& filter) {
  int ranks = p.mesh ? p.mesh->ranks() : p.world;
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    outcomes[static_cast<size_t>(comm.rank())] = train_rank(p, steps, comm, filter);
  });
  Outcome out = outcomes[0];
  out.loss_hash += disagreement(outcomes);
  out.ledgers.clear();
  for (const Outcome& o : outcomes) out.ledgers.push_back(o.ledgers[0]);
  return out;
}

}  // namespace ds::test
