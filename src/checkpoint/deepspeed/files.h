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

// Code that the readers of DeepSpeed's two layouts (ZeRO files and universal) share.

namespace ds::deepspeed {

// The module file of the first model-parallel rank, the only such rank that libds supports.
inline constexpr std::string_view kModule = "mp_rank_00_model_states.pt";

// A range of a parameter and its location: elements [begin, begin + count) of the parameter are
// elements [at, at + count) of the tensor `data` in file number `file`.
struct Run {
  int64_t begin = 0, count = 0;
  size_t file = 0;
  TorchData data;
  int64_t at = 0;
};

// The files of one checkpoint, by number. At most 256 of them are open at a time; a closed file
// reopens when it is read.
class TorchFiles {
 public:
  explicit TorchFiles(SourceParts parts) : parts_(parts) {}
  // Opens a file and returns its number. If all states are wanted, compares the checksums of the
  // entire file at once. Otherwise only check() compares checksums.
  size_t add(const std::string& path);
  // Compares the checksum of one storage, unless add() or an earlier call has done so.
  void check(size_t file, const TorchData& data);
  const std::string& path(size_t file) const { return files_[file]->path(); }
  // Returns the file, open and ready to read. The reference stays valid.
  TorchFile& at(size_t file);
  // Frees the values of all pickles. Tensors can still be read.
  void forget();

 private:
  std::vector<std::unique_ptr<TorchFile>> files_;
  std::deque<size_t> open_;
  SourceParts parts_;
  // Storages whose checksum has been compared, as pairs of file and storage.
  std::set<std::pair<size_t, size_t>> checked_;
};

// The tensor of one rank and kind of state. The tensors of all ranks, joined, form a line of
// elements (FlatLine).
struct LinePart {
  size_t file = 0;
  TorchTensor tensor;
  // Whether the tensor is missing because its parameters have no such state. Only its number of
  // elements is then known.
  bool absent = false;
};
using FlatLine = std::vector<LinePart>;

// Returns the number of elements of a line.
int64_t length(const FlatLine& line);
// Appends to `out` the runs for the elements [from, from + count) of a line, which are the elements
// of a parameter from `begin` on.
void cut(const FlatLine& line, int64_t from, int64_t count, int64_t begin, std::vector<Run>& out);

// Throws DS_ERROR_UNSUPPORTED if a file in `names` belongs to a run with tensor or pipeline
// parallelism, experts, or states offloaded to NVMe. Only models on data-parallel ranks can be
// read.
void refuse_foreign(const std::string& folder, const std::vector<std::string>& names);
// Returns the member `key` of a dict. Throws DS_ERROR_CORRUPT if it is missing.
const PickleValue& need(const TorchFile& file, const PickleValue& dict, std::string_view key);
// Returns the extents of a torch.Size, tuple or list.
std::vector<int64_t> shape_of(const TorchFile& file, const PickleValue& value);
// Returns a step count that is stored as a tensor or as a number; throws DS_ERROR_CORRUPT if it is
// not a count.
int64_t step_of(TorchFile& file, const PickleValue& value);

// Base class of both readers. The constructor of a derived class adds the parameters and the runs
// of their elements, then calls finish(). From then on read() finds every element through `runs_`.
class DeepSpeedSource : public StateSource {
 public:
  DeepSpeedSource(const std::string& folder, SourceParts parts);
  void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) override;
  void read_buffer(size_t buffer, const Bytes& use) override;

 protected:
  std::string path_of(std::string_view name) const { return folder_ + "/" + std::string(name); }
  // Adds a parameter without runs and returns its id. Throws if the name was added before.
  ParamId add_param(const std::string& name, std::vector<int64_t> shape);
  bool known(const std::string& name) const { return known_.contains(name); }
  bool with_states() const { return parts_ == SourceParts::all; }
  // Sets the kinds of state other than the master, in alphabetical order, which is the order
  // of the optimizers' rows.
  void set_kinds(const std::set<std::string>& states);
  // Reads the step counts of the run from the module file. If states are wanted, also reads the
  // configuration, and records the file's other settings for the client's state.
  void take_module(TorchFile& file);
  // Reads which names in the module file are buffers or second names of a parameter and, if only
  // weights are wanted, adds the buffers.
  void take_buffers(size_t file);
  // Adds a buffer, which is a tensor in a module file.
  void add_buffer(const std::string& name, size_t file, const PickleValue& value);
  // Returns whether a tensor of the module is a buffer or a second name, and not a parameter.
  bool beside(const std::string& name) const { return beside_.contains(name); }
  // Reads the members of the optimizer's states that are not tensors: the loss scaler, clipping and
  // parameter groups.
  void take_settings(const TorchFile& file, const PickleValue& states,
                     const PickleValue& optimizer);
  // Takes the optimizer's update counts of parameters. The largest one is the number of updates of
  // the run. A parameter with a lower count was first trained later, so its count is recorded.
  void take_steps(const std::vector<std::pair<ParamId, int64_t>>& counted);
  // Checks that the runs cover every element and that the checksums of their data match, then frees
  // the pickles. Afterwards only tensors can be read.
  void finish();

  std::string folder_;
  TorchFiles files_;
  // The runs of each parameter's elements, by kind of state.
  std::vector<IdVector<ParamId, std::vector<Run>>> runs_;
  // Settings that DeepSpeed stored beside the tensors; finish() moves them to the client's state
  // under "deepspeed".
  Json record_ = Json::Object();

 private:
  void check_runs() const;
  void check_data();
  SourceParts parts_;
  std::set<std::string> known_, beside_;
  // Buffers, as pairs of file and view.
  std::vector<std::pair<size_t, TorchView>> views_;
  int64_t elements_ = 0;
};

}  // namespace ds::deepspeed
