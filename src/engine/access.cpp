// Tensors by parameter and kind: whole ones together with all ranks, and what this rank holds of them.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "engine/core.h"

namespace ds {

void EngineCore::check_param(ParamId param) const {
  require(!names_.empty(), "param must be a parameter of the engine, which has none yet, got {}", param);
  require(names_.has(param), "param must be 0 to {}, got {}", names_.size() - 1, param);
}

int EngineCore::state_index(const std::string& kind) const {
  auto at = std::find(state_kinds_.begin(), state_kinds_.end(), kind);
  return at == state_kinds_.end() ? -1 : static_cast<int>(at - state_kinds_.begin());
}

BucketId EngineCore::bucket_of(ParamId param) const { return zero().layout.bucket_of[param]; }

EngineCore::Held EngineCore::held_of(ParamId param, const std::string& kind) {
  check_param(param);
  ensure_started();
  const std::string& name = names_[param];
  if (kind == "grad" && in_accumulation()) {
    raise(DS_ERROR_STATE,
          "gradient of '{}' must be read before the first or after the last backward of a step", name);
  }
  guarded([&] { settle(); });
  BucketId b = bucket_of(param);
  const BucketState& s = zero().buckets[b];
  if (kind == "param") {
    int cut = s.partitioned ? zero().policy.params : 0;
    return {{s.param.buffer, 0, zero().part(b, cut)}, cut};
  }
  if (kind == "grad" && state_kinds_.size() > 1) {
    if (is_frozen(param)) raise(DS_ERROR_STATE, "parameter '{}' is frozen: it has no gradient", name);
    int cut = zero().policy.grads;
    BufferId sum = s.sum();
    float scale = 1.0f / static_cast<float>(std::max<int64_t>(leaves_, 1));
    return {{sum, 0, zero().part(b, cut)}, cut, scale, zero().policy.states > 0};
  }
  int index = state_index(kind);
  require(index >= 0, "kind must be param, grad, {}, got '{}'", fmt::join(state_kinds_, ", "), kind);
  return {state_ref(b, static_cast<StateKind>(index)), zero().policy.states};
}

// Every rank gives one of the equal cuts of the bucket, which all layouts have it hold.
std::vector<float> EngineCore::gather_held(ParamId param, const Held& held) {
  BucketId b = bucket_of(param);
  const ParamPlace& place = zero().layout.place(param);
  const RankLevels& levels = zero().levels;
  std::vector<float> whole(static_cast<size_t>(zero().layout.buckets[b].numel));
  const StateRef& ref = held.ref;
  if (ref.buffer.exists() && held.cut == 0 && !held.own) {
    transfer_state(ref.buffer, ref.first, static_cast<int64_t>(whole.size()), whole.data(), nullptr);
  } else if (ref.buffer.exists()) {
    int64_t own = zero().part(b, levels.depth());
    std::vector<float> mine(static_cast<size_t>(own)), all(whole.size());
    int64_t first = ref.first + own_first(b) - zero().part_first(b, held.cut);
    transfer_state(ref.buffer, first, own, mine.data(), nullptr);
    comm_.all_gather(mine.data(), all.data(), mine.size() * sizeof(float), "read " + names_[param]);
    for (int r = 0; r < comm_.size(); ++r)
      std::copy_n(all.begin() + r * own, own, whole.begin() + levels.part(r, levels.depth()) * own);
  }
  return {whole.begin() + place.begin, whole.begin() + place.begin + place.numel};
}

std::vector<float> EngineCore::read_tensor(ParamId param, const std::string& kind) {
  if (kind == "param") require_refreshed();
  Held held = held_of(param, kind);
  std::vector<float> out = gather_held(param, held);
  if (held.scale != 1) {
    for (float& x : out) x *= held.scale;
  }
  return out;
}

std::pair<int64_t, int64_t> EngineCore::local_range(ParamId param) {
  check_param(param);
  require_started();
  BucketId b = bucket_of(param);
  const ParamPlace& place = zero().layout.place(param);
  int64_t begin = std::max(place.begin, first(b)),
          end = std::min(place.begin + place.numel, first(b) + held(b));
  return {begin < end ? begin - place.begin : 0, std::max(end - begin, int64_t{0})};
}

std::vector<float> EngineCore::read_local(ParamId param, const std::string& kind) {
  if (kind == "param") require_refreshed();
  auto [begin, count] = local_range(param);
  Held held = held_of(param, kind);
  std::vector<float> out(static_cast<size_t>(count));
  if (!held.ref.buffer.exists() || count == 0) return out;
  BucketId b = bucket_of(param);
  int64_t at = zero().layout.place(param).begin + begin - zero().part_first(b, held.cut);
  transfer_state(held.ref.buffer, held.ref.first + at, count, out.data(), nullptr);
  if (held.scale != 1) {
    for (float& x : out) x *= held.scale;
  }
  return out;
}

void EngineCore::check_writable(const char* call, ParamId param, const std::string& kind, size_t values,
                                int64_t wanted, bool local) {
  const std::string& name = names_[param];
  require(static_cast<int64_t>(values) == wanted, "parameter '{}' has {} elements, got {}", name, wanted,
          values);
  if (kind != "grad") {
    local ? require_unleased(call) : begin_change(call);
  } else if (!before_update()) {
    raise(DS_ERROR_STATE,
          "gradient of '{}' must be written between the last backward of a step and its update", name);
  } else if (zero().policy.state_tier == Tier::nvme) {
    raise(DS_ERROR_UNSUPPORTED, "gradient of '{}' lies on nvme, where none is written", name);
  }
  if (!held_of(param, kind).ref.buffer.exists())
    raise(DS_ERROR_STATE, "parameter '{}' was never trained: it has no {}", name, kind);
}

// Elements [begin, end) of the parameter, of which this rank writes those that it holds; values: from begin
// on.
void EngineCore::write_part(ParamId param, const std::string& kind, int64_t begin, int64_t end,
                            const float* values) {
  Held held = held_of(param, kind);
  BucketId b = bucket_of(param);
  int64_t place = zero().layout.place(param).begin, low = zero().part_first(b, held.cut);
  int64_t from = std::max(place + begin, low), to = std::min(place + end, low + zero().part(b, held.cut));
  if (from >= to) return;
  std::vector<float> scaled;
  const float* in = values + (from - place - begin);
  if (held.scale != 1) {
    for (int64_t i = 0; i < to - from; ++i) scaled.push_back(in[i] / held.scale);
    in = scaled.data();
  }
  transfer_state(held.ref.buffer, held.ref.first + from - low, to - from, nullptr, in);
}

// Sums of squares of the granules of a parameter's gradient that this rank updates.
void EngineCore::renew_norms(ParamId param) {
  auto [begin, count] = local_range(param);
  if (count == 0) return;
  BucketId b = bucket_of(param);
  const BucketState& s = zero().buckets[b];
  int64_t granule = (zero().layout.place(param).begin + begin - first(b)) / kGranule;
  int64_t granules = (count + kGranule - 1) / kGranule;
  std::vector<float> sums(static_cast<size_t>(granules * kGranule));
  BufferId sum = s.sum();
  transfer_state(sum, s.grad_first + granule * kGranule, granules * kGranule, sums.data(), nullptr);
  TensorView in, out;
  in.data = sums.data();
  in.dtype = DS_DTYPE_F32;
  out.data = address(zero().norms) + (s.norm_first + granule) * int64_t{sizeof(double)};
  out.dtype = DS_DTYPE_F64;
  in.rank = out.rank = 1;
  in.dims[0] = granules * kGranule;
  out.dims[0] = granules;
  Attrs none;
  const DType from = DS_DTYPE_F32, to = DS_DTYPE_F64;
  kernels_.find({"granule_norms", {&from, 1}, {&to, 1}, none})
      .run({{&in, 1}, {&out, 1}, none, scalars_, 0, *team_});
}

void EngineCore::grad_written(ParamId param, std::span<const float> values) {
  renew_norms(param);
  const std::string& name = names_[param];
  bool finite = std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  if (finite) bad_edits_.erase(name);
  if (!finite) bad_edits_.insert(name);
}

void EngineCore::write_tensor(ParamId param, const std::string& kind, std::span<const float> values) {
  if (kind == "param") return write_tensor(param, kMasterName, values);
  check_param(param);
  ensure_started();
  int64_t numel = zero().layout.place(param).numel;
  check_writable("ds_engine_write", param, kind, values.size(), numel, false);
  guarded([&] {
    write_part(param, kind, 0, numel, values.data());
    kind == "grad" ? grad_written(param, values) : renew_params();
  });
  forget_text();
}

void EngineCore::write_local(ParamId param, const std::string& kind, std::span<const float> values) {
  if (kind == "param") return write_local(param, kMasterName, values);
  auto [begin, count] = local_range(param);
  check_writable("ds_engine_write_local", param, kind, values.size(), count, true);
  write_part(param, kind, begin, begin + count, values.data());
  if (kind == "grad") grad_written(param, values);
  if (kind == kMasterName) unrefreshed_ = names_[param];
  forget_text();
}

void EngineCore::refresh_params() {
  begin_change("ds_engine_refresh");
  guarded([&] { renew_params(); });
  forget_text();
}

void EngineCore::renew_params() {
  refresh().run();
  unrefreshed_.clear();
}

void EngineCore::require_refreshed() const {
  if (unrefreshed_.empty()) return;
  raise(DS_ERROR_STATE,
        "ds_engine_refresh must be called on all ranks first: ds_engine_write_local has changed '{}' on this "
        "one",
        unrefreshed_);
}

}  // namespace ds
