#include "checkpoint/deepspeed/files.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "checkpoint/deepspeed/json.h"
#include "checkpoint/state_access.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/config/loss_scaler.h"
#include "core/graph/graph.h"
#include "io/pickle.h"

namespace ds::deepspeed {
namespace {

using Kind = PickleValue::Kind;
constexpr size_t kMostOpen = 256;
// These limits are above the sizes of known models. They keep sums of sizes within 64 bits, and
// searches by name fast.
constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr size_t kMostParams = 200'000, kMostMembers = 20'000;

int64_t count_of(const TorchFile& file, const PickleValue& dict, std::string_view key) {
  const PickleValue* value = file.pickle().find(dict, key);
  if (!value || value->kind == Kind::none) return 0;
  if (value->kind != Kind::integer || value->integer < 0 || value->integer > int64_t{1} << 53)
    raise(DS_ERROR_CORRUPT, "{}: '{}' is not a count", file.path(), key);
  return value->integer;
}

std::optional<TorchView> buffer_view(const TorchFile& file, const std::string& name,
                                     const PickleValue& value) {
  try {
    return file.view(value);
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_UNSUPPORTED) throw;
    raise(DS_ERROR_UNSUPPORTED, "buffer '{}': {}", TensorName(name), error.what());
  }
}

}  // namespace

size_t TorchFiles::add(const std::string& path) {
  files_.push_back(std::make_unique<TorchFile>(path));
  if (parts_ == SourceParts::all) files_.back()->check();
  at(files_.size() - 1);
  return files_.size() - 1;
}

void TorchFiles::check(size_t file, const TorchData& data) {
  if (parts_ == SourceParts::masters && checked_.emplace(file, data.storage).second)
    at(file).check(data);
}

// Returns a file, reopening it if necessary. At most kMostOpen files stay open.
TorchFile& TorchFiles::at(size_t file) {
  // `open_` is in the order of opening, not of use, so the file opened first is closed first.
  if (!contains(open_, file)) {
    open_.push_back(file);
    if (open_.size() > kMostOpen) {
      files_[open_.front()]->close();
      open_.pop_front();
    }
  }
  return *files_[file];
}

void TorchFiles::forget() {
  for (auto& file : files_) file->forget();
}

int64_t length(const FlatLine& line) {
  int64_t all = 0;
  for (const LinePart& part : line) all += part.tensor.numel;
  return all;
}

void cut(const FlatLine& line, int64_t from, int64_t count, int64_t begin, std::vector<Run>& out) {
  int64_t first = 0;
  for (const LinePart& part : line) {
    int64_t low = std::max(first, from), high = std::min(first + part.tensor.numel, from + count);
    if (low < high && !part.absent)
      out.push_back({begin + low - from, high - low, part.file, part.tensor.data, low - first});
    first += part.tensor.numel;
  }
}

void refuse_foreign(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::string_view feature;
    if (name.starts_with("mp_rank_") && name != kModule) feature = "tensor or pipeline parallelism";
    if (name.starts_with("layer_")) feature = "pipeline parallelism or experts";
    if (name.starts_with("expp_rank_")) feature = "experts";
    if (name == "offloaded_tensors") feature = "states offloaded to NVMe";
    if (!feature.empty())
      raise(DS_ERROR_UNSUPPORTED, "'{}/{}' comes from a run with {}, which libds does not convert",
            folder, name, feature);
  }
}

const PickleValue& need(const TorchFile& file, const PickleValue& dict, std::string_view key) {
  const PickleValue* value = file.pickle().find(dict, key);
  if (!value) raise(DS_ERROR_CORRUPT, "{}: has no '{}'", file.path(), key);
  return *value;
}

std::vector<int64_t> shape_of(const TorchFile& file, const PickleValue& value) {
  const Pickle& pickle = file.pickle();
  const PickleValue* extents = &value;
  if (pickle.maker(value) == "torch.Size") {
    const auto& arguments = pickle.elements(pickle.at(value.items[1]));
    if (!arguments.empty()) extents = &pickle.at(arguments[0]);
  }
  std::vector<int64_t> out;
  int64_t numel = 1;
  for (PickleId id : pickle.elements(*extents)) {
    out.push_back(pickle.at(id).integer);
    if (out.back() < 0 || __builtin_mul_overflow(numel, out.back(), &numel))
      raise(DS_ERROR_CORRUPT,
            "{}: a parameter has an extent of {}, which is negative or makes its size exceed 64 "
            "bits",
            file.path(), out.back());
  }
  return out;
}

// Accepts any whole number up to 2^53: newer versions of torch store a step as a tensor of one f32,
// and such numbers are exact in a double.
int64_t step_of(TorchFile& file, const PickleValue& value) {
  std::optional<double> count = file.number(value);
  if (!count || !(*count >= 0 && *count <= 0x1p53) || *count != std::floor(*count))
    raise(DS_ERROR_CORRUPT, "{}: step must be an integer of at least 0", file.path());
  return static_cast<int64_t>(*count);
}

DeepSpeedSource::DeepSpeedSource(const std::string& folder, SourceParts parts)
    : folder_(folder), files_(parts), runs_(1), parts_(parts) {
  info.path = folder;
  kinds = {kMasterName};
}

void DeepSpeedSource::read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) {
  // A state that a parameter lacks has no runs, so it reads as zero.
  std::fill_n(out, count, 0.0f);
  for (const Run& run : runs_[kind][param]) {
    int64_t low = std::max(begin, run.begin), high = std::min(begin + count, run.begin + run.count);
    if (low >= high) continue;
    files_.at(run.file).read(run.data, run.at + low - run.begin, high - low, out + (low - begin));
  }
}

// Converts f64, f16 and bf16 buffers to f32, as zero_to_fp32 does. Other types are passed through.
void DeepSpeedSource::read_buffer(size_t buffer, const Bytes& use) {
  const auto& [number, view] = views_[buffer];
  const DType dtype = view.data.dtype;
  if (dtype != DS_DTYPE_F64 && dtype != DS_DTYPE_F16 && dtype != DS_DTYPE_BF16)
    return files_.at(number).read(view, use);
  std::vector<float> wide;
  files_.at(number).read(view, [&](std::span<const std::byte> bytes) {
    const size_t count = bytes.size() / static_cast<size_t>(view.unit);
    wide.resize(count);
    if (dtype == DS_DTYPE_F64) {
      for (size_t i = 0; i < count; ++i) {
        double value = 0;
        std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        wide[i] = static_cast<float>(value);
      }
    } else {
      widen(dtype, bytes.data(), static_cast<int64_t>(count), wide.data());
    }
    use(std::as_bytes(std::span(wide)));
  });
}

void DeepSpeedSource::take_buffers(size_t file) {
  TorchFile& module = files_.at(file);
  const Pickle& pickle = module.pickle();
  std::set<std::string> wanted;
  if (const PickleValue* all = pickle.find(module.root(), "buffer_names"))
    for (PickleId id : pickle.elements(*all)) wanted.insert(pickle.at(id).text);
  beside_ = wanted;
  if (const PickleValue* shared = pickle.find(module.root(), "shared_params")) {
    const auto& pairs = pickle.pairs(*shared);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      tied.emplace_back(pickle.at(pairs[i]).text, pickle.at(pairs[i + 1]).text);
      beside_.insert(tied.back().first);
    }
  }
  const PickleValue* tensors = with_states() ? nullptr : pickle.find(module.root(), "module");
  if (!tensors) return;
  const auto& pairs = pickle.pairs(*tensors);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::string& name = pickle.at(pairs[i]).text;
    if (wanted.erase(name) > 0) add_buffer(name, file, pickle.at(pairs[i + 1]));
  }
}

void DeepSpeedSource::add_buffer(const std::string& name, size_t file, const PickleValue& value) {
  std::optional<TorchView> view = buffer_view(files_.at(file), name, value);
  if (!view) return;
  if (buffers.size() >= kMostParams)
    raise(DS_ERROR_UNSUPPORTED, "'{}': at most {} buffers are read", folder_, kMostParams);
  const DType dtype = view->data.dtype;
  const bool real = dtype == DS_DTYPE_F64 || dtype == DS_DTYPE_F16 || dtype == DS_DTYPE_BF16;
  buffers.push_back({name, real ? DS_DTYPE_F32 : dtype, view->shape, 0, 0, view->type});
  views_.emplace_back(file, std::move(*view));
}

ParamId DeepSpeedSource::add_param(const std::string& name, std::vector<int64_t> shape) {
  if (!known_.insert(name).second)
    raise(DS_ERROR_CORRUPT, "'{}': parameter '{}' appears twice", folder_, TensorName(name));
  names.push_back(name);
  shapes.push_back(std::move(shape));
  int64_t more = numel(ParamId(names.size() - 1));
  if (names.size() > kMostParams || more > kMostElements - elements_) {
    raise(DS_ERROR_UNSUPPORTED, "'{}': at most {} parameters of {} elements together are read",
          folder_, kMostParams, kMostElements);
  }
  elements_ += more;
  for (auto& of_kind : runs_) of_kind.emplace_back();
  return ParamId(names.size() - 1);
}

void DeepSpeedSource::set_kinds(const std::set<std::string>& states) {
  kinds.insert(kinds.end(), states.begin(), states.end());
  runs_.resize(kinds.size());
}

void DeepSpeedSource::take_module(TorchFile& file) {
  const PickleValue& root = file.root();
  need(file, root, "global_steps");
  info.step = count_of(file, root, "global_steps");
  info.skipped = count_of(file, root, "skipped_steps");
  if (info.skipped > info.step)
    raise(DS_ERROR_CORRUPT, "{}: skipped_steps is {}, more than the {} of global_steps",
          file.path(), info.skipped, info.step);
  if (!with_states()) return;
  const Pickle& pickle = file.pickle();
  Json rest = Json::Object();
  const auto& pairs = pickle.pairs(root);
  if (pairs.size() / 2 > kMostMembers) {
    raise(DS_ERROR_UNSUPPORTED, "{}: has {} members, but at most {} are read", file.path(),
          pairs.size() / 2, kMostMembers);
  }
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::string& key = pickle.at(pairs[i]).text;
    constexpr std::array<std::string_view, 7> own{"module",
                                                  "optimizer",
                                                  "param_shapes",
                                                  "frozen_param_shapes",
                                                  "frozen_param_fragments",
                                                  "buffer_names",
                                                  "ds_config"};
    if (contains(own, key)) continue;
    if (rest.find(key) == nullptr) rest.set(key, pickle_json(pickle, pickle.at(pairs[i + 1])));
  }
  record_.set("module", std::move(rest));
  const PickleValue* config = pickle.find(root, "ds_config");
  info.config =
      Json::Object{{"config", config ? pickle_json(pickle, *config) : Json(Json::Object())}};
  Json version =
      record_.at("module").find("ds_version") ? record_.at("module").at("ds_version") : Json();
  info.numerics_key = fmt::format("deepspeed={}", version.is_string() ? version.string() : "?");
}

namespace {

// Returns the dynamic loss scaler of an fp16 run. Returns nullopt for a static scale, which follows
// from the configuration, and for bf16 runs, whose scale is 1.
std::optional<LossScaler> scaler_of(const TorchFile& file, const Json& given) {
  const Json *maker = given.find("class"), *state = given.find("state");
  if (!maker || !maker->is_string() || !maker->string().ends_with("DynamicLossScaler") || !state)
    return {};
  auto number = [&](const char* name) {
    const Json* value = state->find(name);
    if (value && value->is_number()) return value->number();
    raise(DS_ERROR_CORRUPT, "{}: loss_scaler has no number '{}'", file.path(), name);
  };
  auto count = [&](const char* name, double least) {
    const double value = number(name);
    if (value >= least && value <= 0x1p53 && value == std::floor(value))
      return static_cast<int64_t>(value);
    raise(DS_ERROR_CORRUPT, "{}: loss_scaler: {} must be a whole number from {} on, got {}",
          file.path(), name, least, value);
  };
  const LossScaler scaler{number("cur_scale"), count("cur_iter", 0),
                          count("last_overflow_iter", -1), count("cur_hysteresis", 0)};
  if (!(scaler.scale > 0) || !std::isfinite(static_cast<float>(scaler.scale)))
    raise(DS_ERROR_CORRUPT, "{}: loss_scaler: cur_scale must be above 0 and finite, got {}",
          file.path(), scaler.scale);
  if (scaler.last_overflow >= scaler.steps)
    raise(DS_ERROR_CORRUPT, "{}: loss_scaler: last_overflow_iter {} is not before cur_iter {}",
          file.path(), scaler.last_overflow, scaler.steps);
  return scaler;
}

}  // namespace

void DeepSpeedSource::take_settings(const TorchFile& file, const PickleValue& states,
                                    const PickleValue& optimizer) {
  const Pickle& pickle = file.pickle();
  for (const char* key : {"loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad"}) {
    if (const PickleValue* value = pickle.find(states, key))
      record_.set(key, pickle_json(pickle, *value));
  }
  if (const Json* scaler = record_.find("loss_scaler")) info.scaler = scaler_of(file, *scaler);
  if (const PickleValue* groups = pickle.find(optimizer, "param_groups"))
    record_.set("param_groups", pickle_json(pickle, *groups));
}

void DeepSpeedSource::take_steps(const std::vector<std::pair<ParamId, int64_t>>& counted) {
  // The optimizer does not count steps that were skipped because of an overflow.
  int64_t most = -1;
  for (const auto& [param, steps] : counted) most = std::max(most, steps);
  if (most < 0) return;
  if (most > info.step) info.step = most;
  info.skipped = info.step - most;
  for (const auto& [param, steps] : counted) {
    if (steps < most) info.updates.emplace_back(names[param], steps);
  }
}

// Checks that the runs of each parameter cover its elements once and in order. Unlike the master, a
// state may be missing entirely.
void DeepSpeedSource::check_runs() const {
  for (size_t k = 0; k < kinds.size(); ++k) {
    for (ParamId p : names.ids()) {
      int64_t next = 0;
      for (const Run& run : runs_[k][p]) {
        if (run.begin != next) break;
        next += run.count;
      }
      bool absent = k > 0 && runs_[k][p].empty();
      if (!absent && next != numel(p)) {
        raise(DS_ERROR_CORRUPT, "'{}': the {} of '{}' has {} of {} elements", folder_, kinds[k],
              TensorName(names[p]), next, numel(p));
      }
    }
  }
}

// Compares the checksums of the storages that will be read, unless add() has compared all.
void DeepSpeedSource::check_data() {
  for (const auto& of_kind : runs_) {
    for (ParamId p : names.ids())
      for (const Run& run : of_kind[p]) files_.check(run.file, run.data);
  }
  for (const auto& [file, view] : views_) files_.check(file, view.data);
}

void DeepSpeedSource::finish() {
  check_runs();
  check_data();
  files_.forget();
  info.client.set("deepspeed", std::move(record_));
}

}  // namespace ds::deepspeed
