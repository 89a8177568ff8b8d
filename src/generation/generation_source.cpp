// Opens a run, a checkpoint or a model folder to continue a text. A run provides its configuration
// and tokenizer; a model folder provides config.json and the tokenizer's files, and everything else
// is chosen here.
#include "generation/generation_source.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "checkpoint/agree.h"
#include "checkpoint/folder.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/run_paths.h"
#include "compile/decode_plan.h"
#include "compile/plan.h"
#include "core/base/error.h"
#include "core/base/json_read.h"
#include "core/base/path_kind.h"
#include "core/config/parse_config.h"
#include "engine/threads.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/gguf.h"
#include "nn/adapter_keys.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// The largest generation_config.json, in bytes, and the largest sequence of a run.
constexpr int64_t kMaxDocument = 1 << 24;
constexpr int64_t kMostPositions = 1 << 28;

// The parts of a source on which the ranks agree before the engine is created.
struct Opened {
  GenerationSource source;
  Config config;
  HfModel model;
  DecodeRequest decode;
  // The number of the adapter of a run, and the folder of an adapter on a model folder, or "".
  int adapter = 0;
  std::string adapter_folder;
};

std::vector<int32_t> tokens_of(const GenerationRequest& request, const Tokenizer* tokenizer) {
  if (!tokenizer) return request.ids;
  std::vector<int32_t> tokens = tokenizer->encode(request.prompt);
  require(!tokens.empty(),
          "prompt must have at least one token: {} has none, and tokenizer '{}' adds none at the "
          "beginning",
          request.prompt.empty() ? "an empty text" : "the text", tokenizer->name());
  return tokens;
}

// Refuses a text that has tokens for which the model in `folder` has no row. Token ids are not
// checked.
void check_vocabulary(const Opened& opened, const std::string& folder) {
  const Graph& graph = opened.model.graph;
  const GenerationSource& source = opened.source;
  if (!source.tokenizer || graph.outputs.size() < 2) return;
  int64_t vocabulary = graph.type(graph.outputs[1].value).shape[1].extent;
  for (size_t i = 0; i < source.prompt.size(); ++i) {
    require(source.prompt[i] < vocabulary,
            "token {} of the prompt must be 0 to {}, the vocabulary of '{}', got {} from tokenizer "
            "'{}'",
            i, vocabulary - 1, folder, source.prompt[i], source.tokenizer->name());
  }
}

void check_causal(const HfModel& model, const std::string& path) {
  if (model.causal) return;
  raise(DS_ERROR_UNSUPPORTED,
        "'{}' is a {} model, which predicts masked tokens and cannot continue a text", path,
        model.family);
}

// Returns the configuration of an engine that only continues text: one row at a time, without an
// optimizer.
Json engine_document(const GenerationRequest& request, int64_t sequence, int64_t stage,
                     const std::string& own) {
  const std::string& dtype = request.dtype.empty() ? own : request.dtype;
  Json run, zero, document;
  run.set("sequence", sequence);
  run.set("threads", request.threads);
  zero.set("stage", request.stage < 0 ? stage : request.stage);
  document.set("train_micro_batch_size_per_gpu", 1);
  document.set("run", std::move(run));
  document.set("zero_optimization", std::move(zero));
  document.set("device", request.device);
  if (dtype != "f32")
    document.set(dtype == "f16" ? "fp16" : "bf16", Json::Object{{"enabled", true}});
  return document;
}

// Returns whether `folder` is a GGUF file or holds a model. Run folders and checkpoints may also
// have a config.json, but other files identify them.
bool is_model(const std::string& folder) {
  if (is_gguf(folder)) return true;
  return name_exists(folder + "/config.json") && !name_exists(folder + "/checkpoints") &&
         !name_exists(folder + "/manifest.json");
}

// Returns the checkpoint that identifies the model of a run or of a folder of checkpoints, or
// `folder` itself if it is a checkpoint.
std::string checkpoint_of(const std::string& folder) {
  if (!name_exists(folder + "/manifest.json") && !is_run_folder(folder) &&
      !has_checkpoints(folder)) {
    raise(DS_ERROR_NOT_FOUND,
          "'{}' is not a run folder, a model folder, a GGUF file or a checkpoint: it has neither "
          "config.json nor manifest.json{}",
          folder, path_hint(folder, Sought::model));
  }
  return find_checkpoint(folder);
}

// Returns the compute type of a run. Versions before fp16 saved no section for it.
std::string own_dtype(const JsonReader& saved) {
  for (auto [section, name] : {std::pair{"bf16", "bf16"}, {"fp16", "f16"}}) {
    std::optional<JsonReader> found = saved.find(section);
    if (found && found->at("enabled").flag()) return name;
  }
  return "f32";
}

// Opens the checkpoint of a run. The run's sequence is the length of the caches, so longer texts
// roll (GenerationOptions::roll).
Opened open_run(const std::string& path, const GenerationRequest& request, int world) {
  Json info = read_checkpoint_info(path).config;
  JsonReader saved = JsonReader(path + "/manifest.json: config", info).at("config");
  Opened out;
  if (request.ids.empty()) {
    std::string data = run_data_folder(parse_run_name(path).folder);
    out.source.tokenizer =
        open_tokenizer(run_tokenizer(data, saved.at("data").at("tokenizer").text()));
  }
  out.source.roll = true;
  int64_t sequence = saved.at("run").at("sequence").integer(1, kMostPositions);
  int64_t stage = saved.at("zero_optimization").at("stage").integer(0, 3);
  Json document = engine_document(request, sequence, stage, own_dtype(saved));
  Json model = saved.at("model").json();
  if (!request.base.empty()) model.set("folder", request.base);
  document.set("model", std::move(model));
  if (const std::optional<JsonReader> adapter = saved.find("adapter")) {
    // The other keys are those of the folder.
    Json section = adapter->json();
    std::erase_if(section.object(), [](const auto& member) { return member.first == "folder"; });
    document.set("adapter", std::move(section));
  }
  if (!request.adapters.empty())
    raise(DS_ERROR_CONFIG,
          "adapters: '{}' is a checkpoint of a run, whose adapters are those of its configuration "
          "(adapter.others), got '{}'",
          path, request.adapters[0].name);
  out.config = parse_config(document, world);
  if (!request.adapter.empty())
    out.adapter = adapter_number(out.config.get<AdapterKeys>(), request.adapter);
  out.model = configured_model(out.config);
  check_causal(out.model, path);
  out.decode = {out.config.sequence, out.model.position_offset};
  out.source.prompt = tokens_of(request, out.source.tokenizer.get());
  check_vocabulary(out, path);
  return out;
}

// Reads eos_token_id, which is a number, a list of numbers, or absent. generation_config.json has
// precedence over config.json. In some files -1 means that no token ends a text.
std::vector<int32_t> end_tokens(const std::string& folder, const Json& config) {
  std::string path = folder + "/generation_config.json";
  Json own{Json::Object{}};
  if (name_exists(path)) own = read_json(path, kMaxDocument);
  std::optional<JsonReader> ids = JsonReader(path, own, ": ").find("eos_token_id");
  if (!ids) ids = JsonReader(folder + "/config.json", config, ": ").find("eos_token_id");
  if (!ids) return {};
  std::vector<int32_t> ends;
  for (const JsonReader& id : ids->json().is_array() ? ids->items() : std::vector{*ids}) {
    int64_t end = id.integer(-1, INT32_MAX);
    if (end >= 0) ends.push_back(static_cast<int32_t>(end));
  }
  return ends;
}

// Returns the folder of the adapter with which a model folder continues a text, or "".
std::string chosen_folder(const GenerationRequest& request) {
  if (request.adapter == kNoAdapter) return "";
  if (request.adapter.empty()) {
    require(request.adapters.size() <= 1,
            "adapter: name one of the {} adapters, or \"{}\" for none", request.adapters.size(),
            kNoAdapter);
    return request.adapters.empty() ? "" : request.adapters[0].folder;
  }
  for (const auto& [name, folder] : request.adapters) {
    if (name == request.adapter) return folder;
  }
  raise(DS_ERROR_NOT_FOUND, "adapter: no adapter is called '{}'; adapters has {}", request.adapter,
        request.adapters.size());
}

Opened open_model(const std::string& folder, const GenerationRequest& request, int world) {
  Opened out;
  require(request.base.empty(), "base must be given for a run only, but '{}' is a model folder",
          folder);
  Json document = read_model_config(folder);
  int64_t most = model_positions(folder, document);
  if (!request.ignore_eos) out.source.ends = end_tokens(folder, document);
  if (request.ids.empty()) out.source.tokenizer = open_tokenizer(folder);
  out.source.prompt = tokens_of(request, out.source.tokenizer.get());
  // The model is built for exactly the positions that this text needs.
  auto length = static_cast<int64_t>(out.source.prompt.size());
  require(most == 0 || length + request.tokens <= most,
          "the prompt has {} tokens and {} are requested: together they must be at most {}, the "
          "positions of '{}'",
          length, request.tokens, most, folder);
  int64_t positions = length + request.tokens;
  out.model = build_hf_model(folder, positions, positions);
  check_causal(out.model, folder);
  if (!out.model.drawn.empty()) {
    raise(DS_ERROR_CONFIG,
          "'{}' has no head (parameter '{}'), so it cannot continue a text; `libds train` can "
          "train one",
          folder, TensorName(out.model.drawn[0]));
  }
  check_vocabulary(out, folder);
  out.decode = {
      .positions = positions, .position_offset = out.model.position_offset, .by_length = true};
  Json engine = engine_document(request, positions, 0, "f32");
  out.adapter_folder = chosen_folder(request);
  if (!out.adapter_folder.empty())
    engine.set("adapter", Json::Object{{"folder", out.adapter_folder}});
  out.config = parse_config(engine, world);
  return out;
}

}  // namespace

GenerationSource open_source(Communicator& comm, const std::string& folder,
                             const GenerationRequest& request) {
  std::string checkpoint = on_root(comm, "what is continued", [&] {
    return is_model(folder) ? std::string() : checkpoint_of(folder);
  });
  bool run = !checkpoint.empty();
  Opened opened;
  agree(comm, "text", [&] {
    opened =
        run ? open_run(checkpoint, request, comm.size()) : open_model(folder, request, comm.size());
  });
  if (!run && comm.rank() == 0) warn_unread(opened.model, folder);
  EngineOptions options;
  options.threads = threads_of_rank(opened.config, comm.local_size());
  options.programs.decode = opened.decode;
  GenerationSource source = std::move(opened.source);
  source.engine = std::make_unique<GenerationEngine>(opened.config, opened.model.graph, comm,
                                                     options, opened.adapter);
  if (run) {
    // If the newest checkpoint is damaged, load() falls back to an older one.
    source.engine->load(folder);
  } else {
    source.engine->load_weights(folder);
    if (!opened.adapter_folder.empty()) source.engine->load_weights(opened.adapter_folder);
  }
  return source;
}

}  // namespace ds
