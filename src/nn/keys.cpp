// Registers the keys of `model`, which describe a built-in family with its sizes or name a Hugging
// Face folder; with neither, the caller provides the graph. A key is printed only for the kinds of
// model that have it.
#include "nn/keys.h"

#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

constexpr const char* kFolder = "model.folder";

// Checks the keys of a model folder. The sizes are in its config.json, and its dropout can only be
// turned off.
void complete_model_folder(Config& c) {
  if (!c.model.family.empty()) {
    refuse(kFolder, "\"{}\" contradicts model.family \"{}\"; give one of them", c.model.folder,
           c.model.family);
  }
  for (const char* name : {"layers", "hidden", "heads", "vocab", "positions"}) {
    if (!c.origins.contains(std::string("model.") + name)) continue;
    refuse(std::string("model.") + name,
           "must not be given with model.folder \"{}\", whose config.json has it", c.model.folder);
  }
  if (c.model.dropout != 0) {
    refuse("model.dropout",
           "must be 0 (no dropout) or absent (config.json decides) with model.folder, got {}",
           c.model.dropout);
  }
}

}  // namespace

void model_keys(KeyList& keys) {
  using M = ModelConfig;
  KeyRows rows(keys, "model.", &Config::model);
  rows.words("family", &M::family, {"gpt"},
             "`gpt`; without a family or folder, the caller provides the graph");
  rows.only([](const M& m) { return !m.folder.empty(); });
  rows.nonempty(
      "folder", &M::folder,
      "a Hugging Face folder ([models.md](models.md)) or a GGUF file instead of a family. Of the "
      "other keys of `model`, only `init`, `mask`, `documents` and `dropout` apply to it. If "
      "`data.tokenizer` is not given, the folder's tokenizer is used");
  rows.words("init", &M::init, {"folder", "random"},
             "the initial weights of a run on a folder: those of the folder (`folder`), or random "
             "ones (`random`)");
  rows.add("mask", &M::mask,
           "the graph of a folder gets an input `mask` that hides padding; graphs of bert and opt "
           "always have it. `libds train` does not pad and fills it with 1");
  rows.only([](const M& m) { return !m.family.empty() || !m.folder.empty(); });
  rows.add("documents", &M::documents,
           "the graph takes inputs `begin` and `positions` in place of a mask: a row holds one "
           "document after another, and no document sees another ([models.md](models.md)); with "
           "`data.packing` true, a sample counts as one document. If the key is not given, it is "
           "true with `data.packing` `\"isolated\"`, with dynamic batching, and with a curriculum "
           "if a micro-batch has several samples")
      .shown("derived (false)");
  rows.only([](const M& m) { return !m.family.empty(); });
  rows.add("layers", &M::layers, "number of layers, at most 1000", Limits{.low = 1, .high = 1000})
      .shown("required");
  rows.add("hidden", &M::hidden, "width of the model, a multiple of `heads`", positive)
      .shown("required");
  rows.add("heads", &M::heads, "number of attention heads", positive).shown("required");
  rows.add("vocab", &M::vocab, "size of the vocabulary", positive).shown("256");
  rows.add("positions", &M::positions, "length of the longest sequence", positive)
      .shown("`run.sequence`");
  constexpr Limits share{.low = 0, .high = 0.999};
  rows.add("dropout", &M::dropout,
           "the share of activations that are dropped. With a folder, the key must be 0 (no "
           "dropout) or absent (config.json decides)",
           share);
  rows.add(
      "layerdrop", &M::layerdrop,
      "the probability with which a micro-batch of a training step skips a layer (Fan, Grave and "
      "Joulin 2020), drawn for each layer, step and leaf. A skipped layer is still computed, but "
      "its result is not used, and its gradient is 0. For a model folder, this key has no effect: "
      "the `layerdrop` of its config.json applies, unless `model.dropout` is 0",
      share);
}

// A model of the family "gpt" must give its sizes, except for the vocabulary (default: bytes) and
// the positions (default: the run's sequence length).
void complete_model(Config& c) {
  ModelConfig& m = c.model;
  if (!m.folder.empty()) return complete_model_folder(c);
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> rows{
      {"model.init", {}, excludes, kFolder, {"null"}, "", ": \"{}\" needs model.folder, got none"},
      {"model.mask",
       {"true"},
       excludes,
       kFolder,
       {"null"},
       "",
       ": {} needs model.folder, got none"}};
  check_needs(c, rows);
  if (m.family.empty()) return;
  if (m.vocab == 0) {
    m.vocab = 256;
    c.origins["model.vocab"] = "derived";
  }
  if (m.positions == 0) {
    m.positions = c.sequence;
    c.origins["model.positions"] = "derived";
  }
  for (const auto& [name, value] :
       {std::pair{"layers", m.layers}, {"hidden", m.hidden}, {"heads", m.heads}}) {
    if (value == 0)
      refuse(std::string("model.") + name, "missing; family \"{}\" needs it", m.family);
  }
  if (m.hidden % m.heads != 0) {
    raise(DS_ERROR_CONFIG, "{} {} is not a multiple of model.heads {}", KeyName("model.hidden"),
          m.hidden, m.heads);
  }
  if (c.sequence > m.positions) {
    raise(DS_ERROR_CONFIG, "{} {} is above model.positions {}", KeyName("run.sequence"), c.sequence,
          m.positions);
  }
}

}  // namespace ds
