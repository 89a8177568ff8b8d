// Matches stored tensors to parameters by name, in two passes. The first pass assigns each tensor
// whose name, after respelling and with one of the known prefixes, is that of a parameter. The
// second pass handles tensors under the other name of a tied tensor: such a tensor fills a
// parameter that has no tensor yet, and is a copy otherwise. One pass would not do, because a shard
// with the copy may precede the shard with the tensor itself.
#include "checkpoint/weight_match.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/shape.h"
#include "io/safetensors.h"
#include "nn/adapter_names.h"

namespace ds {
namespace {

// Prefixes of parameter names that old files leave out.
constexpr std::array<std::string_view, 4> prefixes{"transformer.", "model.", "bert.", "gpt_neox."};

// BERT's head has two names for one bias. The forward pass reads the first one.
constexpr std::string_view kHeadBias = "cls.predictions.decoder.bias",
                           kOtherBias = "cls.predictions.bias";

// Second names of tensors of the head, each with the name of the parameter that has the same
// values: the embedding that the head is tied to, or the head under its other name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> tied_names{
    {{"lm_head.weight", "transformer.wte.weight"},
     {"lm_head.weight", "model.embed_tokens.weight"},
     {"lm_head.weight", "model.decoder.embed_tokens.weight"},
     {"lm_head.weight", "gpt_neox.embed_in.weight"},
     {"lm_head.weight", "embed_out.weight"},
     {"embed_out.weight", "gpt_neox.embed_in.weight"},
     {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {kHeadBias, kOtherBias},
     {kOtherBias, kHeadBias}}};

// Prefixes of the names of head tensors, which the folder of a base model lacks.
constexpr std::array<std::string_view, 3> heads{"lm_head.", "embed_out.", "cls."};

// Suffixes of the names of tensors that are ignored without a warning: constants in files of old
// versions, and heads of BERT's pre-training that masked language models do not have.
constexpr std::array<std::string_view, 10> passed_over{".attn.bias",
                                                       ".attn.masked_bias",
                                                       ".attention.bias",
                                                       ".attention.masked_bias",
                                                       "rotary_emb.inv_freq",
                                                       "embeddings.position_ids",
                                                       "bert.pooler.dense.weight",
                                                       "bert.pooler.dense.bias",
                                                       "cls.seq_relationship.weight",
                                                       "cls.seq_relationship.bias"};

// A prefix that a wrapper around the model adds to the names of its tensors, and the two parts of a
// hint about the wrapper.
struct Wrapper {
  std::string_view prefix;
  const char *of, *advice;
};
constexpr std::array<Wrapper, 6> wrappers{
    {{"base_model.model.", "PEFT names a model with an adapter",
      "save the merged model (merge_and_unload(), save_pretrained())"},
     {"module.", "DistributedDataParallel and DeepSpeed name a wrapped model",
      "save the model inside (model.module.save_pretrained())"},
     {"_orig_mod.", "torch.compile names a compiled model",
      "save the model inside (model._orig_mod.save_pretrained())"},
     {"_fsdp_wrapped_module.", "FSDP names a wrapped model",
      "save by Accelerate (accelerator.get_state_dict(), unwrap_model(), save_pretrained())"},
     {"_checkpoint_wrapped_module.", "torch's checkpoint_wrapper names a module that it wraps",
      "save by Accelerate (accelerator.get_state_dict(), unwrap_model(), save_pretrained())"},
     {"language_model.", "a model of texts and images names its text model",
      "save that text model alone"}}};

// Returns the current spelling of a tensor name that old files spell differently.
std::string modern_spelling(std::string name) {
  for (auto [old, now] :
       {std::pair{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (name.ends_with(old))
      return name.substr(0, name.size() - std::string_view(old).size()) + now;
  }
  return name;
}

class Matcher {
 public:
  Matcher(const IdVector<ParamId, std::string>& names,
          const IdVector<ParamId, std::vector<int64_t>>& shapes, const std::string& path)
      : names_(names), shapes_(shapes) {
    match_.folder = read_tensor_folder(path);
    for (ParamId p : names.ids()) {
      index_.emplace(names[p], p);
    }
  }

  WeightMatch match() {
    match_.of_param.assign(index_.size(), WeightMatch::kNone);
    std::vector<size_t> tied;
    for (size_t f = 0; f < match_.folder.files.size(); ++f) {
      for (size_t e = 0; e < match_.folder.files[f].header.entries.size(); ++e) {
        if (add(f, e)) tied.push_back(match_.sources.size() - 1);
      }
    }
    for (size_t source : tied) add_tied(source);
    for (ParamId p : match_.of_param.ids()) {
      const bool stored = match_.of_param[p] != WeightMatch::kNone;
      if (!stored && !is_adapter_param(names_[p])) match_.drawn.push_back(names_[p]);
    }
    for (const std::string& name : match_.drawn) {
      auto begins = [&](std::string_view head) { return name.starts_with(head); };
      if (std::ranges::any_of(heads, begins)) continue;
      raise(DS_ERROR_CONFIG, "parameter '{}' of the model is missing from '{}'{}", TensorName(name),
            match_.folder.path, wrapping());
    }
    return std::move(match_);
  }

 private:
  // Returns a hint about the program that saved the folder, based on a prefix of the tensor names
  // or on adapter tensors, or "" if neither is known.
  std::string wrapping() const {
    for (const std::string& name : match_.surplus) {
      if (name.find(".lora_A.") != name.npos || name.find(".lora_B.") != name.npos)
        return fmt::format(
            "; its tensor '{}' is an adapter's of PEFT: save the merged model (merge_and_unload(), "
            "save_pretrained())",
            name);
      for (const Wrapper& wrapper : wrappers) {
        if (name.starts_with(wrapper.prefix)) {
          return fmt::format("; its names begin with '{}', as {}: {}", wrapper.prefix, wrapper.of,
                             wrapper.advice);
        }
        // Wrappers of single modules begin with "_" and also stand within a name.
        if (!wrapper.prefix.starts_with('_') || name.find(wrapper.prefix) == name.npos) continue;
        return fmt::format("; its name '{}' contains '{}', as {}: {}", name, wrapper.prefix,
                           wrapper.of, wrapper.advice);
      }
    }
    return "";
  }

  ParamId find(const std::string& name) const {
    auto it = index_.find(name);
    return it == index_.end() ? none : it->second;
  }

  // Returns the parameter whose name is `name`, or `name` after one of the known prefixes, or none.
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

  // Adds a stored tensor to the sources. Returns true if it is stored under the other name of a
  // tied tensor; add_tied() then decides whether it is read.
  bool add(size_t file, size_t entry) {
    WeightSource source{file, entry, none};
    const SafetensorEntry& stored = match_.entry(source);
    std::string name = modern_spelling(stored.name);
    source.param = find_with_prefix(name);
    bool tied = !source.param.exists() && (source.param = find_tied(name)).exists();
    match_.sources.push_back(source);
    if (!source.param.exists()) {
      if (std::ranges::any_of(passed_over, [&](auto end) { return name.ends_with(end); })) {
        return false;
      }
      match_.surplus.push_back(stored.name);
      return false;
    }
    check(source);
    if (!tied) take(match_.sources.size() - 1);
    return tied;
  }

  // Assigns a tensor stored under the other name of a tied tensor, or records it as a copy. For
  // BERT's bias, the decoder's name takes precedence, whatever the tensor under the other name
  // contains.
  void add_tied(size_t source) {
    const std::string name = modern_spelling(match_.entry(match_.sources[source]).name);
    size_t& slot = match_.of_param[match_.sources[source].param];
    if (slot == WeightMatch::kNone || name == kHeadBias) {
      slot = source;
    } else if (name == kOtherBias) {
      match_.sources[source].param = none;
    } else {
      match_.copies.push_back(source);
    }
  }

  // Assigns a source to its parameter, which must not have one yet.
  void take(size_t source) {
    size_t& slot = match_.of_param[match_.sources[source].param];
    if (slot == WeightMatch::kNone) {
      slot = source;
      return;
    }
    raise(DS_ERROR_CONFIG, "'{}': tensors '{}' and '{}' are both parameter '{}'",
          match_.folder.path, match_.entry(match_.sources[slot]).name,
          match_.entry(match_.sources[source]).name,
          TensorName(names_[match_.sources[source].param]));
  }

  void check(const WeightSource& source) const {
    check_stored(match_.entry(source), match_.folder.file_path(source.file), shapes_[source.param]);
  }

  const IdVector<ParamId, std::string>& names_;
  const IdVector<ParamId, std::vector<int64_t>>& shapes_;
  std::unordered_map<std::string, ParamId> index_;
  WeightMatch match_;
};

// The largest number of names that a message lists.
constexpr size_t kMostNames = 12;

std::string shown(const std::vector<std::string>& names) {
  if (names.size() <= kMostNames) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMostNames, ", "),
                     names.size() - kMostNames);
}

}  // namespace

void check_stored(const SafetensorEntry& stored, const std::string& path,
                  const std::vector<int64_t>& wanted) {
  auto text = [](const std::vector<int64_t>& extents) {
    return Shape(std::vector<Dim>(extents.begin(), extents.end())).text();
  };
  if (stored.shape != wanted) {
    raise(DS_ERROR_CONFIG, "{}: tensor '{}' has shape {}, but the model's parameter has {}",
          KeyName(path), TensorName(stored.name), text(stored.shape), text(wanted));
  }
  if (stored.dtype == DS_DTYPE_F32 || stored.dtype == DS_DTYPE_F16 || stored.dtype == DS_DTYPE_BF16)
    return;
  raise(DS_ERROR_CONFIG, "{}: tensor '{}' must be f32, f16 or bf16, got {}", KeyName(path),
        TensorName(stored.name), dtype_name(stored.dtype));
}

std::string WeightMatch::warning() const {
  std::string out;
  if (!surplus.empty())
    out =
        fmt::format("tensors that the model has no parameter for are left out: {}", shown(surplus));
  if (!drawn.empty()) {
    out += fmt::format("{}parameters of its head that the folder lacks begin at random values: {}",
                       out.empty() ? "" : "; ", shown(drawn));
  }
  return out;
}

std::vector<File> open_files(const TensorFolder& folder) {
  std::vector<File> files;
  for (size_t f = 0; f < folder.files.size(); ++f)
    files.emplace_back(folder.file_path(f), File::Mode::read);
  return files;
}

bool is_equal_copy(const WeightMatch& match, size_t copy, const std::vector<File>& files) {
  constexpr int64_t kBlock = 1 << 20;
  const WeightSource& source = match.sources[copy];
  const WeightSource& first = match.sources[match.of_param[source.param]];
  const SafetensorEntry &a = match.entry(first), &b = match.entry(source);
  if (a.dtype != b.dtype) return false;
  if (first.file == source.file && a.begin == b.begin) return true;
  std::vector<std::byte> left(kBlock), right(kBlock);
  for (int64_t at = 0; at < a.bytes;) {
    auto n = static_cast<size_t>(std::min(kBlock, a.bytes - at));
    files[first.file].read(left.data(), n, a.begin + at);
    files[source.file].read(right.data(), n, b.begin + at);
    if (std::memcmp(left.data(), right.data(), n) != 0) return false;
    at += static_cast<int64_t>(n);
  }
  return true;
}

WeightMatch match_weights(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes,
                          const std::string& path) {
  return Matcher(names, shapes, path).match();
}

}  // namespace ds
