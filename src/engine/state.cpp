#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "checkpoint/agree.h"
#include "checkpoint/weights.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "engine/core.h"

namespace ds {

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

// Without a buffer: what is not trained yet has no such state.
StateRef EngineCore::state_ref(size_t bucket, StateKind kind) const {
  const BucketState& s = zero().buckets.at(bucket);
  if (kind == StateKind::master) return s.master;
  return s.states.empty() ? StateRef{} : s.states.at(static_cast<size_t>(kind) - 1);
}

void EngineCore::read_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, float* out) {
  StateRef ref = state_ref(bucket, kind);
  if (ref.buffer < 0) {
    std::fill_n(out, count, 0.0f);
  } else {
    transfer_state(ref.buffer, ref.first + begin - first(bucket), count, out, nullptr);
  }
}

void EngineCore::write_state(StateKind kind, size_t bucket, int64_t begin, int64_t count, const float* in) {
  StateRef ref = state_ref(bucket, kind);
  if (ref.buffer < 0) return;
  overwriting_ = true;
  transfer_state(ref.buffer, ref.first + begin - first(bucket), count, nullptr, in);
}

// A bucket has states for the first time: its master is the parameter, the others are zero.
void EngineCore::begin_states(size_t bucket) {
  const BucketState& s = zero().buckets[bucket];
  std::vector<float> block(1 << 16);
  auto pieces = [&](auto&& body) {
    for (int64_t at = 0; at < held(bucket); at += static_cast<int64_t>(block.size()))
      body(at, std::min(static_cast<int64_t>(block.size()), held(bucket) - at));
  };
  for (const StateRef& state : s.states) {
    pieces([&](int64_t at, int64_t n) { transfer_state(state.buffer, at, n, nullptr, block.data()); });
  }
  if (s.master.buffer == s.param.buffer) return;
  pieces([&](int64_t at, int64_t n) {
    transfer_state(s.param.buffer, s.param.first + at, n, block.data(), nullptr);
    transfer_state(s.master.buffer, s.master.first + at, n, nullptr, block.data());
  });
}

void EngineCore::freeze(std::span<const int32_t> params, int32_t frozen) {
  guarded([] {});
  ensure_started();
  std::vector<char> wanted = zero().frozen;
  agree(comm_, "ds_engine_freeze", [&] {
    require_idle("ds_engine_freeze");
    if (state_kinds_.size() == 1) raise(DS_ERROR_STATE, "an engine for inference alone trains no parameter");
    require(params.data() || params.empty(), "params must not be NULL with params_count {}", params.size());
    require(frozen == 0 || frozen == 1, "frozen must be 0 or 1, got {}", frozen);
    for (int32_t p : params) {
      check_param(p);
      wanted[static_cast<size_t>(p)] = static_cast<char>(frozen);
    }
  });
  compare_frozen(wanted);
  set_frozen(wanted);
}

// Before anything changes: a plan of other parameters than the other ranks' is of no use.
void EngineCore::compare_frozen(const std::vector<char>& mine) {
  std::vector<char> all(mine.size() * static_cast<size_t>(comm_.size()));
  comm_.all_gather(mine.data(), all.data(), mine.size(), "frozen parameters");
  for (size_t i = mine.size(); i < all.size(); ++i) {
    size_t p = i % mine.size(), rank = i / mine.size();
    if (all[i] == all[p]) continue;
    raise(DS_ERROR_INVALID_ARGUMENT, "ds_engine_freeze: parameter '{}' would be {} on rank 0, {} on rank {}",
          names_[p], all[p] ? "frozen" : "trained", all[i] ? "frozen" : "trained", rank);
  }
}

void EngineCore::set_frozen(const std::vector<char>& wanted) {
  std::vector<size_t> fresh;
  for (size_t b = 0; b < zero().buckets.size(); ++b) {
    if (zero().buckets[b].grad.empty()) fresh.push_back(b);
  }
  guarded([&] { settle(); });
  recompile(wanted);
  guarded([&] {
    for (size_t b : fresh) {
      if (!zero().buckets[b].grad.empty()) begin_states(b);
    }
  });
  forget_text();
}

std::string EngineCore::save(const std::string& folder, const Json& client, int keep) {
  require_idle("ds_checkpoint_save");
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
  require_idle("ds_checkpoint_load_model");
  overwrite([&] { ds::load_weights(*this, folder); });
}

void EngineCore::save_weights(const std::string& folder, const std::string& like) {
  require_idle("ds_checkpoint_save_model");
  guarded([] {});  // a poisoned engine saves nothing; a folder that cannot be written poisons none
  ds::save_weights(*this, folder, like);
}

CheckpointInfo EngineCore::load(const std::string& path) {
  require_idle("ds_checkpoint_load");
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
