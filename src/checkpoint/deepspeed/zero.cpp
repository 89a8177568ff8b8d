// Reads the ZeRO files of a DeepSpeed checkpoint as unpartitioned tensors by name.
//
// Problem. DeepSpeed partitions training state by rank. Stages 1 and 2 concatenate all parameters
// of a group, pad the end to a multiple of 2 * world elements and give each rank an equal slice.
// Stage 3 cuts each parameter individually into `world` slices and pads the last ones. Names and
// shapes are in a different file than the values, and only the order says which bytes belong to
// which parameter. Files may be missing, damaged, or from another save.
//
// Invariant. Once a source is open, every parameter has, for every kind of state, a list of runs of
// elements in tensors of the files. Together the runs contain each element exactly once, unless the
// parameter lacks the state and has no runs. Every run lies inside its tensor.
//
// Algorithm. The names of the files identify the ranks; `partition_count` in rank 0's file says how
// many there must be. For each group and kind, the ranks' tensors form one line of elements (stages
// 1 and 2) or `world` lines (stage 3). flat_layout() and sliced_layout() say where each parameter
// lies on its line, and cut() computes the runs. The lengths of the lines are compared with the
// sizes of the parameters: masters are saved without the padding at the end, moments with it. A
// parameter in no group is frozen, and its only values are those in the module. Muon keeps a
// momentum for its groups of matrices and Adam's states for the others; the momentum is read as
// exp_avg.
//
// Source. DeepSpeed 0.19.8: runtime/zero/stage_1_and_2.py, stage3.py, runtime/bf16_optimizer.py,
// runtime/zero/muon, utils/zero_to_fp32.py, checkpoint/ds_to_universal.py.
#include "checkpoint/deepspeed/zero.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/deepspeed/files.h"
#include "checkpoint/deepspeed/json.h"
#include "checkpoint/deepspeed/layout.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/round.h"
#include "core/graph/graph.h"
#include "io/file.h"
#include "io/pickle.h"
#include "io/torch_file.h"

namespace ds::deepspeed {
namespace {

using Kind = PickleValue::Kind;
constexpr int64_t kMostRanks = 65536;
constexpr size_t kMostGroups = 16384;
constexpr std::string_view kMomentum = "momentum_buffer";

// The name of a rank's file, such as "zero_pp_rank_3_mp_rank_00_optim_states.pt", which may have a
// prefix for the precision.
struct RankFile {
  std::string name;
  // Indices of the data-parallel and of the model-parallel rank.
  int64_t data = 0, model = 0;
};

std::optional<RankFile> parse_rank(const std::string& name, std::string_view end) {
  std::string_view rest = name;
  for (std::string_view precision : {"bf16_", "fp16_"}) {
    if (rest.starts_with(precision)) rest.remove_prefix(precision.size());
  }
  constexpr std::string_view begin = "zero_pp_rank_", middle = "_mp_rank_";
  if (!rest.starts_with(begin) || !rest.ends_with(end)) return std::nullopt;
  rest = rest.substr(begin.size(), rest.size() - begin.size() - end.size());
  size_t at = rest.find(middle);
  if (at == std::string_view::npos) return std::nullopt;
  RankFile out{name, 0, 0};
  auto number = [](std::string_view text, int64_t& value) {
    auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc{} && stop == text.data() + text.size() && value >= 0 &&
           value < kMostRanks;
  };
  bool good =
      number(rest.substr(0, at), out.data) && number(rest.substr(at + middle.size()), out.model);
  return good ? std::optional(out) : std::nullopt;
}

// The source of a ZeRO 1 to 3 checkpoint, which has one file of optimizer states for each rank.
class ZeroSource : public DeepSpeedSource {
 public:
  ZeroSource(const std::string& folder, SourceParts parts) : DeepSpeedSource(folder, parts) {
    form = "deepspeed";
    find_ranks();
    module_ = open_module(0);
    take_module(files_.at(module_));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      optim_.push_back(files_.add(path_of(ranks_[r])));
      check_rank(files_.at(optim_[r]), ranks_[r]);
      // The module files of the other ranks must exist, because read_frozen_slices() may read them.
      if (stage_ == 3 && r > 0) open_module(static_cast<int64_t>(r));
    }
    take_buffers(module_);
    read_groups();
    read_frozen();
    if (with_states()) {
      take_steps(counted_);
      take_scaler();
    }
    finish();
  }

 private:
  static constexpr std::string_view kOptim = "_optim_states.pt", kModel = "_model_states.pt";

  // Fills ranks_ with the name of each rank's file of optimizer states, and checks that exactly the
  // ranks 0 to world_ - 1 have one.
  void find_ranks() {
    std::vector<std::string> all = list_folder(folder_);
    refuse_foreign(folder_, all);
    std::map<int64_t, std::string> found;
    for (const std::string& name : all) {
      std::optional<RankFile> file = parse_rank(name, kOptim);
      if (!file) continue;
      if (file->model != 0)
        raise(DS_ERROR_UNSUPPORTED,
              "'{}/{}' comes from a run with tensor parallelism, which libds does not convert",
              folder_, name);
      if (auto [it, fresh] = found.emplace(file->data, name); !fresh)
        raise(DS_ERROR_CORRUPT, "'{}': '{}' and '{}' both belong to rank {}", folder_, it->second,
              name, file->data);
    }
    if (found.empty()) {
      raise(DS_ERROR_UNSUPPORTED,
            "'{}' has no file *zero_pp_rank_0_mp_rank_00_optim_states.pt, so it was saved without "
            "ZeRO; only checkpoints of ZeRO 1 to 3 and universal ones are converted",
            folder_);
    }
    // The name of a missing file gets the precision prefix of the files that exist.
    auto prefix = found.begin()->second.substr(0, found.begin()->second.find("zero_pp"));
    auto name_of = [&](int64_t rank) {
      return fmt::format("{}zero_pp_rank_{}_mp_rank_00{}", prefix, rank, kOptim);
    };
    size_t first = files_.add(path_of(found.begin()->second));
    world_ = partition_count(files_.at(first));
    for (int64_t r = 0; r < world_; ++r) {
      if (!found.contains(r)) {
        raise(DS_ERROR_NOT_FOUND, "'{}' does not exist: the checkpoint was saved by {} ranks",
              path_of(name_of(r)), world_);
      }
      ranks_.push_back(found[r]);
    }
    if (static_cast<int64_t>(found.size()) != world_) {
      raise(DS_ERROR_CORRUPT,
            "'{}/{}' is the file of rank {}, but the checkpoint was saved by {} ranks", folder_,
            found.rbegin()->second, found.rbegin()->first, world_);
    }
  }

  static const PickleValue& states_of(const TorchFile& file) {
    return need(file, file.root(), "optimizer_state_dict");
  }

  // Returns the number of ranks, which the file stores as a number or as a list with one entry for
  // each group. Also sets stage_.
  int64_t partition_count(const TorchFile& file) {
    const Pickle& pickle = file.pickle();
    const PickleValue& states = states_of(file);
    const PickleValue* stage = pickle.find(states, "zero_stage");
    if (stage) {
      Json number = pickle_json(pickle, *stage);
      if (number.is_integer()) stage_ = number.integer();
    }
    if (stage_ < 1 || stage_ > 3)
      raise(DS_ERROR_CORRUPT, "{}: zero_stage must be 1 to 3, got {}", file.path(), stage_);
    record_.set("zero_stage", stage_);
    const PickleValue& count = need(file, states, "partition_count");
    int64_t most = count.kind == Kind::integer ? count.integer : 0;
    for (PickleId id : pickle.elements(count)) most = std::max(most, pickle.at(id).integer);
    if (most < 1 || most > kMostRanks)
      raise(DS_ERROR_CORRUPT, "{}: partition_count cannot be {}", file.path(), most);
    return most;
  }

  // Throws unless the file has the stage and number of ranks of rank 0's, and the name under which
  // it was saved, if it records one: two files whose names were exchanged have the right sizes, but
  // would yield wrong weights.
  void check_rank(const TorchFile& file, const std::string& name) {
    // The name that torch's writer records if it was given none.
    constexpr std::string_view kWithoutName = "archive";
    const std::string stem = name.substr(0, name.rfind('.')), &saved = file.saved_as();
    if (!saved.empty() && saved != kWithoutName && saved != stem)
      raise(DS_ERROR_CORRUPT, "{}: was saved as '{}.pt'; the file of a rank must keep its name",
            file.path(), saved);
    const int64_t stage = stage_, ranks = partition_count(file);
    if (stage_ != stage || ranks != world_) {
      raise(DS_ERROR_CORRUPT,
            "{} was saved at ZeRO stage {} on {} ranks, but rank 0's file at stage {} on {}",
            file.path(), stage_, ranks, stage, world_);
    }
  }

  // Opens the module file of a rank. Stage 3 has one for each rank, the other stages a single one.
  size_t open_module(int64_t rank) {
    std::string name = stage_ == 3 ? fmt::format("zero_pp_rank_{}_mp_rank_00{}", rank, kModel)
                                   : std::string(kModule);
    if (is_absent(path_of(name)))
      raise(DS_ERROR_NOT_FOUND,
            "'{}' does not exist; it would have the names and shapes of the parameters",
            path_of(name));
    return files_.add(path_of(name));
  }

  // Returns a rank's tensors of one kind, by group; `state` is "" for the master.
  std::vector<LinePart> tensors_of(size_t rank, const std::string& state, size_t groups) {
    TorchFile& file = files_.at(optim_[rank]);
    const Pickle& pickle = file.pickle();
    const PickleValue& states = states_of(file);
    std::vector<LinePart> out;
    if (state.empty()) {
      const char* key = stage_ == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
      for (PickleId id : pickle.elements(need(file, states, key)))
        out.push_back(part(rank, pickle.at(id), key));
    } else {
      for (size_t g = 0; g < groups; ++g) out.push_back(state_part(rank, g, state));
    }
    if (out.size() == groups) return out;
    raise(DS_ERROR_CORRUPT,
          "{}: has the masters of {} parameter groups, but the module file names {} groups",
          file.path(), out.size(), groups);
  }

  // Returns one state of a group on a rank. Muon's groups of matrices have a momentum as exp_avg
  // and no exp_avg_sq.
  LinePart state_part(size_t rank, size_t g, const std::string& state) {
    TorchFile& file = files_.at(optim_[rank]);
    const bool matrices = muon_[g];
    const PickleValue* value =
        find_state(rank, g, matrices && state == "exp_avg" ? kMomentum : state);
    if (matrices && (state != "exp_avg" || !value)) {
      LinePart out{optim_[rank], {}, true};
      out.tensor.numel = masters_[rank][g].tensor.numel;
      return out;
    }
    if (!value && find_state(0, g, state))
      raise(DS_ERROR_CORRUPT, "{}: group {} has no '{}'", file.path(), g, state);
    if (!value) {
      raise(
          DS_ERROR_UNSUPPORTED,
          "{}: parameter group {} has no '{}', but another group has; libds reads optimizers that "
          "keep the same states for all parameters, and DeepSpeed's Muon",
          file.path(), g, state);
    }
    LinePart out = part(rank, *value, state);
    // A moment may be longer than its master by the padding at the end, which is less than 2 *
    // world.
    const int64_t master = masters_[rank][g].tensor.numel, more = out.tensor.numel - master;
    if (!matrices && (more < 0 || more >= 2 * world_)) {
      raise(
          DS_ERROR_UNSUPPORTED,
          "{}: the state '{}' of group {} has {} elements, but the master has {}; libds reads only "
          "states with one element for each of the master's",
          file.path(), state, g, out.tensor.numel, master);
    }
    return out;
  }

  const PickleValue* find_state(size_t rank, size_t group, std::string_view state) {
    const TorchFile& file = files_.at(optim_[rank]);
    const PickleValue* of_group = group_state(file, group);
    return of_group ? file.pickle().find(*of_group, state) : nullptr;
  }

  LinePart part(size_t rank, const PickleValue& value, std::string_view state) {
    TorchFile& file = files_.at(optim_[rank]);
    std::optional<TorchTensor> tensor = file.tensor(value);
    if (!tensor) raise(DS_ERROR_CORRUPT, "{}: '{}' is not a tensor", file.path(), state);
    return {optim_[rank], std::move(*tensor)};
  }

  // Finds the groups of matrices that Muon updates, which are those with a momentum. SGD also has a
  // momentum, so the configuration or the groups must say that the optimizer is Muon. The files of
  // all ranks are searched, because a rank that holds no element of a group has no state of it.
  void find_muon(size_t groups) {
    TorchFile& file = files_.at(optim_[0]);
    const Pickle& pickle = file.pickle();
    bool muon = is_muon(info.config);
    const PickleValue* all = pickle.find(base_state(file), "param_groups");
    for (PickleId id : all ? pickle.elements(*all) : std::vector<PickleId>()) {
      const PickleValue* use = pickle.find(pickle.at(id), "use_muon");
      muon = muon || (use && use->truth);
    }
    muon_.assign(groups, false);
    for (size_t r = 0; muon && r < ranks_.size(); ++r) {
      for (size_t g = 0; g < groups; ++g) muon_[g] = muon_[g] || find_state(r, g, kMomentum);
    }
  }

  // Returns the state of the optimizer that ZeRO wraps. Its form is that of torch or the elastic
  // one.
  const PickleValue& base_state(const TorchFile& file) const {
    return need(file, states_of(file),
                stage_ == 3 ? "optimizer_state_dict" : "base_optimizer_state");
  }

  // Returns the states of a group by name, or null if the rank has none. They are stored in torch's
  // form, {"state": {0: {...}}}, or in the elastic form, a list.
  const PickleValue* group_state(const TorchFile& file, size_t group) {
    const Pickle& pickle = file.pickle();
    const PickleValue& states = states_of(file);
    const PickleValue& base =
        need(file, states, stage_ == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    if (base.kind == Kind::list)
      return group < base.items.size() ? &pickle.at(base.items[group]) : nullptr;
    const auto& pairs = pickle.pairs(need(file, base, "state"));
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const PickleValue& key = pickle.at(pairs[i]);
      if (key.kind == Kind::integer && key.integer == static_cast<int64_t>(group))
        return &pickle.at(pairs[i + 1]);
    }
    return nullptr;
  }

  // Returns the names of the states in rank 0's file that are tensors. The step count is left out.
  // For Muon, the names are those of Adam's states.
  std::set<std::string> state_names(size_t groups) {
    std::set<std::string> out;
    if (!with_states()) return out;
    TorchFile& file = files_.at(optim_[0]);
    const Pickle& pickle = file.pickle();
    for (size_t g = 0; g < groups; ++g) {
      const PickleValue* of_group = group_state(file, g);
      if (!of_group) continue;
      const auto& pairs = pickle.pairs(*of_group);
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        const std::string& name = pickle.at(pairs[i]).text;
        if (name != "step" && file.tensor(pickle.at(pairs[i + 1]))) out.insert(name);
      }
    }
    find_muon(groups);
    if (contains(muon_, true)) {
      out.erase(std::string(kMomentum));
      out.insert({"exp_avg", "exp_avg_sq"});
    }
    return out;
  }

  // Adds the trained parameters by group, and computes the runs of each in the tensors of each
  // kind.
  void read_groups() {
    TorchFile& module = files_.at(module_);
    const Pickle& pickle = module.pickle();
    const auto& lists = pickle.elements(need(module, module.root(), "param_shapes"));
    std::vector<std::vector<ParamId>> groups;
    if (lists.size() > kMostGroups) {
      raise(DS_ERROR_UNSUPPORTED, "{}: has {} groups of parameters, but at most {} are read",
            module.path(), lists.size(), kMostGroups);
    }
    set_kinds(state_names(lists.size()));
    for (PickleId id : lists) {
      groups.emplace_back();
      const auto& pairs = pickle.pairs(pickle.at(id));
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        groups.back().push_back(
            add_param(pickle.at(pairs[i]).text, shape_of(module, pickle.at(pairs[i + 1]))));
      }
    }
    for (size_t k = 0; k < kinds.size(); ++k) {
      // The tensors of this kind, by rank and group.
      std::vector<std::vector<LinePart>> parts;
      for (size_t r = 0; r < ranks_.size(); ++r)
        parts.push_back(tensors_of(r, k == 0 ? "" : kinds[k], groups.size()));
      if (k == 0) masters_ = parts;
      if (stage_ == 3) {
        cut_sliced(k, groups, parts);
      } else {
        for (size_t g = 0; g < groups.size(); ++g) {
          if (k == 0 || !cut_copies(k, g, groups[g], parts)) cut_flat(k, g, groups[g], parts);
        }
      }
    }
    if (with_states()) count_steps(groups);
  }

  std::vector<int64_t> sizes(const std::vector<ParamId>& params) const {
    std::vector<int64_t> out;
    for (ParamId p : params) out.push_back(numel(p));
    return out;
  }

  // Returns where the parameters of a group lie on the line that the ranks' tensors form.
  FlatLayout layout_of(size_t group, const std::vector<ParamId>& params) {
    std::vector<int64_t> numel = sizes(params), paddings = alignment(group);
    for (size_t i = 0; i < paddings.size() && i < numel.size(); ++i) numel[i] += paddings[i];
    return flat_layout(numel, {.world = world_});
  }

  // Computes the runs of Muon's momenta at stages 1 and 2. There each rank stores the unpartitioned
  // momentum of every matrix that overlaps its slice, one after another; only the elements within
  // its slice are valid. Returns true if the state needs no other treatment. Returns false if Muon
  // does not update the group, or if the momentum is stored in slices, as in runs with offload;
  // cut_flat() then handles the state.
  bool cut_copies(size_t kind, size_t group, const std::vector<ParamId>& params,
                  const std::vector<std::vector<LinePart>>& parts) {
    if (!muon_[group]) return false;
    // Muon keeps no other state for matrices.
    if (kinds[kind] != "exp_avg") return true;
    const FlatLayout layout = layout_of(group, params);
    const int64_t slice = layout.numel / world_;
    std::map<ParamId, std::vector<Run>> runs;
    // The momentum is stored in slices or in copies, which the ranks' numbers of elements tell
    // apart. If they fit both, it is stored in slices.
    bool slices = true, copies = true;
    for (size_t r = 0; r < parts.size(); ++r) {
      const LinePart& part = parts[r][group];
      const int64_t begin = static_cast<int64_t>(r) * slice, end = begin + slice;
      int64_t at = 0;
      for (size_t i = 0; i < params.size(); ++i) {
        const int64_t first = layout.offsets[i], last = first + numel(params[i]);
        if (first >= end || std::max(last, first + 1) <= begin) continue;
        const int64_t low = std::max(first, begin), high = std::min(last, end);
        if (copies) cut({part}, at + low - first, high - low, low - first, runs[params[i]]);
        at += last - first;
      }
      const int64_t have = part.absent ? 0 : part.tensor.numel;
      copies = copies && have == at;
      slices = slices && have == slice;
    }
    if (copies && !slices) {
      for (auto& [param, of_param] : runs) runs_[kind][param] = std::move(of_param);
    }
    if (!copies && !slices) {
      raise(
          DS_ERROR_UNSUPPORTED,
          "'{}': the {} of group {} has {} elements on rank 0, neither as many as its matrices nor "
          "as its slice of {}",
          folder_, kMomentum, group, parts[0][group].tensor.numel, slice);
    }
    return !slices;
  }

  // Computes the runs of a state of a group for which the tensors of all ranks form one line.
  void cut_flat(size_t kind, size_t group, const std::vector<ParamId>& params,
                const std::vector<std::vector<LinePart>>& parts) {
    FlatLine line;
    for (const auto& of_rank : parts) line.push_back(of_rank[group]);
    const FlatLayout layout = layout_of(group, params);
    int64_t have = length(line);
    if (round_up(have, 2 * world_) != layout.numel) {
      raise(DS_ERROR_CORRUPT,
            "'{}': the {} of group {} has {} elements on {} ranks, but its parameters need {}",
            folder_, kinds[kind], group, have, world_, layout.numel);
    }
    for (size_t i = 0; i < params.size(); ++i)
      cut(line, layout.offsets[i], this->numel(params[i]), 0, runs_[kind][params[i]]);
  }

  // Returns the number of padding elements after each parameter of a group; empty if there is no
  // alignment.
  std::vector<int64_t> alignment(size_t group) {
    TorchFile& file = files_.at(optim_[0]);
    const Pickle& pickle = file.pickle();
    const PickleValue* all = pickle.find(states_of(file), "param_alignment_paddings");
    std::vector<int64_t> out;
    if (!all || group >= pickle.elements(*all).size()) return out;
    for (PickleId id : pickle.elements(pickle.at(pickle.elements(*all)[group]))) {
      out.push_back(pickle.at(id).integer);
      if (out.back() < 0 || out.back() > 1 << 20)
        raise(DS_ERROR_CORRUPT, "{}: a parameter cannot be padded by {} elements", file.path(),
              out.back());
    }
    return out;
  }

  // Computes the runs of one kind at stage 3, where each rank has its own line: its slices of all
  // parameters, one after another.
  void cut_sliced(size_t kind, const std::vector<std::vector<ParamId>>& groups,
                  const std::vector<std::vector<LinePart>>& lines) {
    int64_t at = 0;
    std::vector<ParamId> params;
    for (const auto& group : groups) params.insert(params.end(), group.begin(), group.end());
    SlicedLayout layout = sliced_layout({sizes(params)}, {.world = world_});
    for (size_t i = 0; i < params.size(); ++i) {
      const SlicedParam& slice = layout.groups[0][i];
      for (int64_t r = 0; r < world_; ++r)
        cut(lines[static_cast<size_t>(r)], at, slice.valid(r), slice.begin(r),
            runs_[kind][params[i]]);
      at += slice.partition_numel;
    }
    for (size_t r = 0; r < lines.size(); ++r) {
      if (length(lines[r]) == at) continue;
      raise(DS_ERROR_CORRUPT, "{}: the {} has {} elements, but the parameters need {}",
            files_.path(optim_[r]), kinds[kind], length(lines[r]), at);
    }
  }

  // Reads each group's step count. A group without one was updated in all steps that were not
  // skipped.
  void count_steps(const std::vector<std::vector<ParamId>>& groups) {
    TorchFile& file = files_.at(optim_[0]);
    const Pickle& pickle = file.pickle();
    for (size_t g = 0; g < groups.size(); ++g) {
      const PickleValue* of_group = group_state(file, g);
      const PickleValue* step = of_group ? pickle.find(*of_group, "step") : nullptr;
      if (!step) step = pickle.find(states_of(file), "base_optimizer_state_step");
      if (!step) continue;
      int64_t count = step_of(file, *step);
      for (ParamId p : groups[g]) counted_.emplace_back(p, count);
    }
  }

  // Adds the frozen parameters: those of the module that are in no group and are not buffers. At
  // stage 3 every rank stores a slice of each.
  void read_frozen() {
    if (stage_ == 3) return read_frozen_slices();
    TorchFile& module = files_.at(module_);
    const Pickle& pickle = module.pickle();
    const PickleValue* frozen = pickle.find(module.root(), "frozen_param_shapes");
    const bool named = frozen && frozen->kind != Kind::none;
    const std::set<std::string> trained(names.begin(), names.end());
    const auto& pairs = pickle.pairs(need(module, module.root(), "module"));
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const std::string& name = pickle.at(pairs[i]).text;
      const PickleValue& value = pickle.at(pairs[i + 1]);
      if (trained.contains(name) || beside(name) || name.ends_with("_extra_state")) continue;
      if (named && !pickle.find(*frozen, name)) continue;
      std::optional<TorchView> view = module.view(value);
      if (!view) continue;
      const DType dtype = view->data.dtype;
      const bool weights = dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_F16 || dtype == DS_DTYPE_BF16;
      // If only weights are wanted, packed weights and tensors of other types are stored as
      // buffers.
      if (!with_states() && !(weights && view->run)) {
        add_buffer(name, module_, value);
        continue;
      }
      std::optional<TorchTensor> tensor = module.tensor(value);
      ParamId param = add_param(name, tensor->shape);
      info.frozen.push_back(name);
      cut({{module_, *tensor}}, 0, tensor->numel, 0, runs_[0][param]);
    }
  }

  // Adds the frozen parameters of a stage-3 checkpoint, joined from the slices in the module files
  // of all ranks.
  void read_frozen_slices() {
    TorchFile& module = files_.at(module_);
    const PickleValue* all = module.pickle().find(module.root(), "frozen_param_shapes");
    if (!all || module.pickle().pairs(*all).empty()) return;
    std::vector<size_t> modules{module_};
    for (int64_t r = 1; r < world_; ++r) modules.push_back(open_module(r));
    const auto& pairs = module.pickle().pairs(*all);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const std::string name = module.pickle().at(pairs[i]).text;
      ParamId param = add_param(name, shape_of(module, module.pickle().at(pairs[i + 1])));
      info.frozen.push_back(name);
      FlatLine line;
      for (size_t r = 0; r < modules.size(); ++r) {
        TorchFile& file = files_.at(modules[r]);
        const PickleValue& fragments = need(file, file.root(), "frozen_param_fragments");
        std::optional<TorchTensor> tensor = file.tensor(need(file, fragments, name));
        if (!tensor)
          raise(DS_ERROR_CORRUPT, "{}: '{}' is not a tensor", file.path(), TensorName(name));
        line.push_back({modules[r], std::move(*tensor)});
      }
      cut(line, 0, numel(param), 0, runs_[0][param]);
    }
  }

  void take_scaler() {
    TorchFile& file = files_.at(optim_[0]);
    take_settings(file, states_of(file), base_state(file));
  }

  int64_t stage_ = 1, world_ = 0;
  // The names and the numbers of the files of optimizer states, by rank.
  std::vector<std::string> ranks_;
  std::vector<size_t> optim_;
  // The number of rank 0's module file.
  size_t module_ = 0;
  // Whether Muon updates the matrices of a group, by group.
  std::vector<bool> muon_;
  // The tensors of masters, by rank and group.
  std::vector<std::vector<LinePart>> masters_;
  std::vector<std::pair<ParamId, int64_t>> counted_;
};

}  // namespace

std::unique_ptr<StateSource> open_zero(const std::string& folder, SourceParts parts) {
  return std::make_unique<ZeroSource>(folder, parts);
}

}  // namespace ds::deepspeed
