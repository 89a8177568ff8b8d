#include "checkpoint/model_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/gguf/model.h"
#include "checkpoint/gguf/weights.h"
#include "checkpoint/weight_match.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/path_kind.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/keys.h"
#include "data/preference.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/gguf.h"
#include "io/tensor_folder.h"
#include "nn/adapter_keys.h"
#include "nn/models/gpt.h"
#include "nn/models/hf_rows.h"
#include "nn/models/preference.h"
#include "passes/keys.h"
#include "zero/keys.h"

namespace ds {
namespace {

constexpr int64_t kMaxConfig = 1 << 24;
constexpr const char* kTied = "tie_word_embeddings";

WeightMatch match_graph(const Graph& graph, const std::string& folder) {
  const ParamTable params(graph);
  return match_weights(params.names, params.shapes, folder);
}

// Returns false if a tied tensor is stored under both names with different values. Transformers 5
// then does not tie the two tensors, whatever config.json says.
bool is_tied(const WeightMatch& match) {
  if (match.copies.empty()) return true;
  const std::vector<File> files = open_files(match.folder);
  return std::ranges::all_of(match.copies,
                             [&](size_t copy) { return is_equal_copy(match, copy, files); });
}

// Returns the file that describes the model.
std::string config_path(const std::string& folder) {
  return is_gguf(folder) ? folder : folder + "/config.json";
}

}  // namespace

ParamTable::ParamTable(const Graph& graph) {
  for (const Parameter& param : graph.params) {
    names.push_back(param.name);
    shapes.push_back({});
    for (const Dim& dim : graph.type(param.value).shape.dims()) shapes.back().push_back(dim.extent);
  }
}

Json read_model_config(const std::string& folder) {
  if (is_gguf(folder)) return read_gguf_model(folder).config;
  std::string path = config_path(folder);
  if (!name_exists(path)) {
    raise(DS_ERROR_NOT_FOUND, "{}: does not exist, so '{}' is not a model folder{}", path, folder,
          path_hint(folder, Sought::model));
  }
  Json config = read_json(path, kMaxConfig);
  if (!config.is_object())
    raise(DS_ERROR_CORRUPT, "{}: must be an object, got {}", path, config.kind());
  if (const std::string hint = path_hint(folder, Sought::model);
      !config.find("model_type") && !hint.empty())
    raise(DS_ERROR_CONFIG, "'{}' is not a model folder{}", folder, hint);
  return config;
}

int64_t model_positions(const std::string& folder, const Json& config) {
  try {
    return hf_positions(config);
  } catch (const Error& error) {
    raise(error.status(), "{}: {}", config_path(folder), error.what());
  }
}

void warn_unread(const HfModel& model, const std::string& folder) {
  if (model.untied) {
    log_line(LogLevel::warning,
             fmt::format(
                 "{}: ties the model's head to its embedding, but both are stored, with different "
                 "values, so they are not tied; set tie_word_embeddings to false in it to say so",
                 config_path(folder)));
  }
  if (model.unread.empty()) return;
  log_line(LogLevel::warning,
           fmt::format("{}: the forward pass of family {} in Transformers does not read these "
                       "keys, and they have no effect here: {}",
                       config_path(folder), model.family, fmt::join(model.unread, ", ")));
}

HfModel build_hf_model(const std::string& folder, int64_t bound, int64_t seq, HfMode mode,
                       HfBatch batch) {
  Json config = read_model_config(folder);
  auto build = [&] {
    try {
      return hf_model(config, bound, seq, mode, batch);
    } catch (const Error& error) {
      raise(error.status(), "{}: {}", config_path(folder), error.what());
    }
  };
  HfModel model = build();
  if (is_gguf(folder)) {
    const ParamTable params(model.graph);
    open_gguf_weights(params.names, params.shapes, folder);
    return model;
  }
  if (!has_tensors(folder)) return model;
  WeightMatch match = match_graph(model.graph, folder);
  // If the files show that the head is not tied, the model is built a second time, because tying
  // changes the graph.
  if (!is_tied(match)) {
    config.set(kTied, false);
    model = build();
    model.untied = true;
    match = match_graph(model.graph, folder);
  }
  model.drawn = match.drawn;
  return model;
}

std::map<std::string, std::string> stored_names(const Graph& graph, const std::string& folder) {
  std::map<std::string, std::string> names;
  if (is_gguf(folder)) {
    for (const Parameter& param : graph.params) names[param.name] = param.name;
    return names;
  }
  WeightMatch match = match_graph(graph, folder);
  for (const WeightSource& source : match.sources) {
    if (!source.param.exists()) continue;
    names[match.entry(source).name] = graph.params[source.param].name;
  }
  return names;
}

void fill_from_folder(Config& config) {
  if (config.waiting.empty() || config.model.folder.empty()) return;
  fill_from_model(config, hf_hidden(read_model_config(config.model.folder)));
}

namespace {

// Returns the loss that the section `preference` describes.
PairLoss pair_loss(const PreferenceKeys& keys) {
  PairLoss loss;
  loss.loss = keys.loss_type == "orpo" ? "odds" : keys.loss_type;
  loss.beta = keys.beta;
  loss.label_smoothing = keys.label_smoothing;
  loss.margin = keys.loss_type == "simpo" ? keys.simpo_gamma : 0;
  loss.nll = keys.loss_type == "orpo" ? 1 : keys.cpo_alpha;
  loss.nll_of_all = keys.loss_type == "orpo";
  loss.referred = keys.referred();
  return loss;
}

// Builds the model without its loss of pairs.
HfModel model_of_texts(Config& config) {
  int64_t bound = batch_rows(config);
  if (!config.model.folder.empty()) {
    // If model.dropout is not given, the dropout rates of config.json apply, which only
    // HfMode::training uses.
    const PreferenceKeys& preference = config.get<PreferenceKeys>();
    bool noise = config.origins.at("model.dropout") == "default" &&
                 !(preference.on() && preference.disable_dropout);
    fill_from_folder(config);
    HfRows rows = config.model.documents ? HfRows::documents
                  : config.model.mask    ? HfRows::masked
                                         : HfRows::sequences;
    bool padded = config.get<DataKeys>().format != "text" || config.get<CurriculumKeys>().enabled;
    return build_hf_model(config.model.folder, bound, config.sequence,
                          noise ? HfMode::training : HfMode::evaluation, {rows, padded});
  }
  if (config.model.family.empty()) {
    raise(DS_ERROR_CONFIG, "{} or model.folder must be given when there is no graph, got none",
          KeyName("model.family"));
  }
  HfModel model;
  model.graph = build_gpt(config.model, bound, config.sequence);
  model.family = config.model.family;
  return model;
}

}  // namespace

HfModel configured_model(Config& config) {
  const PreferenceKeys& preference = config.get<PreferenceKeys>();
  if (preference.on() && preference.disable_dropout) {
    config.model.dropout = 0;
    config.get<AdapterKeys>().dropout = 0;
  }
  // The losses of a reference are inferred by the engine of the run.
  if (preference.referred()) {
    config.get<InferKeys>().inferred = "token_losses";
    config.origins["inferred"] = "derived";
  }
  HfModel model = model_of_texts(config);
  if (preference.on()) prefer_pairs(model, pair_loss(preference), config.sequence);
  return model;
}

}  // namespace ds
