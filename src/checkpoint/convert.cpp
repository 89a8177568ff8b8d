// A conversion is a save by one rank whose state is in files. ConvertedState presents a StateSource
// as the state of an engine, so that checkpoints and models are written by the same code as in a
// training run. Nothing is loaded as a unit: the writers request pieces, and each piece is read
// from the source's files on demand.
#include "checkpoint/convert.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/deepspeed/writer.h"
#include "checkpoint/folder.h"
#include "checkpoint/merge.h"
#include "checkpoint/open_source.h"
#include "checkpoint/state_access.h"
#include "checkpoint/state_source.h"
#include "checkpoint/weights_save.h"
#include "checkpoint/writer.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/path_kind.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/file.h"
#include "io/owner.h"
#include "io/tensor_folder.h"

namespace ds {
namespace {

// Size of a bucket in elements. The layout only numbers elements and allocates no memory.
constexpr int64_t kBucket = int64_t{1} << 24;

// The state of a single rank that owns all elements. Reads go to the source; writes fail.
class ConvertedState : public StateAccess {
 public:
  explicit ConvertedState(StateSource& source)
      : source_(source), comm_(create_communicator("self", {})) {
    IdVector<ParamId, ParamSpec> specs;
    for (ParamId p : source.names.ids()) {
      slices_.push_back(ParamSlice::whole(source.shapes[p]));
      specs.push_back({source.names[p], source.numel(p)});
    }
    layout_ = make_layout(specs, {1}, kBucket, 0);
  }

  Communicator& comm() override { return *comm_; }
  const Layout& layout() const override { return layout_; }
  const IdVector<ParamId, std::string>& param_names() const override { return source_.names; }
  const IdVector<ParamId, std::vector<int64_t>>& param_shapes() const override {
    return source_.shapes;
  }
  const ParamSlice& slice(ParamId param) const override { return slices_[param]; }
  bool writes(ParamId) const override { return true; }
  const std::vector<std::string>& state_kinds() const override { return source_.kinds; }
  int64_t first(BucketId) const override { return 0; }
  int64_t held(BucketId bucket) const override { return layout_.buckets[bucket].numel; }
  int64_t own_first(BucketId) const override { return 0; }

  // Callers read within one parameter, so the place that contains `begin` contains the entire
  // range.
  void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                  float* out) override {
    const std::vector<ParamPlace>& places = layout_.buckets[bucket].params;
    auto after = std::ranges::upper_bound(places, begin, {}, &ParamPlace::begin);
    const ParamPlace& place = *std::prev(after);
    source_.read(static_cast<size_t>(kind), place.param, begin - place.begin, count, out);
  }
  void write_state(StateKind, BucketId, int64_t, int64_t, const float*) override {
    raise(DS_ERROR_INTERNAL, "files that are converted are read only");
  }

 private:
  StateSource& source_;
  std::unique_ptr<Communicator> comm_;
  Layout layout_;
  IdVector<ParamId, ParamSlice> slices_;
};

// Returns the source's buffers and second names, and the order of tensors in which DeepSpeed's
// zero_to_fp32 writes them: buffers, frozen parameters, trained parameters, second names.
WeightExtras extras_of(StateSource& source, int64_t file_bytes) {
  WeightExtras out;
  out.buffers = source.buffers;
  out.read_buffer = [&](size_t buffer, const StateSource::Bytes& use) {
    source.read_buffer(buffer, use);
  };
  out.tied = source.tied;
  out.file_bytes = file_bytes;
  const std::set<std::string> frozen(source.info.frozen.begin(), source.info.frozen.end());
  for (bool first : {true, false}) {
    for (ParamId p : source.names.ids())
      if (frozen.contains(source.names[p]) == first) out.order.push_back(p);
  }
  return out;
}

// Throws unless `folder` does not exist or is an empty folder that belongs to this user.
void require_empty(const std::string& folder) {
  if (!name_exists(folder)) return;
  if (!std::filesystem::is_directory(folder))
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' must be a folder, or not exist", folder);
  require_own_folder(folder);
  if (!list_folder(folder).empty())
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' must be empty: it has {} files", folder,
          list_folder(folder).size());
}

// Throws if `like` has no weights and is recognized as another kind of folder, for example a
// checkpoint. A model folder with a config.json but no weights is accepted; names and shapes are
// then those of the source.
void require_like(const std::string& like) {
  if (like.empty() || has_tensors(like)) return;
  if (exists(like + "/config.json") && model_hint(like).empty()) return;
  const std::string hint = path_hint(like, Sought::weights);
  if (!hint.empty())
    raise(DS_ERROR_NOT_FOUND, "like: '{}' has no weights of a model{}", like, hint);
}

// Adds the adapter in the folder `from` to its base, or takes it out, and returns the source that
// was written.
std::unique_ptr<StateSource> write_merged(const std::string& from, const std::string& to,
                                          const ConvertRequest& request) {
  if (!is_adapter_folder(from))
    raise(DS_ERROR_NOT_FOUND, "'{}' is not the folder of an adapter: it has no {}", from,
          kAdapterConfig);
  const std::string base = request.like.empty() ? adapter_base(from) : request.like;
  if (base.empty() || !exists(base + "/config.json"))
    raise(DS_ERROR_NOT_FOUND,
          "the base of adapter '{}' must be a model folder, got '{}'; name it with like", from,
          base);
  std::unique_ptr<StateSource> source = open_merged(from, base, request.form == "unmerged");
  ConvertedState state(*source);
  save_weights(state, to, base);
  return source;
}

bool is_merge(const ConvertRequest& request) {
  return request.form == "merged" || request.form == "unmerged";
}

}  // namespace

// Checks the request and the source before the first file is written, so that a wrong request
// leaves no files.
Json convert_checkpoint(const std::string& from, const std::string& to,
                        const ConvertRequest& request) {
  require(!to.empty(), "the folder to write must have a name, got ''");
  if (!request.tag.empty()) require_tag(request.tag);
  if (request.form != "libds") require_empty(to);
  std::unique_ptr<StateSource> source;
  if (!is_merge(request)) {
    source = open_source(from, request.form == "fp32" ? SourceParts::masters : SourceParts::all);
    require_like(request.like);
  }
  std::string path = to;
  if (is_merge(request)) {
    source = write_merged(from, to, request);
  } else if (request.form == "universal") {
    write_universal(*source, to, request.step_tensor);
  } else {
    ConvertedState state(*source);
    source->info.tag = request.tag;
    if (request.form == "libds") {
      path = save_checkpoint(state, to, source->info, {});
    } else {
      save_weights(state, to, request.like, extras_of(*source, request.file_bytes));
    }
  }
  int64_t elements = 0;
  for (ParamId p : source->names.ids()) elements += source->numel(p);
  Json out;
  out.set("from", source->info.path);
  out.set("form", source->form);
  out.set("path", path);
  out.set("step", source->info.step);
  out.set("skipped", source->info.skipped);
  out.set("states", Json::Array(source->kinds.begin(), source->kinds.end()));
  out.set("tensors", static_cast<int64_t>(source->names.size()));
  out.set("parameters", elements);
  if (request.form == "fp32" && request.like.empty()) {
    out.set("buffers", static_cast<int64_t>(source->buffers.size()));
    out.set("tied", static_cast<int64_t>(source->tied.size()));
  }
  out.set("frozen", Json::Array(source->info.frozen.begin(), source->info.frozen.end()));
  return out;
}

}  // namespace ds
