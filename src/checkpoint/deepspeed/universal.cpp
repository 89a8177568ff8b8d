// Reads DeepSpeed's universal layout: a folder zero/NAME for each parameter, with one file for the
// master, one for each optimizer state and one for the step count. The layout does not depend on
// the ranks that saved it. The module file, next to zero/, has the shapes and the step count of the
// run.
#include "checkpoint/deepspeed/universal.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/deepspeed/files.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "io/file.h"
#include "io/pickle.h"
#include "io/torch_file.h"

namespace ds::deepspeed {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;
using Counted = std::vector<std::pair<ParamId, int64_t>>;

// Reads zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt. They hold unpartitioned tensors, some of them
// flattened, so the shape comes from the module file if that records it.
class UniversalSource : public DeepSpeedSource {
 public:
  UniversalSource(const std::string& folder, SourceParts parts) : DeepSpeedSource(folder, parts) {
    form = "universal";
    refuse_foreign(folder_, list_folder(folder_));
    Shapes shapes = read_module();
    std::vector<std::string> params;
    std::set<std::string> states;
    for (const std::string& name : list_folder(path_of("zero"))) {
      if (name == "optimizer_state.pt" || beside(name)) continue;
      params.push_back(name);
      if (!with_states()) continue;
      for (const std::string& file : list_folder(path_of("zero/" + name))) {
        std::string state = file.substr(0, file.find(".pt"));
        if (file.ends_with(".pt") && state != "fp32" && state != "step") states.insert(state);
      }
    }
    set_kinds(states);
    Counted counted;
    for (const std::string& name : params) add(name, shapes, counted);
    if (with_states()) {
      if (!counted.empty()) info.step = std::max(info.step, counted[0].second);
      read_optimizer(counted);
      take_steps(counted);
    }
    finish();
  }

 private:
  // Reads the module file and returns the shapes of the parameters that it lists.
  Shapes read_module() {
    Shapes out;
    for (const std::string& name :
         {std::string(kModule), std::string("zero_pp_rank_0_mp_rank_00_model_states.pt")}) {
      if (is_absent(path_of(name))) continue;
      const size_t number = files_.add(path_of(name));
      TorchFile& file = files_.at(number);
      take_module(file);
      take_buffers(number);
      const Pickle& pickle = file.pickle();
      for (PickleId id : pickle.elements(need(file, file.root(), "param_shapes"))) {
        const auto& pairs = pickle.pairs(pickle.at(id));
        for (size_t i = 0; i + 1 < pairs.size(); i += 2)
          out[pickle.at(pairs[i]).text] = shape_of(file, pickle.at(pairs[i + 1]));
      }
      return out;
    }
    raise(DS_ERROR_NOT_FOUND, "'{}' does not exist; it would have the steps of the run",
          path_of(kModule));
  }

  // Adds a parameter with its tensors, and appends its step count, if stored, to `counted`.
  void add(const std::string& name, const Shapes& shapes, Counted& counted) {
    ParamId param;
    bool trained = false;
    std::string missing;
    for (size_t k = 0; k < kinds.size(); ++k) {
      std::string path = path_of(fmt::format("zero/{}/{}.pt", name, k == 0 ? "fp32" : kinds[k]));
      if (k > 0 && is_absent(path)) {
        if (missing.empty()) missing = path;
        continue;
      }
      size_t number = files_.add(path);
      TorchFile& file = files_.at(number);
      const PickleValue* inner = file.pickle().find(file.root(), "param");
      std::optional<TorchTensor> tensor = file.tensor(inner ? *inner : file.root());
      if (!tensor) raise(DS_ERROR_CORRUPT, "{}: has no tensor", path);
      if (k == 0) {
        auto recorded = shapes.find(name);
        param = add_param(name, recorded == shapes.end() ? tensor->shape : recorded->second);
      }
      if (tensor->numel != numel(param)) {
        raise(DS_ERROR_CORRUPT, "{}: has {} elements, but the parameter has {}", path,
              tensor->numel, numel(param));
      }
      trained = trained || k > 0;
      cut({{number, *tensor}}, 0, tensor->numel, 0, runs_[k][param]);
    }
    // Only Muon has states that only some of the trained parameters have.
    const bool mixed = contains(kinds, "momentum_buffer");
    if (!missing.empty() && !mixed && (trained || shapes.contains(name)))
      raise(DS_ERROR_NOT_FOUND, "'{}' does not exist, but other parameters have this state",
            missing);
    // The module file lists the shapes of trained parameters only. A parameter is frozen if it is
    // missing there and, when states are wanted, also has no states.
    const bool frozen = with_states() ? !trained && kinds.size() > 1 : !shapes.empty();
    if (frozen && !shapes.contains(name)) info.frozen.push_back(name);
    std::string path = path_of(fmt::format("zero/{}/step.pt", name));
    if (!with_states() || is_absent(path)) return;
    TorchFile& file = files_.at(files_.add(path));
    counted.emplace_back(param, step_of(file, file.root()));
  }

  // Reads the settings that the run stored beside the tensors. A conversion from stage 3 writes the
  // step count only here, instead of a step.pt for each parameter.
  void read_optimizer(Counted& counted) {
    std::string path = path_of("zero/optimizer_state.pt");
    if (is_absent(path)) return;
    TorchFile& file = files_.at(files_.add(path));
    const Pickle& pickle = file.pickle();
    take_settings(file, file.root(), file.root());
    const PickleValue* base = pickle.find(file.root(), "optimizer_state_dict");
    const PickleValue* state = base ? pickle.find(*base, "state") : nullptr;
    if (!counted.empty() || !state || pickle.pairs(*state).size() < 2) return;
    const PickleValue* step = pickle.find(pickle.at(pickle.pairs(*state)[1]), "step");
    if (!step) return;
    int64_t count = step_of(file, *step);
    for (ParamId p : names.ids()) counted.emplace_back(p, count);
  }
};

}  // namespace

std::unique_ptr<StateSource> open_universal(const std::string& folder, SourceParts parts) {
  return std::make_unique<UniversalSource>(folder, parts);
}

}  // namespace ds::deepspeed
