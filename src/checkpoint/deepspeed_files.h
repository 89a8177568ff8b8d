#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/state_source.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/graph/graph.h"
#include "io/pickle.h"
#include "io/torch_file.h"

// What both of DeepSpeed's layouts have in common; see deepspeed_zero.cpp.
namespace ds::deepspeed {

inline constexpr std::string_view kModule = "mp_rank_00_model_states.pt";

// Elements [begin, begin + count) of a parameter are those from `at` on of a tensor in a file.
struct Run {
  int64_t begin = 0, count = 0;
  size_t file = 0;
  TorchData data;
  int64_t at = 0;
};

// Files by number. Some hundreds have a descriptor at once.
class TorchFiles {
 public:
  // Opens a file and compares its checksums.
  size_t add(const std::string& path);
  const std::string& path(size_t file) const { return files_[file]->path(); }
  TorchFile& at(size_t file);  // before a read; the reference stays good
  void forget();               // values; tensors can still be read

 private:
  std::vector<std::unique_ptr<TorchFile>> files_;
  std::deque<size_t> open_;
};

// A tensor of a rank and kind, one of those that make a line of elements.
struct LinePart {
  size_t file = 0;
  TorchTensor tensor;
};
using FlatLine = std::vector<LinePart>;

int64_t length(const FlatLine& line);
// The runs of `count` elements of a line from `from` on, as elements of a parameter from `begin` on.
void cut(const FlatLine& line, int64_t from, int64_t count, int64_t begin, std::vector<Run>& out);

// Throws DS_ERROR_UNSUPPORTED for a file among `names` that no reader of one model on data-parallel ranks can
// take.
void refuse_foreign(const std::string& folder, const std::vector<std::string>& names);
// The member of a dict; DS_ERROR_CORRUPT without it.
const PickleValue& need(const TorchFile& file, const PickleValue& dict, std::string_view key);
// torch.Size, or a tuple or list.
std::vector<int64_t> shape_of(const TorchFile& file, const PickleValue& value);
// A number of steps, in a tensor or not; DS_ERROR_CORRUPT for anything else.
int64_t step_of(TorchFile& file, const PickleValue& value);

class DeepSpeedSource : public StateSource {
 public:
  explicit DeepSpeedSource(const std::string& folder);
  void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) override;

 protected:
  std::string path_of(std::string_view name) const { return folder_ + "/" + std::string(name); }
  ParamId add_param(const std::string& name, std::vector<int64_t> shape);
  bool known(const std::string& name) const { return known_.contains(name); }
  // Kinds of state beside the master, in the order of optimizers' rows.
  void set_kinds(const std::set<std::string>& states);
  // What the module file says of the run; the rest of it goes to the client's state.
  void take_module(TorchFile& file);
  // Members of the optimizer's states that are no tensors.
  void take_settings(const TorchFile& file, const PickleValue& states, const PickleValue& optimizer);
  // How often the optimizer has counted for each parameter; one that it counted less for began later.
  void take_steps(const std::vector<std::pair<ParamId, int64_t>>& counted);
  // Every run is there; nothing but tensors is read from now on.
  void finish();

  std::string folder_;
  TorchFiles files_;
  std::vector<IdVector<ParamId, std::vector<Run>>> runs_;  // by kind
  Json record_ = Json::Object();                           // of DeepSpeed's own, for the client's state

 private:
  void check_runs() const;
  std::set<std::string> known_;
  int64_t elements_ = 0;
};

}  // namespace ds::deepspeed
