// A conversion is a save by one rank whose state is in files. ConvertedState presents a StateSource
// as the state of an engine, so that checkpoints and models are written by the same code as in a
// training run. Nothing is loaded as a unit: the writers request pieces, and each piece is read
// from the source's files on demand.
#include "checkpoint/convert.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/adapter_source.h"
#include "checkpoint/deepspeed/writer.h"
#include "checkpoint/folder.h"
#include "checkpoint/folder_source.h"
#include "checkpoint/gguf/adapter.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/gguf/tokenizer_import.h"
#include "checkpoint/gguf/writer.h"
#include "checkpoint/gguf/written_file.h"
#include "checkpoint/merge.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/open_source.h"
#include "checkpoint/open_weights.h"
#include "checkpoint/state_access.h"
#include "checkpoint/state_source.h"
#include "checkpoint/weights_save.h"
#include "checkpoint/writer.h"
#include "comm/communicator.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/path_kind.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_types.h"
#include "io/gguf_vocabulary.h"
#include "io/owner.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"
#include "nn/models/hf_config.h"

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
    raise(DS_ERROR_INTERNAL, "files that are converted are read-only");
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

// Throws unless `folder` does not exist or is an empty folder that belongs to this user. Temporary
// files, which a killed conversion leaves, are removed.
void require_empty(const std::string& folder) {
  if (!name_exists(folder)) return;
  if (!std::filesystem::is_directory(folder))
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' must be a folder, or not exist", folder);
  require_own_folder(folder);
  const std::vector<std::string> names = list_folder(folder);
  const auto kept = std::ranges::count_if(names, std::not_fn(is_fresh_name));
  if (kept > 0)
    raise(DS_ERROR_INVALID_ARGUMENT, "'{}' must be empty: it has {} files", folder, kept);
  for (const std::string& name : names) std::filesystem::remove(folder + "/" + name);
}

// Throws if `like` has no weights and is recognized as another kind of folder, for example a
// checkpoint. A model folder with a config.json but no weights is accepted; names and shapes are
// then those of the source.
void require_like(const std::string& like) {
  if (like.empty() || has_weights(like)) return;
  if (exists(like + "/config.json") && model_hint(like).empty()) return;
  const std::string hint = path_hint(like, Sought::weights);
  if (!hint.empty())
    raise(DS_ERROR_NOT_FOUND, "like: '{}' has no weights of a model{}", like, hint);
}

// Returns the form that the request names, or the one that the paths suggest.
std::string form_of(const std::string& to, const ConvertRequest& request, bool from_gguf) {
  if (!request.form.empty()) return request.form;
  if (to.ends_with(".gguf")) return "gguf";
  return from_gguf ? "model" : "libds";
}

// Throws unless the form and the options suit the source. `form` is that of form_of().
void check_request(const std::string& from, const std::string& form, const ConvertRequest& request,
                   bool from_gguf) {
  if (!request.tag.empty()) require_tag(request.tag);
  if (from_gguf && form != "model" && form != "gguf")
    raise(DS_ERROR_INVALID_ARGUMENT,
          "'{}' is a GGUF file, which becomes a model folder or another GGUF file (to \"model\" or "
          "\"gguf\"), got \"{}\"",
          from, form);
  if (!from_gguf && form == "model")
    raise(DS_ERROR_INVALID_ARGUMENT,
          "'{}' is not a GGUF file, and only such a file becomes a model folder (to \"model\")",
          from);
  const bool typed = form == "model" || form == "gguf";
  require(typed || request.type.empty(),
          "type is an option of the forms model and gguf, got '{}' for {}", request.type, form);
  if (request.type.empty()) return;
  if (form == "gguf") written_gguf_type(request.type);
  require(form == "gguf" || request.type != "q8_0",
          "type of a model folder must be f32, f16 or bf16, got '{}'", request.type);
}

// Writes the folder of a GGUF file's model.
void write_model(StateSource& source, const std::string& folder, const ConvertRequest& request) {
  ConvertedState state(source);
  WeightExtras extras = extras_of(source, request.file_bytes);
  if (!request.type.empty()) extras.dtype = parse_dtype(request.type);
  save_weights(state, folder, source.info.path, extras);
}

// Returns the type of a GGUF file that loses nothing of the weights in a model folder, or nothing
// but codes of another GGUF file.
std::string lossless_type(const std::string& folder) {
  if (is_gguf(folder)) return std::string(dtype_name(read_gguf_model(folder).dtype));
  if (!has_tensors(folder)) return "f32";
  const TensorFolder tensors = read_tensor_folder(folder);
  std::set<DType> types;
  for (const TensorFile& file : tensors.files) {
    for (const SafetensorEntry& entry : file.header.entries) types.insert(entry.dtype);
  }
  if (types.contains(DS_DTYPE_F32)) return "f32";
  return types.contains(DS_DTYPE_F16) && !types.contains(DS_DTYPE_BF16) ? "f16" : "bf16";
}

// Writes the masters of a source as a GGUF file. `folder` is the model folder, or the GGUF file,
// that has config.json and the tokenizer.
void write_gguf_of(StateSource& source, const std::string& folder, const std::string& to,
                   const ConvertRequest& request) {
  GgufContent content;
  content.config = read_model_config(folder);
  content.vocabulary = is_gguf(folder)
                           ? read_vocabulary(folder)
                           : import_tokenizer(folder, HfConfig(content.config).size("vocab_size"));
  content.type = request.type.empty() ? lossless_type(folder) : request.type;
  content.name = shown_gguf_name(folder);
  write_gguf(source, content, to);
}

// Returns the base of the adapter `from`, which `like` names or else its configuration.
std::string base_of(const std::string& from, const ConvertRequest& request) {
  std::string base = request.like;
  if (base.empty() && is_adapter_folder(from)) base = adapter_base(from);
  if (base.empty() || !(is_gguf(base) || exists(base + "/config.json")))
    raise(DS_ERROR_NOT_FOUND,
          "the base of adapter '{}' must be a model folder or a GGUF file, got '{}'; name it with "
          "--base or --like (option like)",
          from, base);
  return base;
}

// Writes the folder of an adapter as a GGUF file, or the reverse, and returns the source.
std::unique_ptr<StateSource> write_adapter(const std::string& from, const std::string& to,
                                           const std::string& form, const ConvertRequest& request) {
  const std::string base = base_of(from, request);
  if (!is_gguf(from)) {
    std::unique_ptr<AdapterSource> source = open_adapter_source(from, base);
    write_gguf_adapter(*source, base, request.type.empty() ? "f32" : request.type, to);
    return source;
  }
  if (form != "model" || !request.type.empty())
    raise(DS_ERROR_INVALID_ARGUMENT,
          "'{}' has an adapter, which becomes a folder of f32 (to \"model\"), got \"{}\"{}", from,
          form, request.type.empty() ? "" : " and type '" + request.type + "'");
  std::unique_ptr<AdapterSource> source = open_gguf_adapter(from, base);
  ConvertedState state(*source);
  save_adapter(state, source->keys, to, base);
  return source;
}

// Opens the source of a conversion.
std::unique_ptr<StateSource> open_converted(const std::string& from, const std::string& form) {
  if (is_gguf(from) || (form == "gguf" && exists(from + "/config.json") && has_tensors(from)))
    return open_folder_source(from);
  return open_source(from,
                     form == "fp32" || form == "gguf" ? SourceParts::masters : SourceParts::all);
}

// Writes a checkpoint, a model folder or a GGUF file in a form. Returns the path of the result.
std::string write_form(StateSource& source, const std::string& to, const std::string& form,
                       const ConvertRequest& request) {
  if (form == "model") {
    write_model(source, to, request);
    return to;
  }
  if (form == "gguf") {
    const bool folder = source.form == "model" || source.form == "gguf";
    if (!folder && request.like.empty())
      raise(DS_ERROR_INVALID_ARGUMENT,
            "like: the model folder of '{}' is needed for a GGUF file, got none", source.info.path);
    write_gguf_of(source, folder ? source.info.path : request.like, to, request);
    return to;
  }
  if (form == "universal") {
    write_universal(source, to, request.step_tensor);
    return to;
  }
  ConvertedState state(source);
  source.info.tag = request.tag;
  if (form == "libds") return save_checkpoint(state, to, source.info, {});
  save_weights(state, to, request.like, extras_of(source, request.file_bytes));
  return to;
}

Json description(const StateSource& source, const std::string& path) {
  int64_t elements = 0;
  for (ParamId p : source.names.ids()) elements += source.numel(p);
  Json out;
  out.set("from", source.info.path);
  out.set("form", source.form);
  out.set("path", path);
  out.set("step", source.info.step);
  out.set("skipped", source.info.skipped);
  out.set("states", Json::Array(source.kinds.begin(), source.kinds.end()));
  out.set("tensors", static_cast<int64_t>(source.names.size()));
  out.set("parameters", elements);
  return out;
}

// Adds the adapter in the folder `from` to its base, or takes it out, and returns the source that
// was written.
std::unique_ptr<StateSource> write_merged(const std::string& from, const std::string& to,
                                          const ConvertRequest& request) {
  if (!is_adapter_folder(from))
    raise(DS_ERROR_NOT_FOUND, "'{}' is not the folder of an adapter: it has no {}", from,
          kAdapterConfig);
  if (request.form == "unmerged" && request.like.empty())
    raise(DS_ERROR_INVALID_ARGUMENT,
          "like: the merged model, which '{}' is to be taken out of, is needed, got none", from);
  const std::string base = base_of(from, request);
  std::unique_ptr<StateSource> source = open_merged(from, base, request.form == "unmerged");
  if (to.ends_with(".gguf")) {
    write_gguf_of(*source, base, to, request);
    return source;
  }
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
  const bool from_gguf = is_gguf(from);
  const std::string form = form_of(to, request, from_gguf);
  check_request(from, form, request, from_gguf);
  if (form == "gguf" || (is_merge(request) && to.ends_with(".gguf"))) {
    require(!name_exists(to), "'{}' must not exist", to);
  } else if (form != "libds") {
    require_empty(to);
  }
  std::unique_ptr<StateSource> source;
  std::string path = to;
  if (is_merge(request)) {
    source = write_merged(from, to, request);
  } else if (is_gguf_adapter(from) || (form == "gguf" && is_adapter_folder(from))) {
    source = write_adapter(from, to, form, request);
  } else {
    source = open_converted(from, form);
    if (form != "libds" && !source->info.base.is_null())
      raise(DS_ERROR_UNSUPPORTED,
            "'{}' holds an adapter and only names its base '{}': merge the folder of the adapter, "
            "which a run leaves as model/, by `libds merge`",
            from, source->info.base.at("folder").string());
    require_like(request.like);
    path = write_form(*source, to, form, request);
  }
  Json out = description(*source, path);
  if (form == "fp32" && request.like.empty()) {
    out.set("buffers", static_cast<int64_t>(source->buffers.size()));
    out.set("tied", static_cast<int64_t>(source->tied.size()));
  }
  out.set("frozen", Json::Array(source->info.frozen.begin(), source->info.frozen.end()));
  return out;
}

}  // namespace ds
