// Writes DeepSpeed's universal layout, as far as DeepSpeed reads it:
//   latest_universal                     the tag
//   TAG/mp_rank_00_model_states.pt       steps and schedule
//   TAG/zero_pp_rank_0_mp_rank_00_model_states.pt
//                                        the same content, under the name that stage 3 reads
//   TAG/zero/optimizer_state.pt          settings that all parameters share
//   TAG/zero/NAME/{fp32,exp_avg,...}.pt  {"param": tensor}
//   TAG/zero/NAME/step.pt                the optimizer's step count
// optimizer_state.pt has the dynamic loss scaler of an fp16 run, as the object with which DeepSpeed
// replaces its own. Other settings are left out, so the loading engine keeps its own values: a
// static loss scale, clipping, and hyperparameters other than the learning rate.
// Source: DeepSpeed 0.19.8, runtime/base_optimizer.py, runtime/zero/stage3.py,
// runtime/fp16/loss_scaler.py, checkpoint/universal_checkpoint.py.
#include "checkpoint/deepspeed/writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/deepspeed/json.h"
#include "checkpoint/manifest.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/group_scalars.h"
#include "core/config/config.h"
#include "core/config/loss_scaler.h"
#include "core/config/parse_config.h"
#include "core/graph/graph.h"
#include "io/file.h"
#include "io/pickle.h"
#include "io/zip.h"
#include "optim/param_groups.h"
#include "optim/schedule.h"

namespace ds {
namespace {

constexpr std::string_view kVersion = "0.19.8";
// DeepSpeed pairs its own parameter groups with those of the file until one of the lists ends, so
// the file has more groups than models are expected to have.
constexpr int kGroups = 64;

class UniversalWriter {
 public:
  UniversalWriter(StateSource& source, const std::string& folder, bool step_tensor)
      : source_(source), folder_(folder), step_tensor_(step_tensor) {}

  void write() {
    refuse_muon();
    std::string tag = fmt::format("global_step{}", source_.info.step), place = folder_ + "/" + tag;
    make_folders(place + "/zero");
    for (ParamId p : source_.names.ids()) write_param(place + "/zero/", p);
    write_counted(place + "/zero/optimizer_state.pt", optimizer(), source_.info.updates_taken());
    for (const char* name :
         {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"})
      write_file(fmt::format("{}/{}", place, name), module());
    sync_folder(place + "/zero");
    sync_folder(place);
    write_file_atomic(folder_ + "/latest_universal", tag);
  }

 private:
  // Writes a zip archive with a pickle and, if `fill` is given, storage 0, which has `bytes` bytes.
  void write_file(const std::string& path, const std::string& pickle, int64_t bytes = 0,
                  const std::function<void(const ZipWriter::Write&)>& fill = {}) {
    ZipWriter zip(path);
    zip.add("archive/data.pkl", pickle);
    zip.add("archive/byteorder", "little");
    if (fill) zip.add("archive/data/0", bytes, fill);
    zip.add("archive/version", "3\n");
    zip.finish();
  }

  // Writes the folder of one parameter: its master and, if it is trained, its states and step
  // count.
  void write_param(const std::string& place, ParamId param) {
    const std::string& name = source_.names[param];
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.')
      raise(DS_ERROR_UNSUPPORTED, "parameter '{}' cannot be the name of a folder",
            TensorName(name));
    std::string folder = place + name;
    make_folder(folder);
    const auto& frozen = source_.info.frozen;
    bool trained = !contains(frozen, name);
    for (size_t k = 0; k < (trained ? source_.kinds.size() : 1); ++k) {
      PickleWriter out;
      out.empty_dict().mark().text("param");
      put_tensor(out, "FloatStorage", source_.shapes[param], source_.numel(param));
      out.text("cat_dim").integer(0).items();
      std::string path = fmt::format("{}/{}.pt", folder, k == 0 ? "fp32" : source_.kinds[k]);
      write_file(path, out.finish(), source_.numel(param) * int64_t{sizeof(float)},
                 [&](const ZipWriter::Write& write) { copy(k, param, write); });
    }
    if (trained) write_count(folder + "/step.pt", source_.updates(param));
    sync_folder(folder);
  }

  // Copies one tensor in blocks, so that memory does not grow with the size of a parameter.
  void copy(size_t kind, ParamId param, const ZipWriter::Write& write) {
    auto most = static_cast<int64_t>(block_.size());
    for (int64_t at = 0; at < source_.numel(param); at += most) {
      int64_t n = std::min(most, source_.numel(param) - at);
      source_.read(kind, param, at, n, block_.data());
      write(std::as_bytes(std::span(block_).first(static_cast<size_t>(n))));
    }
  }

  void write_count(const std::string& path, int64_t count) {
    PickleWriter out;
    put_count(out, count);
    write_counted(path, out.finish(), count);
  }

  // Writes a pickle to which put_count() has added `count`. If the count is a tensor, the file
  // holds its value as storage 0.
  void write_counted(const std::string& path, const std::string& pickle, int64_t count) {
    if (!step_tensor_) return write_file(path, pickle);
    auto value = static_cast<float>(count);
    write_file(path, pickle, sizeof value,
               [&](const ZipWriter::Write& write) { write(std::as_bytes(std::span(&value, 1))); });
  }

  // Adds a step count to a pickle, as a tensor or as an integer.
  void put_count(PickleWriter& out, int64_t count) const {
    if (step_tensor_)
      put_tensor(out, "FloatStorage", {}, 1);
    else
      out.integer(count);
  }

  // Adds a tensor: torch._utils._rebuild_tensor_v2(storage 0, 0, shape, strides, False,
  // OrderedDict()).
  static void put_tensor(PickleWriter& out, std::string_view storage,
                         const std::vector<int64_t>& shape, int64_t numel) {
    out.global("torch._utils", "_rebuild_tensor_v2").mark();
    out.mark()
        .text("storage")
        .global("torch", storage)
        .text("0")
        .text("cpu")
        .integer(numel)
        .tuple()
        .persistent();
    out.integer(0).mark();
    for (int64_t extent : shape) out.integer(extent);
    out.tuple().mark();
    // The stride of a dimension of a dense tensor is the product of the extents to its right.
    int64_t rest = numel;
    for (int64_t extent : shape) out.integer(rest /= std::max<int64_t>(extent, 1));
    out.tuple()
        .boolean(false)
        .global("collections", "OrderedDict")
        .empty_tuple()
        .reduce()
        .tuple()
        .reduce();
  }

  static void put_json(PickleWriter& out, const Json& value) {
    if (value.is_bool()) {
      out.boolean(value.boolean());
    } else if (value.is_integer()) {
      out.integer(value.integer());
    } else if (value.is_number()) {
      out.number(value.number());
    } else if (value.is_string()) {
      out.text(value.string());
    } else if (value.is_array()) {
      out.empty_list().mark();
      for (const Json& item : value.array()) put_json(out, item);
      out.appends();
    } else if (value.is_object()) {
      out.empty_dict().mark();
      for (const auto& [key, item] : value.object()) put_json(out.text(key), item);
      out.items();
    } else {
      out.none();
    }
  }

  // Returns a nested member of the settings that the original DeepSpeed checkpoint recorded, or
  // null if none exists. Each key names a member of the previous one.
  const Json* recorded(std::initializer_list<std::string_view> keys) const {
    const Json* at =
        source_.info.client.is_object() ? source_.info.client.find("deepspeed") : nullptr;
    for (std::string_view key : keys) at = at && at->is_object() ? at->find(key) : nullptr;
    return at;
  }

  // Returns the pickle of the module file. It has no tensors, but the step counts of the run, the
  // shapes of the trained parameters and the learning rate schedule.
  std::string module() const {
    PickleWriter out;
    const CheckpointInfo& info = source_.info;
    out.empty_dict().mark();
    out.text("module").empty_dict().text("buffer_names").empty_list().text("optimizer").none();
    out.text("param_shapes").empty_list().mark().empty_dict().mark();
    for (ParamId p : source_.names.ids()) {
      if (contains(info.frozen, source_.names[p])) continue;
      out.text(source_.names[p]).global("torch", "Size").mark().mark();
      for (int64_t extent : source_.shapes[p]) out.integer(extent);
      out.tuple().tuple().reduce();
    }
    out.items().appends();
    out.text("frozen_param_shapes").none().text("frozen_param_fragments").none();
    out.text("shared_params").empty_dict().mark();
    for (const auto& [name, first] : source_.tied) out.text(name).text(first);
    out.items().text("lr_scheduler");
    const Json* scheduler = recorded({"module", "lr_scheduler"});
    put_json(out, scheduler && scheduler->is_object()
                      ? *scheduler
                      : Json(Json::Object{{"last_batch_iteration", info.updates_taken() - 1}}));
    out.text("data_sampler").none().text("random_ltd").none();
    out.text("skipped_steps").integer(info.skipped).text("global_steps").integer(info.step);
    const Json* samples = recorded({"module", "global_samples"});
    // A run of libds stores this number under another name.
    if (!samples && info.client.is_object()) samples = info.client.find("samples");
    if (samples) put_json(out.text("global_samples"), *samples);
    out.text("dp_world_size").integer(1).text("mp_world_size").integer(1);
    out.text("ds_config").empty_dict().text("ds_version").text(kVersion);
    out.text("universal_checkpoint_info").empty_dict().mark();
    out.text("universal_checkpoint_version").number(0.4).items();
    return out.items().finish();
  }

  // Returns the pickle of optimizer_state.pt. Stages 1 and 2 read the outer groups; stage 3 reads
  // the inner ones and the step of state 0.
  std::string optimizer() const {
    PickleWriter out;
    out.empty_dict().mark().text("ds_version").text(kVersion).text("param_groups");
    put_groups(out);
    out.text("optimizer_state_dict")
        .empty_dict()
        .mark()
        .text("state")
        .empty_dict()
        .mark()
        .integer(0);
    out.empty_dict().mark().text("step");
    put_count(out, source_.info.updates_taken());
    out.items().items().text("param_groups");
    put_groups(out);
    out.items();
    if (std::optional<LossScaleConfig> rule = scale_rule())
      put_scaler(out, *source_.info.scaler, *rule);
    return out.items().finish();
  }

  // Adds a DynamicLossScaler with its members.
  static void put_scaler(PickleWriter& out, const LossScaler& scaler, const LossScaleConfig& rule) {
    out.text("dynamic_loss_scale").boolean(true).text("loss_scaler");
    out.global("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler")
        .empty_tuple()
        .new_object();
    out.empty_dict().mark();
    out.text("cur_scale").number(scaler.scale).text("dynamic").boolean(true);
    out.text("cur_iter")
        .integer(scaler.steps)
        .text("last_overflow_iter")
        .integer(scaler.last_overflow);
    out.text("scale_factor").number(2).text("scale_window").integer(rule.window);
    out.text("min_scale").number(rule.min_loss_scale);
    out.text("delayed_shift")
        .integer(rule.hysteresis)
        .text("cur_hysteresis")
        .integer(scaler.hysteresis);
    out.text("consecutive_hysteresis").boolean(rule.consecutive_hysteresis);
    out.text("raise_error_at_min_scale").boolean(true).text("dtype").global("torch", "float16");
    out.items().build();
  }

  // Returns the settings of the dynamic loss scale: those of the original DeepSpeed checkpoint if
  // it recorded any, otherwise those of the configuration. Returns nullopt if the scaler must be
  // left out.
  std::optional<LossScaleConfig> scale_rule() const {
    if (!source_.info.scaler) return std::nullopt;
    LossScaleConfig rule;
    if (const Json* state = recorded({"loss_scaler", "state"})) {
      auto number = [&](const char* name, double otherwise) {
        const Json* value = state->is_object() ? state->find(name) : nullptr;
        return value && value->is_number() ? value->number() : otherwise;
      };
      rule.window = static_cast<int64_t>(number("scale_window", 0));
      rule.hysteresis = static_cast<int64_t>(number("delayed_shift", 1));
      rule.min_loss_scale = number("min_scale", 1);
      const Json* refills = state->find("consecutive_hysteresis");
      rule.consecutive_hysteresis = refills && refills->is_bool() && refills->boolean();
      return rule.window > 0 ? std::optional(rule) : std::nullopt;
    }
    std::optional<Config> config = saved_config();
    if (!config || config->loss_scale.loss_scale > 0) return std::nullopt;
    return config->loss_scale;
  }

  void put_groups(PickleWriter& out) const {
    std::vector<std::optional<double>> rates = learning_rates();
    out.empty_list().mark();
    for (int g = 0; g < kGroups; ++g) {
      std::optional<double> rate = rates[std::min(static_cast<size_t>(g), rates.size() - 1)];
      out.empty_dict().mark();
      if (rate) out.text("lr").number(*rate);
      out.items();
    }
    out.appends();
  }

  // Throws if the optimizer is Muon, because DeepSpeed 0.19.8 neither writes nor reads its momentum
  // in the universal layout.
  void refuse_muon() const {
    bool muon = is_muon(source_.info.config);
    if (const Json* groups = recorded({"param_groups"}); groups && groups->is_array()) {
      for (const Json& group : groups->array())
        muon = muon || (group.is_object() && group.find("use_muon"));
    }
    if (!muon) return;
    raise(DS_ERROR_UNSUPPORTED,
          "states of Muon are not exported to DeepSpeed's layout, which has no place for them; "
          "export weights only (\"fp32\")");
  }

  // Returns the learning rate of each group for the next step. Groups beyond the end of the list
  // use its last rate.
  std::vector<std::optional<double>> learning_rates() const {
    const Json* record =
        source_.info.client.is_object() ? source_.info.client.find("deepspeed") : nullptr;
    const Json* groups = record && record->is_object() ? record->find("param_groups") : nullptr;
    std::vector<std::optional<double>> out;
    if (groups && groups->is_array()) {
      for (const Json& group : groups->array()) {
        const Json* rate = group.is_object() ? group.find("lr") : nullptr;
        out.push_back(rate && rate->is_number() ? std::optional(rate->number()) : std::nullopt);
      }
    }
    if (!out.empty()) return out;
    return {scheduled_rate()};
  }

  // Returns the rate that a call set for the first group, or else the learning rate that the
  // schedule gives for the next step. Returns nullopt if the groups have different rates or the
  // configuration is unknown.
  std::optional<double> scheduled_rate() const {
    const CheckpointInfo& info = source_.info;
    if (!info.set_numbers.empty() && info.set_numbers[0].contains("lr"))
      return info.set_numbers[0].at("lr");
    std::optional<Config> config = saved_config();
    if (!config) return std::nullopt;
    for (const ParamGroup& group : config->optimizer.groups) {
      if (group_scalars(config->optimizer, group).lr != config->optimizer.lr) return std::nullopt;
    }
    GroupScalars scalars = group_scalars(config->optimizer);
    apply_schedule(config->scheduler, 0, info.updates_taken(), scalars);
    return scalars.lr;
  }

  // Returns the configuration that the run was saved with, or nullopt if it is missing or does not
  // parse, because another version of libds or another program wrote it.
  std::optional<Config> saved_config() const {
    const Json& config = source_.info.config;
    const Json* values = config.is_object() ? config.find("config") : nullptr;
    if (!values || !values->is_object()) return std::nullopt;
    // The batch size over all ranks is not needed here, and it would not be valid for one process.
    Json keys = *values;
    std::erase_if(keys.object(),
                  [](const auto& member) { return member.first == "train_batch_size"; });
    try {
      return parse_config(keys, 1);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  StateSource& source_;
  std::string folder_;
  bool step_tensor_;
  std::vector<float> block_ = std::vector<float>(kPieceBytes / sizeof(float));
};

}  // namespace

void write_universal(StateSource& source, const std::string& folder, bool step_tensor) {
  UniversalWriter(source, folder, step_tensor).write();
}

}  // namespace ds
