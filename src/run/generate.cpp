#include "run/generate.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/graph/ops.h"
#include "data/tokenizer.h"
#include "engine/inference.h"
#include "engine/threads.h"
#include "inference/generate.h"
#include "io/file.h"
#include "run/folder.h"

namespace ds {
namespace {

constexpr int64_t kMaxDocument = 1 << 24;

// What is common to a run and a model folder once they are open.
struct Source {
  std::unique_ptr<const Tokenizer> tokenizer;  // null: none, or none is needed
  std::unique_ptr<InferenceEngine> engine;
  std::vector<int32_t> prompt, ends;
  bool roll = false;
};

// The prompt as tokens.
std::vector<int32_t> tokens_of(const TextRequest& request, const Tokenizer* tokenizer) {
  if (!request.ids.empty()) return request.ids;
  std::vector<int32_t> tokens = tokenizer->encode(request.prompt);
  require(!tokens.empty(), "prompt must have at least one token, got none");
  return tokens;
}

Json engine_document(const TextRequest& request, int64_t sequence, int stage, bool bf16) {
  Json run, zero, half, document;
  run.set("sequence", sequence);
  run.set("threads", request.threads);
  zero.set("stage", request.stage < 0 ? stage : request.stage);
  half.set("enabled", request.dtype.empty() ? bf16 : request.dtype == "bf16");
  document.set("train_micro_batch_size_per_gpu", 1);
  document.set("run", std::move(run));
  document.set("zero_optimization", std::move(zero));
  document.set("bf16", std::move(half));
  return document;
}

std::unique_ptr<InferenceEngine> make_engine(const Config& config, const Graph& graph,
                                             const DecodeRequest& request, Communicator& comm) {
  EngineOptions options;
  options.threads = threads_of_rank(config, comm.size());
  options.programs.decode = request;
  return std::make_unique<InferenceEngine>(config, graph, comm, options);
}

// The newest checkpoint of a run folder, or `run` itself when it is one.
std::string newest_checkpoint(const std::string& run) {
  if (exists(run + "/manifest.json")) return run;
  RunFolder folder = open_run_folder(run);
  std::string path = latest_checkpoint(folder.checkpoints());
  if (path.empty()) raise(DS_ERROR_NOT_FOUND, "no complete checkpoint in '{}'", folder.checkpoints());
  return path;
}

Source open_run(Communicator& comm, const std::string& folder, const TextRequest& request) {
  std::string path = on_root(comm, "newest checkpoint", [&] { return newest_checkpoint(folder); });
  Json values = read_checkpoint_info(path).config.at("config");
  Source source;
  if (request.ids.empty()) source.tokenizer = open_tokenizer(values.at("data").at("tokenizer").string());
  source.prompt = tokens_of(request, source.tokenizer.get());
  source.roll = true;
  Json document = engine_document(request, values.at("run").at("sequence").integer(),
                                  static_cast<int>(values.at("zero_optimization").at("stage").integer()),
                                  values.at("bf16").at("enabled").boolean());
  document.set("model", values.at("model"));
  Config config = parse_config(document, comm.size());
  HfModel model = configured_model(config);
  source.engine = make_engine(config, model.graph, {config.sequence, model.position_offset}, comm);
  source.engine->load(path);
  return source;
}

// eos_token_id: a number, several, or none.
std::vector<int32_t> end_tokens(const std::string& folder, const Json& config) {
  std::string path = folder + "/generation_config.json";
  std::optional<Json> own;
  if (exists(path)) own = Json::parse(read_small_file(path, kMaxDocument), path);
  const Json* ids = own ? own->find("eos_token_id") : nullptr;
  if (!ids || ids->is_null()) ids = config.find("eos_token_id");
  std::vector<int32_t> ends;
  if (!ids || ids->is_null()) return ends;
  if (!ids->is_array()) return {static_cast<int32_t>(ids->integer())};
  for (const Json& id : ids->array()) ends.push_back(static_cast<int32_t>(id.integer()));
  return ends;
}

// Positions that the model was made for; 0: it does not say.
int64_t most_positions(const Json& config) {
  for (const char* key : {"n_positions", "max_position_embeddings"}) {
    const Json* value = config.find(key);
    if (value && value->is_number()) return value->integer();
  }
  return 0;
}

Source open_model(Communicator& comm, const std::string& folder, const TextRequest& request) {
  Source source;
  HfModel model;
  DecodeRequest decode;
  agree(comm, "model", [&] {
    if (request.ids.empty()) source.tokenizer = open_tokenizer(folder);
    source.prompt = tokens_of(request, source.tokenizer.get());
    Json config = read_model_config(folder);
    auto length = static_cast<int64_t>(source.prompt.size());
    int64_t most = most_positions(config);
    require(
        most == 0 || length + request.tokens <= most,
        "the prompt has {} tokens and {} are asked for: together they must be at most {}, the positions of "
        "'{}'",
        length, request.tokens, most, folder);
    if (!request.ignore_eos) source.ends = end_tokens(folder, config);
    decode.positions = length + request.tokens;
    model = build_hf_model(folder, decode.positions, decode.positions);
    decode.position_offset = model.position_offset;
  });
  Config config = parse_config(engine_document(request, decode.positions, 0, false), comm.size());
  source.engine = make_engine(config, model.graph, decode, comm);
  source.engine->load_weights(folder);
  return source;
}

bool is_model(const std::string& folder) {
  return exists(folder + "/config.json") && !exists(folder + "/checkpoints") &&
         !exists(folder + "/manifest.json");
}

const std::string& word(const std::string& key, const Json& value) {
  const std::string& text = value.string();
  if (text == "f32" || text == "bf16") return text;
  raise(DS_ERROR_CONFIG, "{}: expected f32 or bf16, got \"{}\"", key, text);
}

int64_t bounded(const std::string& key, const Json& value, int64_t low, int64_t high) {
  int64_t number = value.integer();
  if (number >= low && number <= high) return number;
  raise(DS_ERROR_CONFIG, "{}: must be {} to {}, got {}", key, low, high, number);
}

void set_option(TextRequest& request, const std::string& key, const Json& value) {
  if (key == "ids") {
    for (const Json& id : value.array()) {
      request.ids.push_back(static_cast<int32_t>(bounded(key, id, 0, INT32_MAX)));
    }
    if (request.ids.empty()) raise(DS_ERROR_CONFIG, "{}: must have at least one token, got none", key);
  } else if (key == "tokens") {
    request.tokens = bounded(key, value, 1, INT32_MAX);
  } else if (key == "temperature") {
    request.sampling.temperature = value.number();
  } else if (key == "top_k") {
    request.sampling.top_k = bounded(key, value, 0, INT32_MAX);
  } else if (key == "seed") {
    request.sampling.seed = static_cast<uint64_t>(bounded(key, value, 0, INT64_MAX));
  } else if (key == "dtype") {
    request.dtype = word(key, value);
  } else if (key == "threads") {
    request.threads = static_cast<int>(bounded(key, value, 0, ThreadTeam::kMostThreads));
  } else if (key == "stage") {
    request.stage = static_cast<int>(bounded(key, value, 0, 3));
  } else if (key == "ignore_eos") {
    request.ignore_eos = value.boolean();
  } else {
    const std::vector<std::string> keys{"ids",   "tokens",  "temperature", "top_k",     "seed",
                                        "dtype", "threads", "stage",       "ignore_eos"};
    std::string near = suggest(key, keys);
    raise(DS_ERROR_CONFIG, "{}: unknown key{}", key, near.empty() ? "" : "; did you mean " + near + "?");
  }
}

}  // namespace

TextRequest text_request(const std::string& prompt, const Json& document) {
  TextRequest request;
  request.prompt = prompt;
  for (const auto& [key, value] : document.object()) set_option(request, key, value);
  require(prompt.empty() != request.ids.empty(), "{}",
          prompt.empty() ? "prompt must not be empty, unless ids are given"
                         : "prompt must be empty when ids are given, got both");
  return request;
}

std::string readable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    size_t length = utf8_sequence(bytes);
    if (length == 0) {
      text += '?';
    } else {
      text += bytes[0] == '\0' ? "\n" : bytes.substr(0, length);
    }
    bytes.remove_prefix(std::max<size_t>(1, length));
  }
  return text;
}

std::string generate_text(Communicator& comm, const std::string& folder, const TextRequest& request,
                          const std::function<void(const std::string&)>& piece) {
  Source source = is_model(folder) ? open_model(comm, folder, request) : open_run(comm, folder, request);
  std::optional<TextStream> stream;
  if (source.tokenizer) stream.emplace(*source.tokenizer);
  std::string text;
  auto tell = [&](const std::string& part) {
    text += part;
    if (piece && !part.empty()) piece(part);
  };
  auto each = [&](int32_t token) {
    tell(stream ? readable(stream->push(token)) : (text.empty() ? "" : " ") + std::to_string(token));
    return true;
  };
  GenerateOptions options{request.tokens, request.sampling, source.ends, source.roll};
  generate(*source.engine, source.prompt, options, each);
  if (stream) tell(readable(stream->finish()));
  return text;
}

}  // namespace ds
