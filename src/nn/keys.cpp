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
  rows.words("family", &M::family, {"gpt"}, "`gpt`; none: the caller brings the graph");
  rows.only([](const M& m) { return !m.folder.empty(); });
  rows.nonempty(
      "folder", &M::folder,
      "a Hugging Face folder ([models.md](models.md)) in place of a family; only `init`, "
      "`mask` and `dropout` may stand beside it, and `data.tokenizer` is the folder's when it "
      "is not given");
  rows.words("init", &M::init, {"folder", "random"},
             "the start of a run on a folder: `folder`, its weights, or `random` ones");
  rows.add("mask", &M::mask,
           "the graph of a folder takes an input `mask` that hides padding, which bert and opt "
           "always do; `libds train` pads nothing and fills it with 1");
  rows.only([](const M& m) { return !m.family.empty() || !m.folder.empty(); });
  rows.add("documents", &M::documents,
           "the graph takes inputs `begin` and `positions` in place of a mask: a row holds one "
           "document after another, which see nothing of each other ([models.md](models.md)); with "
           "`data.packing` true a sample is one document. True where `data.packing` is "
           "`\"isolated\"`, with dynamic batching, and with a curriculum of several samples a "
           "micro-batch")
      .shown("derived (false)");
  rows.only([](const M& m) { return !m.family.empty(); });
  rows.add("layers", &M::layers, "blocks, at most 1000", Limits{.low = 1, .high = 1000})
      .shown("required");
  rows.add("hidden", &M::hidden, "width, a multiple of heads", positive).shown("required");
  rows.add("heads", &M::heads, "attention heads", positive).shown("required");
  rows.add("vocab", &M::vocab, "tokens", positive).shown("256");
  rows.add("positions", &M::positions, "longest sequence", positive).shown("`run.sequence`");
  constexpr Limits share{.low = 0, .high = 0.999};
  rows.add("dropout", &M::dropout,
           "share of activations dropped; with a folder, 0 (no dropout) or absent (its config.json "
           "decides)",
           share);
  rows.add("layerdrop", &M::layerdrop,
           "probability with which a micro-batch of a training step leaves out a layer (Fan, Grave "
           "and Joulin 2020): one draw for each layer, step and leaf; what is left out is "
           "computed, and has neither effect nor gradient. A folder says it in its config.json",
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
