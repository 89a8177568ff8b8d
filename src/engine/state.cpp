#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "engine/engine.h"

namespace ds {

void Engine::host_call(const Instr& in, std::span<const TensorView> views) {
  if (in.op == "clip") return clip(in, views[0]);
  if (in.op == "losses") return losses(views[0]);
  raise(DS_ERROR_INTERNAL, "the engine does not perform '{}'", in.op);
}

// Norm of the mean gradient: granule partials added in the order of parameters, in f64.
void Engine::clip(const Instr& in, const TensorView& norms) {
  const double* partial = norms.as<double>();
  double sum = 0;
  for (int64_t at : norm_order_) sum += partial[at];
  double leaves = static_cast<double>(config_.accumulation * comm_.size());
  double norm = std::sqrt(sum) / leaves;
  double max_norm = in.attrs.real("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars_.grad_norm = norm;
  scalars_.grad_scale = coefficient / leaves;
  scalars_.skip = std::isfinite(norm) && std::isfinite(loss_) ? 0 : 1;
}

// Leaves in the order of leaf numbers: micro_step * world + rank.
void Engine::losses(const TensorView& losses) {
  const float* all = losses.as<float>();
  int64_t micros = config_.accumulation;
  double sum = 0;
  for (int64_t m = 0; m < micros; ++m) {
    for (int64_t r = 0; r < comm_.size(); ++r) sum += all[r * micros + m];
  }
  loss_ = sum / static_cast<double>(micros * comm_.size());
}

int64_t Engine::check_inputs(std::span<const InputView> inputs, int64_t micros) const {
  const Graph& g = plan_.graph;
  require(inputs.size() == g.inputs.size(), "the graph has {} inputs, got {}", g.inputs.size(),
          inputs.size());
  int64_t n = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = g.values[static_cast<size_t>(g.inputs[i])];
    require(inputs[i].dtype == value.type.dtype, "input '{}' must be {}, got {}", value.name,
            dtype_name(value.type.dtype), dtype_name(inputs[i].dtype));
    int64_t row = value.type.shape.numel(1) * micros;
    require(inputs[i].numel > 0 && inputs[i].numel % row == 0,
            "input '{}' must have a multiple of {} elements, got {}", value.name, row, inputs[i].numel);
    int64_t mine = value.type.shape.symbolic() ? inputs[i].numel / row : n;
    require(n < 0 || mine == n, "input '{}' has {} rows, the inputs before it have {}", value.name, mine, n);
    n = mine;
    require(n <= g.bound, "input '{}' has {} rows, the declared bound is {}", value.name, n, g.bound);
    check_ids(i, inputs[i]);
  }
  return std::max<int64_t>(n, 1);
}

// Ids are checked against the table or logits that they select from.
void Engine::check_ids(size_t input, const InputView& view) const {
  if (view.dtype != DS_DTYPE_I32) return;
  const Graph& g = plan_.graph;
  ValueId value = g.inputs[input];
  int64_t limit = INT32_MAX;
  bool targets = false;
  for (const Node& node : g.nodes) {
    if (node.op == "embedding" && node.in[1] == value)
      limit = std::min(limit, g.type(node.in[0]).shape[0].extent);
    if (node.op == "cross_entropy" && node.in[1] == value) {
      limit = std::min(limit, g.type(node.in[0]).shape[1].extent);
      targets = true;
    }
  }
  const auto* ids = static_cast<const int32_t*>(view.data);
  for (int64_t i = 0; i < view.numel; ++i) {
    bool ok = (ids[i] >= 0 && ids[i] < limit) || (targets && ids[i] == -100);
    require(ok, "input '{}' must have ids from 0 to {}, got {} at {}",
            g.values[static_cast<size_t>(value)].name, limit - 1, ids[i], i);
  }
}

void Engine::put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = plan_.graph.type(plan_.graph.inputs[i]);
    int64_t unit = size_of(type.dtype);
    int64_t bytes = type.shape.numel(n) * unit, slot = type.shape.numel(plan_.graph.bound) * unit;
    const auto* from = static_cast<const std::byte*>(inputs[i].data);
    std::byte* to = device_bytes(plan_.zero.inputs[i]);
    for (int64_t m = 0; m < micros; ++m) {
      std::memcpy(to + (micro + m) * slot, from + m * bytes, static_cast<size_t>(bytes));
    }
  }
}

int64_t Engine::first(size_t bucket) const {
  return plan_.zero.policy.partition_states ? comm_.rank() * plan_.zero.part(bucket) : 0;
}

namespace {

const StateRef& state_ref(const BucketState& s, StateKind kind) {
  if (kind == StateKind::master) return s.master;
  return kind == StateKind::exp_avg ? s.m : s.v;
}

}  // namespace

// Copies between the caller and a persistent buffer in any tier; files by whole blocks.
void Engine::transfer_state(BufferId id, int64_t element, int64_t count, float* out, const float* in) {
  const Buffer& b = plan_.step.buffers[static_cast<size_t>(id)];
  ensure(b.dtype == DS_DTYPE_F32 || in == nullptr, "%{} is not f32", b.name);
  int64_t unit = size_of(b.dtype);
  if (b.tier != Tier::nvme) {
    std::byte* data = memory_->memory().arena[static_cast<int>(b.tier)][0] + b.offset + element * unit;
    if (in) std::memcpy(data, in, static_cast<size_t>(count * unit));
    for (int64_t i = 0; out && i < count; ++i) {
      out[i] = b.dtype == DS_DTYPE_BF16 ? static_cast<float>(reinterpret_cast<bf16*>(data)[i])
                                        : reinterpret_cast<float*>(data)[i];
    }
    return;
  }
  constexpr int64_t kBlock = 4096;
  int64_t begin = b.offset + element * unit, end = begin + count * unit;
  int64_t low = begin / kBlock * kBlock, high = (end + kBlock - 1) / kBlock * kBlock;
  std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(kBlock, static_cast<size_t>(high - low)), &std::free);
  auto* bytes = static_cast<std::byte*>(block.get());
  memory_->file().read(bytes, static_cast<size_t>(high - low), low);
  if (in) {
    std::memcpy(bytes + (begin - low), in, static_cast<size_t>(count * unit));
    memory_->file().write(bytes, static_cast<size_t>(high - low), low);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* at = bytes + (begin - low) + i * unit;
    out[i] = b.dtype == DS_DTYPE_BF16 ? static_cast<float>(*reinterpret_cast<const bf16*>(at))
                                      : *reinterpret_cast<const float*>(at);
  }
}

void Engine::read_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, float* out) {
  const StateRef& ref = state_ref(plan_.zero.buckets.at(bucket), kind);
  transfer_state(ref.buffer, ref.first + begin - first(bucket), count, out, nullptr);
}

void Engine::write_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, const float* in) {
  const StateRef& ref = state_ref(plan_.zero.buckets.at(bucket), kind);
  transfer_state(ref.buffer, ref.first + begin - first(bucket), count, nullptr, in);
}

// A whole parameter's worth of a kind of which every rank holds `part` (all of the bucket when not
// partitioned).
std::vector<float> Engine::gather_part(int32_t param, const StateRef& part) {
  size_t b = static_cast<size_t>(plan_.zero.layout.bucket_of[static_cast<size_t>(param)]);
  int64_t numel = plan_.zero.layout.buckets[b].numel;
  std::vector<float> mine(static_cast<size_t>(part.numel)), all;
  transfer_state(part.buffer, part.first, part.numel, mine.data(), nullptr);
  if (part.numel < numel) {
    all.resize(static_cast<size_t>(numel));
    comm_.all_gather(mine.data(), all.data(), mine.size() * sizeof(float),
                     "read " + names_[static_cast<size_t>(param)]);
  } else {
    all = std::move(mine);
  }
  const ParamPlace& place = plan_.zero.layout.place(param);
  return {all.begin() + place.begin, all.begin() + place.begin + place.numel};
}

std::vector<float> Engine::read_tensor(int32_t param, const std::string& kind) {
  require(param >= 0 && static_cast<size_t>(param) < names_.size(), "param must be 0 to {}, got {}",
          names_.size() - 1, param);
  size_t b = static_cast<size_t>(plan_.zero.layout.bucket_of[static_cast<size_t>(param)]);
  const BucketState& s = plan_.zero.buckets[b];
  std::vector<float> out;
  guarded([&] {
    if (kind == "param") {
      StateRef whole = s.partitioned ? s.param : StateRef{s.full, 0, plan_.zero.layout.buckets[b].numel};
      out = gather_part(param, whole);
    } else if (kind == "grad") {
      BufferId grad = s.grad[static_cast<size_t>(plan_.zero.grad_top())];
      out = gather_part(param, {grad, 0, plan_.step.buffers[static_cast<size_t>(grad)].numel});
      float scale = 1.0f / static_cast<float>(config_.accumulation * comm_.size());
      for (float& g : out) g *= scale;
    } else if (kind == "master" || kind == "exp_avg" || kind == "exp_avg_sq") {
      const StateRef& ref = kind == "master" ? s.master : (kind == "exp_avg" ? s.m : s.v);
      out = gather_part(param, ref);
    }
  });
  require(!out.empty(), "kind must be param, master, exp_avg, exp_avg_sq or grad, got '{}'", kind);
  return out;
}

void Engine::write_tensor(int32_t param, const std::string& kind, std::span<const float> values) {
  require_idle("write_tensor");
  require(param >= 0 && static_cast<size_t>(param) < names_.size(), "param must be 0 to {}, got {}",
          names_.size() - 1, param);
  const ParamPlace& place = plan_.zero.layout.place(param);
  require(static_cast<int64_t>(values.size()) == place.numel, "parameter '{}' has {} elements, got {}",
          names_[static_cast<size_t>(param)], place.numel, values.size());
  int index = -1;
  for (int k = 0; k < kStateKinds; ++k) {
    if (kind == state_kind_name(static_cast<StateKind>(k))) index = k;
  }
  require(index >= 0, "kind must be master, exp_avg or exp_avg_sq, got '{}'", kind);
  size_t b = static_cast<size_t>(plan_.zero.layout.bucket_of[static_cast<size_t>(param)]);
  int64_t begin = std::max(place.begin, first(b)),
          end = std::min(place.begin + place.numel, first(b) + held(b));
  guarded([&] {
    if (begin < end) {
      write_state(static_cast<StateKind>(index), b, begin, end - begin,
                  values.data() + (begin - place.begin));
    }
    refresh_->run();
  });
}

std::string Engine::save(const std::string& folder, const Json& client, int keep) {
  require_idle("save");
  CheckpointInfo info;
  info.step = scalars_.step;
  info.seed = scalars_.seed;
  info.numerics_key = numerics_key();
  info.config = config_.effective();
  info.client = client;
  std::string path;
  guarded([&] { path = save_checkpoint(*this, folder, info, keep); });
  return path;
}

CheckpointInfo Engine::load(const std::string& path) {
  require_idle("load");
  CheckpointInfo info = load_checkpoint(*this, path);
  guarded([&] { refresh_->run(); });
  scalars_.step = info.step;
  scalars_.seed = info.seed;
  return info;
}

}  // namespace ds
