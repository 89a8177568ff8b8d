#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "checkpoint/weights.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "engine/core.h"

namespace ds {

namespace {

const StateRef& state_ref(const BucketState& s, StateKind kind) {
  return kind == StateKind::master ? s.master : s.states.at(static_cast<size_t>(kind) - 1);
}

}  // namespace

// Copies between the caller and a persistent buffer in any tier.
void EngineCore::transfer_state(BufferId id, int64_t element, int64_t count, float* out, const float* in) {
  const Buffer& b = placed().buffers[static_cast<size_t>(id)];
  if (b.tier == Tier::nvme) return transfer_file(b, element, count, out, in);
  std::byte* data = address(id) + element * size_of(b.dtype);
  if (in) narrow(b.dtype, in, count, data);
  if (out) widen(b.dtype, data, count, out);
}

// Files are read and written by whole blocks.
void EngineCore::transfer_file(const Buffer& b, int64_t element, int64_t count, float* out, const float* in) {
  settle();
  int64_t unit = size_of(b.dtype);
  int64_t begin = b.offset + element * unit, end = begin + count * unit;
  int64_t low = begin / kFileBlock * kFileBlock, high = (end + kFileBlock - 1) / kFileBlock * kFileBlock;
  size_t size = static_cast<size_t>(high - low);
  std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kFileBlock, size), &std::free);
  auto* bytes = static_cast<std::byte*>(block.get());
  memory_->file().read(bytes, size, low);
  if (in) {
    narrow(b.dtype, in, count, bytes + (begin - low));
    memory_->file().write(bytes, size, low);
  }
  if (out) widen(b.dtype, bytes + (begin - low), count, out);
}

void EngineCore::read_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, float* out) {
  const StateRef& ref = state_ref(zero().buckets.at(bucket), kind);
  transfer_state(ref.buffer, ref.first + begin - first(bucket), count, out, nullptr);
}

void EngineCore::write_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, const float* in) {
  const StateRef& ref = state_ref(zero().buckets.at(bucket), kind);
  overwriting_ = true;
  transfer_state(ref.buffer, ref.first + begin - first(bucket), count, nullptr, in);
}

// A whole parameter's worth of a kind of which every rank holds `part`, its part of a cut over `cut` levels.
std::vector<float> EngineCore::gather_part(int32_t param, const StateRef& part, int cut) {
  size_t b = static_cast<size_t>(zero().layout.bucket_of[static_cast<size_t>(param)]);
  const RankLevels& levels = zero().levels;
  std::vector<float> whole(static_cast<size_t>(zero().layout.buckets[b].numel));
  if (part.numel == zero().layout.buckets[b].numel) {
    transfer_state(part.buffer, part.first, part.numel, whole.data(), nullptr);
  } else {
    int64_t own = zero().part(b, levels.depth());  // of which every rank gives one
    std::vector<float> mine(static_cast<size_t>(own)), all(whole.size());
    int64_t first = part.first + own_first(b) - zero().part_first(b, cut);
    transfer_state(part.buffer, first, own, mine.data(), nullptr);
    comm_.all_gather(mine.data(), all.data(), mine.size() * sizeof(float),
                     "read " + names_[static_cast<size_t>(param)]);
    for (int r = 0; r < comm_.size(); ++r)
      std::copy_n(all.begin() + r * own, own, whole.begin() + levels.part(r, levels.depth()) * own);
  }
  const ParamPlace& place = zero().layout.place(param);
  return {whole.begin() + place.begin, whole.begin() + place.begin + place.numel};
}

void EngineCore::check_param(int32_t param) const {
  require(param >= 0 && static_cast<size_t>(param) < names_.size(), "param must be 0 to {}, got {}",
          static_cast<int64_t>(names_.size()) - 1, param);
}

int EngineCore::state_index(const std::string& kind) const {
  auto at = std::find(state_kinds_.begin(), state_kinds_.end(), kind);
  return at == state_kinds_.end() ? -1 : static_cast<int>(at - state_kinds_.begin());
}

std::vector<float> EngineCore::read_tensor(int32_t param, const std::string& kind) {
  check_param(param);
  ensure_started();
  if (kind == "grad" && in_accumulation()) {
    raise(DS_ERROR_STATE,
          "gradient of '{}' must be read before the first or after the last backward of a step",
          names_[static_cast<size_t>(param)]);
  }
  guarded([&] { settle(); });
  size_t b = static_cast<size_t>(zero().layout.bucket_of[static_cast<size_t>(param)]);
  const BucketState& s = zero().buckets[b];
  if (kind == "param") {
    int cut = s.partitioned ? zero().policy.params : 0;
    return gather_part(param, {s.param.buffer, 0, zero().part(b, cut)}, cut);
  }
  if (kind == "grad" && !s.grad.empty()) {
    BufferId grad = s.grad[static_cast<size_t>(zero().grad_top())];
    std::vector<float> out =
        gather_part(param, {grad, 0, zero().part(b, zero().policy.grads)}, zero().policy.grads);
    float scale = 1.0f / static_cast<float>(config_.accumulation * comm_.size());
    for (float& g : out) g *= scale;
    return out;
  }
  int index = state_index(kind);
  require(index >= 0, "kind must be param, grad, {}, got '{}'", fmt::join(state_kinds_, ", "), kind);
  return gather_part(param, state_ref(s, static_cast<StateKind>(index)), zero().policy.states);
}

void EngineCore::write_tensor(int32_t param, const std::string& kind, std::span<const float> values) {
  require_idle("write_tensor");
  check_param(param);
  const ParamPlace& place = zero().layout.place(param);
  require(static_cast<int64_t>(values.size()) == place.numel, "parameter '{}' has {} elements, got {}",
          names_[static_cast<size_t>(param)], place.numel, values.size());
  int index = state_index(kind);
  require(index >= 0, "kind must be one of {}, got '{}'", fmt::join(state_kinds_, ", "), kind);
  size_t b = static_cast<size_t>(zero().layout.bucket_of[static_cast<size_t>(param)]);
  int64_t begin = std::max(place.begin, first(b)),
          end = std::min(place.begin + place.numel, first(b) + held(b));
  guarded([&] {
    if (begin < end) {
      write_state(static_cast<StateKind>(index), b, begin, end - begin,
                  values.data() + (begin - place.begin));
    }
    refresh().run();
  });
  forget_text();
}

std::string EngineCore::save(const std::string& folder, const Json& client, int keep) {
  require_idle("save");
  CheckpointInfo info;
  info.step = scalars_.step;
  info.seed = scalars_.seed;
  info.numerics_key = numerics_key();
  info.config = config_.effective();
  info.client = client;
  guarded([&] { settle(); });
  return save_checkpoint(*this, folder, info, keep);  // a folder that cannot be written changes nothing here
}

// Runs `body`, which writes states, then renews the parameters. An error after the first state poisons.
void EngineCore::overwrite(const std::function<void()>& body) {
  overwriting_ = false;
  try {
    body();
  } catch (const std::exception& error) {
    if (overwriting_) poison(error);
    throw;
  }
  guarded([&] { refresh().run(); });
  forget_text();
}

void EngineCore::load_weights(const std::string& folder) {
  require_idle("load_weights");
  overwrite([&] { ds::load_weights(*this, folder); });
}

void EngineCore::save_weights(const std::string& folder, const std::string& like) {
  require_idle("save_weights");
  guarded([] {});  // a poisoned engine saves nothing; a folder that cannot be written poisons none
  ds::save_weights(*this, folder, like);
}

CheckpointInfo EngineCore::load(const std::string& path) {
  require_idle("load");
  guarded([&] { settle(); });
  CheckpointInfo info;
  overwrite([&] { info = load_checkpoint(*this, path); });
  bool training = state_kinds_.size() > 1;  // only then does anything follow
  if (training && info.numerics_key != numerics_key() && comm_.rank() == 0) {
    log_line(
        LogLevel::warning,
        fmt::format("checkpoint '{}' has numerics key '{}', this engine '{}': what follows will agree, but "
                    "not bit for bit",
                    path, info.numerics_key, numerics_key()));
  }
  scalars_.step = info.step;
  scalars_.seed = info.seed;
  return info;
}

}  // namespace ds
