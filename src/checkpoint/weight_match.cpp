#include "checkpoint/weight_match.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/shape.h"
#include "io/safetensors.h"

namespace ds {
namespace {

// What old files leave out of every name.
constexpr std::array<std::string_view, 4> prefixes{"transformer.", "model.", "bert.", "gpt_neox."};

// Other names of a head, and the parameter that it is: tied to the embedding, or called otherwise.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> tied_names{
    {{"lm_head.weight", "transformer.wte.weight"},
     {"lm_head.weight", "model.embed_tokens.weight"},
     {"lm_head.weight", "model.decoder.embed_tokens.weight"},
     {"lm_head.weight", "gpt_neox.embed_in.weight"},
     {"lm_head.weight", "embed_out.weight"},
     {"embed_out.weight", "gpt_neox.embed_in.weight"},
     {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {"cls.predictions.decoder.bias", "cls.predictions.bias"}}};

// Ends of names that are no weights of a language model: constants of old versions, heads of BERT's
// pre-training that masked language models do not have, and the bias that an untied head does not read.
constexpr std::array<std::string_view, 11> passed_over{
    "cls.predictions.bias",     ".attn.bias",
    ".attn.masked_bias",        ".attention.bias",
    ".attention.masked_bias",   "rotary_emb.inv_freq",
    "embeddings.position_ids",  "bert.pooler.dense.weight",
    "bert.pooler.dense.bias",   "cls.seq_relationship.weight",
    "cls.seq_relationship.bias"};

std::string modern_spelling(std::string name) {
  for (auto [old, now] :
       {std::pair{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (name.ends_with(old)) return name.substr(0, name.size() - std::string_view(old).size()) + now;
  }
  return name;
}

class Matcher {
 public:
  Matcher(const IdVector<ParamId, std::string>& names, const IdVector<ParamId, std::vector<int64_t>>& shapes,
          const std::string& path)
      : names_(names), shapes_(shapes) {
    match_.folder = read_tensor_folder(path);
    for (ParamId p : names.ids()) {
      index_.emplace(names[p], p);
    }
  }

  WeightMatch match() {
    match_.of_param.assign(index_.size(), kNone);
    std::vector<size_t> tied;
    for (size_t f = 0; f < match_.folder.files.size(); ++f) {
      for (size_t e = 0; e < match_.folder.files[f].header.entries.size(); ++e) {
        if (add(f, e)) tied.push_back(match_.sources.size() - 1);
      }
    }
    for (size_t source : tied) {
      size_t& slot = match_.of_param[match_.sources[source].param];
      if (slot == kNone) {
        slot = source;
      } else {
        match_.copies.push_back(source);
      }
    }
    for (ParamId p : match_.of_param.ids()) {
      if (match_.of_param[p] != kNone) continue;
      raise(DS_ERROR_CONFIG, "the model has parameter '{}', '{}' does not", TensorName(names_[p]),
            match_.folder.path);
    }
    return std::move(match_);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  ParamId find(const std::string& name) const {
    auto it = index_.find(name);
    return it == index_.end() ? none : it->second;
  }

  ParamId find_with_prefix(const std::string& name) const {
    ParamId param = find(name);
    for (std::string_view prefix : prefixes) {
      if (!param.exists()) param = find(std::string(prefix) + name);
    }
    return param;
  }

  ParamId find_tied(const std::string& name) const {
    ParamId param;
    for (const auto& [other, real] : tied_names) {
      if (!param.exists() && name == other) param = find(std::string(real));
    }
    return param;
  }

  // Whether it is a tied tensor under its other name; the caller decides whether that is read.
  bool add(size_t file, size_t entry) {
    WeightSource source{file, entry, none};
    const SafetensorEntry& stored = match_.entry(source);
    std::string name = modern_spelling(stored.name);
    source.param = find_with_prefix(name);
    bool tied = !source.param.exists() && (source.param = find_tied(name)).exists();
    match_.sources.push_back(source);
    if (!source.param.exists()) {
      if (std::any_of(passed_over.begin(), passed_over.end(),
                      [&](auto end) { return name.ends_with(end); })) {
        return false;
      }
      raise(DS_ERROR_CONFIG, "{}: the model has no parameter for tensor '{}'",
            KeyName(match_.folder.file_path(file)), TensorName(stored.name));
    }
    check(source);
    if (!tied) take(match_.sources.size() - 1);
    return tied;
  }

  void take(size_t source) {
    size_t& slot = match_.of_param[match_.sources[source].param];
    if (slot == kNone) {
      slot = source;
      return;
    }
    raise(DS_ERROR_CONFIG, "'{}': tensors '{}' and '{}' are both parameter '{}'", match_.folder.path,
          match_.entry(match_.sources[slot]).name, match_.entry(match_.sources[source]).name,
          TensorName(names_[match_.sources[source].param]));
  }

  void check(const WeightSource& source) const {
    const SafetensorEntry& stored = match_.entry(source);
    std::string path = match_.folder.file_path(source.file);
    const std::vector<int64_t>& wanted = shapes_[source.param];
    if (stored.shape != wanted) {
      raise(DS_ERROR_CONFIG, "{}: tensor '{}' has shape {}, the model's parameter {}", KeyName(path),
            TensorName(stored.name), text(stored.shape), text(wanted));
    }
    if (stored.dtype == DS_DTYPE_F32 || stored.dtype == DS_DTYPE_F16 || stored.dtype == DS_DTYPE_BF16) return;
    raise(DS_ERROR_CONFIG, "{}: tensor '{}' must be f32, f16 or bf16, got {}", KeyName(path),
          TensorName(stored.name), dtype_name(stored.dtype));
  }

  static std::string text(const std::vector<int64_t>& extents) {
    return Shape(std::vector<Dim>(extents.begin(), extents.end())).text();
  }

  const IdVector<ParamId, std::string>& names_;
  const IdVector<ParamId, std::vector<int64_t>>& shapes_;
  std::unordered_map<std::string, ParamId> index_;
  WeightMatch match_;
};

}  // namespace

WeightMatch match_weights(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes, const std::string& path) {
  return Matcher(names, shapes, path).match();
}

}  // namespace ds
