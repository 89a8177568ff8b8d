// A conversion is a save by one rank whose state lies in files: ConvertedState shows a StateSource
// as an engine's state, so that checkpoints and models are written by the code that every run uses.
#include "checkpoint/convert.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/deepspeed_writer.h"
#include "checkpoint/folder.h"
#include "checkpoint/open_source.h"
#include "checkpoint/state_access.h"
#include "checkpoint/state_source.h"
#include "checkpoint/weights_save.h"
#include "checkpoint/writer.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/file.h"
#include "io/owner.h"

namespace ds {
namespace {

constexpr int64_t kBucket = int64_t{1} << 24;  // elements; nothing is allocated by it

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

  void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                  float* out) override {
    const std::vector<ParamPlace>& places = layout_.buckets[bucket].params;
    auto after =
        std::upper_bound(places.begin(), places.end(), begin,
                         [](int64_t at, const ParamPlace& place) { return at < place.begin; });
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

// As zero_to_fp32 has them: buffers, frozen parameters, trained ones, second names.
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

void require_empty(const std::string& folder) {
  if (!name_exists(folder)) return;
  if (!std::filesystem::is_directory(folder))
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' must be a folder, or not exist", folder);
  require_own_folder(folder);
  if (!list_folder(folder).empty())
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' must be empty: it has {} files", folder,
          list_folder(folder).size());
}

}  // namespace

Json convert_checkpoint(const std::string& from, const std::string& to,
                        const ConvertRequest& request) {
  require(!to.empty(), "the folder to write must have a name, got ''");
  if (!request.tag.empty()) require_tag(request.tag);
  if (request.form != "libds") require_empty(to);
  std::unique_ptr<StateSource> source =
      open_source(from, request.form == "fp32" ? SourceParts::masters : SourceParts::all);
  std::string path = to;
  if (request.form == "universal") {
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
