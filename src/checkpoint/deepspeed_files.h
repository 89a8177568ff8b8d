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
  explicit TorchFiles(SourceParts parts) : parts_(parts) {}
  // Opens a file and compares its checksums; where states are not wanted, check() compares those of
  // what is.
  size_t add(const std::string& path);
  void check(size_t file, const TorchData& data);
  const std::string& path(size_t file) const { return files_[file]->path(); }
  TorchFile& at(size_t file);  // before a read; the reference stays good
  void forget();               // values; tensors can still be read

 private:
  std::vector<std::unique_ptr<TorchFile>> files_;
  std::deque<size_t> open_;
  SourceParts parts_;
  std::set<std::pair<size_t, size_t>> checked_;  // storages, by file
};

// A tensor of a rank and kind, one of those that make a line of elements.
struct LinePart {
  size_t file = 0;
  TorchTensor tensor;
  bool absent = false;  // only its number of elements is known: these parameters have no such state
};
using FlatLine = std::vector<LinePart>;

int64_t length(const FlatLine& line);
// The runs of `count` elements of a line from `from` on, as elements of a parameter from `begin`
// on.
void cut(const FlatLine& line, int64_t from, int64_t count, int64_t begin, std::vector<Run>& out);

// Throws DS_ERROR_UNSUPPORTED for a file among `names` that no reader of one model on data-parallel
// ranks can take.
void refuse_foreign(const std::string& folder, const std::vector<std::string>& names);
// The member of a dict; DS_ERROR_CORRUPT without it.
const PickleValue& need(const TorchFile& file, const PickleValue& dict, std::string_view key);
// torch.Size, or a tuple or list.
std::vector<int64_t> shape_of(const TorchFile& file, const PickleValue& value);
// A number of steps, in a tensor or not; DS_ERROR_CORRUPT for anything else.
int64_t step_of(TorchFile& file, const PickleValue& value);

class DeepSpeedSource : public StateSource {
 public:
  DeepSpeedSource(const std::string& folder, SourceParts parts);
  void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) override;
  void read_buffer(size_t buffer, const Bytes& use) override;

 protected:
  std::string path_of(std::string_view name) const { return folder_ + "/" + std::string(name); }
  ParamId add_param(const std::string& name, std::vector<int64_t> shape);
  bool known(const std::string& name) const { return known_.contains(name); }
  bool with_states() const { return parts_ == SourceParts::all; }
  // Kinds of state beside the master, in the order of optimizers' rows.
  void set_kinds(const std::set<std::string>& states);
  // Reads the run's numbers from the module file; with states, the rest of it goes to the client's
  // state.
  void take_module(TorchFile& file);
  // Second names of the module that this file has, and its buffers where states are not wanted.
  void take_buffers(size_t file);
  // One more buffer: a tensor of a module's file.
  void add_buffer(const std::string& name, size_t file, const PickleValue& value);
  // Whether a tensor of the module is a buffer or a second name.
  bool beside(const std::string& name) const { return beside_.contains(name); }
  // Members of the optimizer's states that are no tensors.
  void take_settings(const TorchFile& file, const PickleValue& states,
                     const PickleValue& optimizer);
  // How often the optimizer has counted for each parameter; one that it counted less for began
  // later.
  void take_steps(const std::vector<std::pair<ParamId, int64_t>>& counted);
  // Every run is there; nothing but tensors is read from now on.
  void finish();

  std::string folder_;
  TorchFiles files_;
  std::vector<IdVector<ParamId, std::vector<Run>>> runs_;  // by kind
  Json record_ = Json::Object();  // of DeepSpeed's own, for the client's state

 private:
  void check_runs() const;
  void check_data();
  SourceParts parts_;
  std::set<std::string> known_, beside_;
  std::vector<std::pair<size_t, TorchView>> views_;  // of buffers, in files
  int64_t elements_ = 0;
};

}  // namespace ds::deepspeed
