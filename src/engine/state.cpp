#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "checkpoint/agree.h"
#include "checkpoint/weights.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "engine/core.h"
#include "engine/numerics.h"

namespace ds {

// Copies between the caller and a persistent buffer in any tier.
void EngineCore::transfer_state(BufferId id, int64_t element, int64_t count, float* out, const float* in) {
  const Buffer& b = placed().buffers[id];
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
StateRef EngineCore::state_ref(BucketId bucket, StateKind kind) const {
  const BucketState& s = zero().buckets.at(bucket);
  if (kind == StateKind::master) return s.master;
  return s.states.empty() ? StateRef{} : s.states.at(static_cast<size_t>(kind) - 1);
}

void EngineCore::read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count, float* out) {
  StateRef ref = state_ref(bucket, kind);
  if (!ref.buffer.exists()) {
    std::fill_n(out, count, 0.0f);
  } else {
    transfer_state(ref.buffer, ref.first + begin - first(bucket), count, out, nullptr);
  }
}

void EngineCore::write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count, const float* in) {
  StateRef ref = state_ref(bucket, kind);
  if (!ref.buffer.exists()) {
    dropped_ = dropped_ || std::any_of(in, in + count, [](float x) { return x != 0; });
    return;
  }
  overwriting_ = true;
  transfer_state(ref.buffer, ref.first + begin - first(bucket), count, nullptr, in);
}

std::string EngineCore::save(const std::string& folder, const Json& client, const Keep& keep) {
  require_idle("ds_checkpoint_save");
  CheckpointInfo info;
  info.step = scalars_.step;
  info.seed = scalars_.seed;
  info.numerics_key = numerics_key();
  info.frozen = frozen_names();
  if (state_kinds_.size() > 1) info.updates = named_updates();
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
  guarded([&] { renew_params(); });
  forget_text();
}

void EngineCore::load_weights(const std::string& folder) {
  begin_change("ds_checkpoint_load_model");
  overwrite([&] { ds::load_weights(*this, folder); });
}

void EngineCore::save_weights(const std::string& folder, const std::string& like) {
  require_idle("ds_checkpoint_save_model");
  guarded([] {});  // a poisoned engine saves nothing; a folder that cannot be written poisons none
  ds::save_weights(*this, folder, like);
}

CheckpointInfo EngineCore::load(const std::string& folder) {
  begin_change("ds_checkpoint_load");
  guarded([&] { settle(); });
  std::string path = on_root(comm_, "checkpoint", [&] { return find_checkpoint(folder); });
  for (;;) {
    const IdVector<ParamId, char> frozen = zero().frozen;
    const IdVector<ParamId, int64_t> updates =
        state_kinds_.size() > 1 ? own_updates() : std::vector<int64_t>();
    try {
      return load_one(path);
    } catch (const Error& error) {  // of every rank, and unless it poisons before any state has changed
      if (error.status() == DS_ERROR_COMM || error.status() == DS_ERROR_POISONED) throw;
      if (agree_max(comm_, poison_.empty() ? 0 : 1, "refused checkpoint") != 0) {
        if (poison_.empty()) poison(error);  // another rank has read a part of it
        throw;
      }
      if (frozen != zero().frozen) set_trained(frozen, updates);
      if (error.status() != DS_ERROR_CORRUPT && error.status() != DS_ERROR_IO) throw;
      std::string older =
          on_root(comm_, "older checkpoint", [&] { return find_older_checkpoint(folder, path); });
      if (older.empty()) throw;
      if (comm_.rank() == 0) {
        log_line(LogLevel::warning, fmt::format("{}; checkpoint '{}' is skipped for the one before, '{}'",
                                                error.what(), path, older));
      }
      path = older;
    }
  }
}

CheckpointInfo EngineCore::load_one(const std::string& path) {
  bool training = state_kinds_.size() > 1;  // only then does anything follow
  CheckpointInfo info;
  dropped_ = false;
  const IdVector<ParamId, char> frozen = zero().frozen;
  overwrite([&] {
    info = load_checkpoint(*this, path, [&](const CheckpointInfo& saved) {
      if (training) follow_frozen(saved);
    });
  });
  if (frozen != zero().frozen && comm_.rank() == 0) {
    log_line(LogLevel::info,
             fmt::format("checkpoint '{}' has {} of {} parameters frozen, and so has this engine", path,
                         frozen_names().size(), names_.size()));
  }
  if (training) tell_differences(path, info);
  scalars_.step = info.step;
  scalars_.seed = info.seed;
  if (training) set_trained(zero().frozen, updates_of(info));
  return info;
}

// From the bits of a run that would have gone on where the checkpoint was saved. Collective.
void EngineCore::tell_differences(const std::string& path, const CheckpointInfo& saved) {
  bool dropped = agree_max(comm_, dropped_ ? 1 : 0, "dropped states") != 0;
  if (comm_.rank() != 0) return;
  std::string other = frozen_difference(saved);
  if (!other.empty()) {
    log_line(LogLevel::warning,
             fmt::format("checkpoint '{}': {}: this engine's setting stands", path, other));
  } else if (std::string parts = numerics_difference(saved.numerics_key, numerics_key()); !parts.empty()) {
    log_line(LogLevel::warning,
             fmt::format("checkpoint '{}' has another numerics key: {}: what follows will agree, but not bit "
                         "for bit",
                         path, parts));
  }
  if (dropped) {
    log_line(LogLevel::warning,
             fmt::format("checkpoint '{}' has optimizer states of parameters that are frozen here from the "
                         "beginning: they are dropped{}, and the next checkpoint has zeros in their place",
                         path, config_.compute == DS_DTYPE_F32 ? "" : ", masters are rounded"));
  }
}

}  // namespace ds
