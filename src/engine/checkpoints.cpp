// Problem: state is written to files and read back, while a rank may fail, a file may be damaged,
// or the engine may differ from the one that saved the files. Invariant: an error before the first
// state has changed leaves the engine as it was; a later error poisons every rank, because no rank
// may continue with half of a checkpoint. So everything that can be refused (names, shapes, hashes)
// is checked first, and ranks agree on whether any state has changed before they try an older
// checkpoint. An engine that has done nothing yet, as in a resume, does not need the check: its
// states can be computed again, so it reads files only once and, if they are refused, restores its
// initial states.
#include "engine/checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <utility>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/agree.h"
#include "checkpoint/attachments.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/weights_load.h"
#include "checkpoint/weights_save.h"
#include "checkpoint/writer.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/name.h"
#include "core/base/utf8.h"
#include "core/base/version.h"
#include "engine/numerics.h"
#include "io/file.h"
#include "kernels/cpu/kernel_facts.h"
#include "nn/adapter_keys.h"
#include "nn/adapter_names.h"

namespace ds {

bool Checkpoints::has_adapter() const { return runtime_.config().get<AdapterKeys>().on(); }

// Returns whether the frozen parameters are those of the folder in base_. Collective.
bool Checkpoints::base_unchanged() {
  take_writes();
  return agree_max(runtime_.comm(), base_written_ ? 1 : 0, "base of the adapter") == 0;
}

StateStore::Writes Checkpoints::take_writes() {
  const StateStore::Writes writes = store_.take_writes();
  base_written_ = base_written_ || writes.untrained;
  return writes;
}

// Collective if a base was loaded.
CheckpointInfo Checkpoints::info_of(const Json& client, const std::string& tag) {
  CheckpointInfo info;
  if (!base_.is_null() && base_unchanged()) {
    info.base = base_;
    info.base.set("adapters", product_keys(runtime_.config().get<AdapterKeys>()));
    for (ParamId p : store_.param_names().ids())
      info.left_out.push_back(!is_adapter_param(store_.param_names()[p]) &&
                              !store_.zero().trained.begun[p]);
  }
  info.step = control_.steps();
  info.skipped = control_.steps() - control_.updates();
  info.seed = control_.scalars().seed;
  info.set_numbers = control_.set_numbers();
  if (runtime_.config().scales_loss()) info.scaler = control_.scaler();
  info.numerics_key = numerics_key();
  if (trained_) {
    info.frozen = trained_->frozen_names();
    info.frozen_with_states = trained_->frozen_names_with_states();
    info.updates = trained_->late_updates();
  }
  info.config = runtime_.config().effective();
  info.client = client;
  info.attached = attached_;
  info.tag = tag;
  return info;
}

Keep Checkpoints::kept(const Keep& keep) const {
  Keep out = keep;
  if (out.also.empty()) out.also = loaded_;
  return out;
}

std::string Checkpoints::save(const std::string& folder, const Json& client, const Keep& keep,
                              const std::string& tag) {
  store_.owner().require_idle("ds_checkpoint_save");
  wait();
  CheckpointInfo info = info_of(client, tag);
  runtime_.guarded([&] { runtime_.settle(); });
  // The save is not guarded, because the engine is still usable after a failure to write to a
  // folder.
  std::string path = save_checkpoint(store_, folder, info, kept(keep));
  attached_.reset();
  return path;
}

void Checkpoints::start_save(const std::string& folder, const Json& client, const Keep& keep,
                             const std::string& tag) {
  store_.owner().require_idle("ds_checkpoint_save");
  wait();
  CheckpointInfo info = info_of(client, tag);
  runtime_.guarded([&] { runtime_.settle(); });
  started_ =
      std::make_unique<StartedSave>(store_, folder, info, kept(keep), runtime_.comm().timeout_ms());
  saving_ = std::move(attached_);
}

void Checkpoints::attach(const std::string& name, Attachment attachment) {
  require(!name.empty(), "name must not be empty");
  require(name.size() <= kMostName, "name must have at most {} bytes, got {}", kMostName,
          name.size());
  require(is_utf8(name), "name must be UTF-8, got '{}'", TensorName(name));
  require(name != "__metadata__", "name must not be '{}', which safetensors files reserve", name);
  if (!attached_) attached_ = std::make_shared<Attachments>();
  require(attached_->size() < kMostAttachments || attached_->contains(name),
          "a rank can attach at most {} tensors to a checkpoint, '{}' is one more",
          kMostAttachments, TensorName(name));
  attached_->insert_or_assign(name, std::move(attachment));
}

Attachment Checkpoints::attachment(const std::string& name, int32_t rank) const {
  require(rank >= 0, "rank must be at least 0, got {}", rank);
  if (source_.empty())
    raise(DS_ERROR_STATE, "attachment '{}': this engine has loaded no checkpoint yet",
          TensorName(name));
  if (is_absent(source_ + "/" + std::string(kManifestName)))
    raise(DS_ERROR_IO,
          "attachment '{}': checkpoint '{}', which was loaded, does not exist any more",
          TensorName(name), source_);
  const Manifest manifest = read_manifest(source_);
  if (manifest.hash != source_hash_)
    raise(DS_ERROR_IO, "attachment '{}': checkpoint '{}' is another one than was loaded",
          TensorName(name), source_);
  return read_attachment(manifest, source_, static_cast<size_t>(rank), name);
}

std::string Checkpoints::wait() {
  if (!started_) return "";
  hasten();
  std::unique_ptr<StartedSave> save = std::move(started_);
  const std::shared_ptr<Attachments> saved = std::move(saving_);
  try {
    return save->wait();
  } catch (...) {
    // The next save gets the attachments of this failed one, except those that were replaced since.
    if (saved && attached_) attached_->merge(*saved);
    if (saved && !attached_) attached_ = saved;
    throw;
  }
}

// Runs body, which writes states, then computes the parameters from them. An error after the first
// written state poisons the engine.
void Checkpoints::overwrite(const std::function<void()>& body) {
  take_writes();
  try {
    body();
  } catch (const std::exception& error) {
    if (take_writes().overwritten) runtime_.poison(error);
    throw;
  }
  runtime_.guarded([&] { store_.renew_params(); });
  store_.changed();
}

void Checkpoints::load_weights(const std::string& folder) {
  store_.owner().begin_change("ds_checkpoint_load_model");
  wait();
  std::string hash;
  if (has_adapter()) {
    hash = on_root(runtime_.comm(), "hash of the base", [&] {
      if (!is_adapter_folder(folder)) return base_hash(folder);
      check_factors(folder, runtime_.config().get<AdapterKeys>(), store_.param_names());
      return std::string();
    });
  }
  overwrite([&] { ds::load_weights(store_, folder); });
  if (hash.empty()) return;
  base_ = Json::Object{{"folder", std::filesystem::absolute(folder).lexically_normal().string()},
                       {"hash", hash}};
  base_loaded_();
  take_writes();
  base_written_ = false;
}

void Checkpoints::load_other_adapters() {
  for (const AdapterKeys& other : runtime_.config().get<AdapterKeys>().others)
    overwrite([&] { ds::load_weights(store_, other.folder, other.name); });
  take_writes();
}

void Checkpoints::save_weights(const std::string& folder, const std::string& like) {
  store_.owner().require_idle("ds_checkpoint_save_model");
  wait();
  // A poisoned engine saves nothing. The save itself is not guarded, because a failure to write to
  // a folder must not poison the engine.
  runtime_.guarded([] {});
  if (!has_adapter()) return ds::save_weights(store_, folder, like);
  if (!base_.is_null() && !base_unchanged())
    raise(DS_ERROR_STATE,
          "the base '{}' has changed since it was loaded, and the folder of an adapter has no room "
          "for that: name its modules in adapter.modules_to_save, or save a checkpoint",
          base_.at("folder").string());
  const AdapterKeys& keys = runtime_.config().get<AdapterKeys>();
  const IdVector<ParamId, std::string>& names = store_.param_names();
  const IdVector<ParamId, char> saved = saved_with_adapter(keys, names);
  for (ParamId p : names.ids()) {
    if (saved[p] || store_.zero().trained.begun[p] == 0) continue;
    raise(
        DS_ERROR_STATE,
        "parameter '{}' of the base was trained, and the folder of an adapter has no room for it: "
        "name its module in adapter.modules_to_save, or save a checkpoint",
        TensorName(names[p]));
  }
  // A base that was drawn at random has no folder.
  const bool drawn = base_.is_null() && runtime_.config().model.init == "random";
  const std::string base = drawn ? "" : base_.is_null() ? like : base_.at("folder").string();
  save_adapter(store_, keys, folder, base);
  for (const AdapterKeys& other : keys.others)
    save_adapter(store_, other, folder + "/" + other.name, base);
}

// Loads the base of a checkpoint that leaves it out, unless it is loaded already, from the folder
// that the configuration names or else from that of the checkpoint. Throws if the
// weights in its folder, or those that are loaded, are others than the run's. Collective.
void Checkpoints::provide_base(const std::string& path) {
  const std::string text = on_root(runtime_.comm(), "base of the checkpoint",
                                   [&] { return read_checkpoint_info(path).base.dump(); });
  const Json base = Json::parse(text);
  if (base.is_null()) {
    base_ = {};
    return;
  }
  check_product_keys(runtime_.config().get<AdapterKeys>(), base.at("adapters"), path);
  const std::string &folder = base.at("folder").string(), &hash = base.at("hash").string();
  // A base that has moved is named by the configuration; its hash must be the same.
  const std::string& named = runtime_.config().model.folder;
  if (base_.is_null()) {
    load_weights(named.empty() ? folder : named);
  } else if (!base_unchanged()) {
    load_weights(base_.at("folder").string());
  }
  if (base_.at("hash").string() == hash) return;
  raise(DS_ERROR_CONFIG,
        "checkpoint '{}' was trained on base '{}' with hash {}, the weights in '{}' have {}: the "
        "base has changed",
        path, folder, hash, base_.at("folder").string(), base_.at("hash").string());
}

CheckpointInfo Checkpoints::load(const std::string& folder, const std::string& tag) {
  store_.owner().begin_change("ds_checkpoint_load");
  wait();
  runtime_.guarded([&] { runtime_.settle(); });
  std::string path =
      on_root(runtime_.comm(), "checkpoint", [&] { return find_checkpoint(folder, tag); });
  // Each iteration tries one checkpoint: first the checkpoint that was found, then older ones. If
  // a checkpoint is refused, the trained set that it may have changed is restored.
  for (;;) {
    const TrainedParams before = store_.zero().trained;
    const IdVector<ParamId, int64_t> updates =
        trained_ ? trained_->own_updates() : IdVector<ParamId, int64_t>();
    try {
      if (has_adapter()) provide_base(path);
      return load_one(path);
    } catch (const Error& error) {
      // The error is thrown on all ranks. Unless the engine is poisoned, no state has changed yet.
      if (error.status() == DS_ERROR_COMM || error.status() == DS_ERROR_POISONED) throw;
      if (agree_max(runtime_.comm(), runtime_.poisoned() ? 1 : 0, "refused checkpoint") != 0) {
        // Another rank has already read a part of the checkpoint.
        if (!runtime_.poisoned()) runtime_.poison(error);
        throw;
      }
      if (trained_ && before.frozen != store_.zero().trained.frozen)
        trained_->set(before.frozen, before.begun, updates);
      if (error.status() != DS_ERROR_CORRUPT && error.status() != DS_ERROR_IO) throw;
      std::string older = on_root(runtime_.comm(), "older checkpoint",
                                  [&] { return find_older_checkpoint(folder, path, tag); });
      if (older.empty()) throw;
      if (runtime_.comm().rank() == 0) {
        log_line(LogLevel::warning,
                 fmt::format("{}; checkpoint '{}' is skipped, and the previous one is used, '{}'",
                             error.what(), path, older));
      }
      path = older;
    }
  }
}

// Returns whether states can be computed again because nothing has changed since the engine was
// created. Initial values that a host provided cannot be computed, and the host is asked only once.
bool Checkpoints::restorable(const CheckpointInfo& saved) const {
  return restart_ && store_.version() == 0 && !runtime_.options().initial &&
         !(trained_ && trained_->would_change(saved));
}

void Checkpoints::restore() {
  runtime_.guarded([&] {
    store_.own_states().forget();
    restart_();
  });
  take_writes();
}

CheckpointInfo Checkpoints::load_one(const std::string& path) {
  CheckpointInfo info;
  const IdVector<ParamId, char> frozen = store_.zero().trained.frozen;
  overwrite([&] {
    LoadCalls calls;
    calls.restorable = [&](const CheckpointInfo& saved) { return restorable(saved); };
    calls.checked = [&](const CheckpointInfo& saved) {
      if (trained_) trained_->follow(saved);
    };
    calls.restore = [&] { restore(); };
    info = load_checkpoint(store_, path, calls);
  });
  if (trained_ && frozen != store_.zero().trained.frozen && runtime_.comm().rank() == 0) {
    log_line(LogLevel::info,
             fmt::format("checkpoint '{}' has {} of {} parameters frozen, and so has this engine",
                         path, trained_->frozen_names().size(), store_.param_names().size()));
  }
  if (trained_) tell_differences(path, info);
  control_.resume(info.step, info.updates_taken(), info.seed);
  control_.take_set(info.set_numbers);
  if (info.scaler) control_.take_scaler(*info.scaler);
  if (trained_) trained_->take_updates(info);
  source_ = std::filesystem::absolute(path);
  source_hash_ = info.hash;
  loaded_ = tag_of_checkpoint(path).empty() ? "" : path;
  return info;
}

namespace {

// Returns the rule of the loss scale, on which the bits of f16 gradients depend.
std::string loss_scale_text(const LossScaleConfig& c) {
  if (c.loss_scale > 0) return fmt::format("{}", c.loss_scale);
  return fmt::format("2^{}/{}/{}{}/{}", c.initial_scale_power, c.window, c.hysteresis,
                     c.consecutive_hysteresis ? "c" : "", c.min_loss_scale);
}

}  // namespace

// Logs the differences between this engine and the saved run that may change bits. Collective.
void Checkpoints::tell_differences(const std::string& path, const CheckpointInfo& saved) {
  bool dropped = agree_max(runtime_.comm(), take_writes().dropped ? 1 : 0, "dropped states") != 0;
  if (runtime_.comm().rank() != 0) return;
  std::string other = trained_->difference(saved);
  if (!other.empty()) {
    log_line(LogLevel::warning,
             fmt::format("checkpoint '{}': {}: this engine's setting applies", path, other));
  } else if (std::string parts =
                 numerics_difference({saved.numerics_key, "there"}, {numerics_key(), "here"});
             !parts.empty()) {
    log_line(
        LogLevel::warning,
        fmt::format(
            "checkpoint '{}' has another numerics key: {}: what follows will agree{}, but not bit "
            "for bit",
            path, parts, parts.starts_with("model ") ? " as far as the model is the same" : ""));
  }
  if (dropped) {
    log_line(LogLevel::warning,
             fmt::format(
                 "checkpoint '{}' has optimizer states of parameters that are frozen here from the "
                 "beginning: they are dropped{}, and the next checkpoint has zeros in their place",
                 path, runtime_.config().compute == DS_DTYPE_F32 ? "" : ", masters are rounded"));
  }
}

namespace {

// Returns the type of the optimizer with the method of Muon, the types of masters and states if
// they are not f32, and "stochastic" if that is how they are rounded: "AdamW bf16 masters bf16
// states".
std::string optimizer_text(const OptimizerConfig& o) {
  std::string text = o.type;
  if (o.type == "Muon") text += " " + o.ns_method;
  if (o.masters != DS_DTYPE_F32) text += fmt::format(" {} masters", dtype_name(o.masters));
  if (o.states != DS_DTYPE_F32) text += fmt::format(" {} states", dtype_name(o.states));
  return text + (o.stochastic ? " stochastic" : "");
}

}  // namespace

std::string Checkpoints::numerics_key() const {
  const Config& config = runtime_.config();
  const ZeroPlan& zero = store_.zero();
  // Bits do not depend on the number of ranks if sums are reproducible, unless quantization
  // computes a scale from the elements of one rank.
  bool any_ranks = config.reproducible && zero.quantization.gradients == 0 &&
                   !config.optimizer.compressed() && !config.gradient_compression.on();
  NumericsParts parts = {
      {"model", hash_hex(store_.owner().model_text()).substr(0, 16)},
      {"micro_batch", std::to_string(config.micro_batch)},
      {"leaves", std::to_string(config.accumulation * runtime_.mesh().data_size())},
      {"ranks", any_ranks ? "any" : std::to_string(runtime_.mesh().data_size())},
      {"dtype", dtype_name(config.compute)},
      {"reduction", zero.tree       ? "tree"
                    : zero.boundary ? "boundary"
                                    : "micro"},
      {"optimizer", optimizer_text(config.optimizer)},
      {"libds", library_version()}};
  if (config.by_tokens()) parts.emplace_back("loss_average", config.loss_average);
  if (config.gradient_compression.on())
    parts.emplace_back("compressed",
                       config.gradient_compression.type +
                           (config.gradient_compression.type == "top_k"
                                ? fmt::format(" {}", config.gradient_compression.ratio)
                                : ""));
  if (config.autocast.enabled) parts.emplace_back("autocast", config.autocast.dtype);
  if (zero.wire != config.compute) parts.emplace_back("communication", dtype_name(zero.wire));
  if (config.grad_accum != DS_DTYPE_F32) parts.emplace_back("sums", dtype_name(config.grad_accum));
  if (config.scales_loss()) parts.emplace_back("loss_scale", loss_scale_text(config.loss_scale));
  for (auto& fact : numerics_of_kernels(runtime_.kernels(), runtime_.device()->kind()))
    parts.push_back(std::move(fact));
  if (std::string codes = zero.quantization_key(config.zero); !codes.empty())
    parts.emplace_back("quantized", codes.substr(1));
  return numerics_text(parts);
}

}  // namespace ds
