// Saves weights. Rank 0 creates all files in full size, with temporary names and their headers;
// every rank writes its shards; rank 0 renames the files.
//
// There are three ways to plan the files. If `like` has safetensors files and the head, their
// headers and constants are copied unchanged (copy_rest). If it has torch files or lacks the head,
// new headers list the same tensors (plan_anew). If there is no `like` or it has no weights,
// headers are planned from the parameters and extras (plan_alone). In each case match_ says which
// parameter a stored tensor holds.
#include "checkpoint/weights_save.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/own_blocks.h"
#include "checkpoint/state_access.h"
#include "checkpoint/weight_match.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/base/path_kind.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {
namespace {

// Number of elements that are written at a time.
constexpr size_t kWriteBlock = 1 << 18;

// The files that make a folder loadable, other than the weights. All of them are small.
constexpr std::array<std::string_view, 12> side_files{
    "config.json",         "generation_config.json",
    "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",     "vocab.json",
    "merges.txt",          "vocab.txt",
    "added_tokens.json",   "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json"};
constexpr int64_t kMaxSideFile = 1 << 28;

class Saver {
 public:
  Saver(StateAccess& state, const std::string& folder, const std::string& like,
        const WeightExtras& extras)
      : state_(state), rank_(state.comm().rank()), folder_(folder), like_(like), extras_(extras) {}

  void save() {
    agree(state_.comm(), "weights plan", [&] {
      gguf_ = is_gguf(like_);
      if (!like_.empty() && !gguf_ && !std::filesystem::is_directory(like_)) {
        raise(DS_ERROR_NOT_FOUND, "like: '{}' is neither a folder nor a GGUF file{}", like_,
              path_hint(like_, Sought::model));
      }
      if (extras_.dtype) dtype_ = *extras_.dtype;
      if (gguf_ && !extras_.dtype) dtype_ = read_gguf_model(like_).dtype;
      if (gguf_ && rank_ == 0) side_texts_ = gguf_side_files(like_, dtype_);
      alone_ = like_.empty() || !has_tensors(like_);
      if (alone_) {
        plan_alone();
      } else {
        match_ = match_weights(state_.param_names(), state_.param_shapes(), like_);
        if (match_.folder.torch || !match_.drawn.empty()) plan_anew();
      }
    });
    suffix_ = on_root(state_.comm(), "weights name", [] { return fresh_name(""); });
    try {
      agree(state_.comm(), "weights files", [&] {
        if (rank_ == 0) make_files();
      });
      agree(state_.comm(), "weights write", [&] { write(); });
    } catch (...) {
      if (rank_ == 0) remove_temporaries();
      throw;
    }
    agree(state_.comm(), "weights commit", [&] {
      if (rank_ == 0) commit();
    });
  }

 private:
  const std::vector<TensorFile>& files() const { return match_.folder.files; }
  std::string final_path(size_t file) const { return folder_ + "/" + files()[file].name; }
  std::string temporary(size_t file) const { return final_path(file) + suffix_; }

  // A tensor of plan_alone(): a parameter, a buffer, or a second name of either.
  struct Planned {
    SafetensorEntry entry;
    // The parameter, or none for a buffer.
    ParamId param;
    // Index of the buffer in extras_.
    size_t buffer = 0;
    // Whether the tensor is a second name.
    bool copy = false;
    // Index of the tensor's file. Until place() assigns the files, a second name has here the index
    // of the tensor with the first name.
    size_t file = 0;
  };

  // Returns all tensors to store, in the order of the files: buffers, parameters, second names.
  std::vector<Planned> planned() const {
    std::vector<Planned> all;
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < extras_.buffers.size(); ++i) {
      places.emplace(extras_.buffers[i].name, all.size());
      all.push_back({extras_.buffers[i], {}, i});
    }
    auto add = [&](ParamId p) {
      const std::string& own = state_.param_names()[p];
      const std::string name = extras_.stored_name ? extras_.stored_name(own) : own;
      places.emplace(name, all.size());
      all.push_back({{name, dtype_, state_.param_shapes()[p]}, p});
    };
    for (ParamId p : extras_.order) add(p);
    if (extras_.order.empty()) {
      for (ParamId p : state_.param_names().ids()) add(p);
    }
    for (const auto& [name, first] : extras_.tied) {
      auto found = places.find(first);
      if (found == places.end() || places.contains(name)) continue;
      places.emplace(name, all.size());
      all.push_back(all[found->second]);
      all.back().entry.name = name;
      all.back().copy = true;
      all.back().file = found->second;
    }
    return all;
  }

  // Assigns each tensor to a file, as huggingface_hub does for tensors in this order, and returns
  // the number of files. A tensor larger than `most` bytes has its own file, which precedes the
  // file that is being filled. A second name is in the same file as the first name.
  static size_t place(std::vector<Planned>& all, int64_t most) {
    std::vector<std::vector<size_t>> files;
    std::vector<size_t> current;
    int64_t filled = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].copy) continue;
      // Planning a file with only this tensor computes the tensor's size.
      std::vector<SafetensorEntry> one{all[i].entry};
      plan_safetensors(one, {});
      if (one[0].bytes > most) {
        files.push_back({i});
        continue;
      }
      if (one[0].bytes > most - filled) {
        files.push_back(std::move(current));
        current.clear();
        filled = 0;
      }
      current.push_back(i);
      filled += one[0].bytes;
    }
    if (!current.empty() || files.empty()) files.push_back(std::move(current));
    for (size_t f = 0; f < files.size(); ++f) {
      for (size_t i : files[f]) all[i].file = f;
    }
    for (Planned& tensor : all) {
      if (tensor.copy) tensor.file = all[tensor.file].file;
    }
    return files.size();
  }

  // Plans files that do not follow those of another folder.
  void plan_alone() {
    std::vector<Planned> all = planned();
    const size_t count = place(all, extras_.file_bytes);
    match_.of_param = IdVector<ParamId, size_t>(state_.param_names().size());
    match_.folder.sharded = count > 1;
    for (size_t f = 0; f < count; ++f) {
      TensorFile file;
      file.name =
          count == 1 ? extras_.file : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, count);
      for (const Planned& tensor : all) {
        if (tensor.file != f) continue;
        if (tensor.param.exists() && !tensor.copy)
          match_.of_param[tensor.param] = match_.sources.size();
        match_.sources.push_back({f, file.header.entries.size(), tensor.param});
        buffers_.push_back(tensor.buffer);
        copies_.push_back(tensor.copy);
        file.header.entries.push_back(tensor.entry);
      }
      match_.folder.files.push_back(std::move(file));
    }
    plan_headers();
    if (count > 1) plan_index();
  }

  // Plans the header of each file, which assigns the offsets of its tensors.
  void plan_headers() {
    for (TensorFile& file : match_.folder.files) {
      headers_.push_back(plan_safetensors(file.header.entries, {{"format", "pt"}}));
      file.header.file_bytes = static_cast<int64_t>(headers_.back().size());
      for (const SafetensorEntry& e : file.header.entries) file.header.file_bytes += e.bytes;
    }
  }

  // Plans safetensors files to replace torch files, or files that lack the model's head. If the
  // head is missing, all tensors get the model's names, because Transformers adds a prefix to every
  // name as soon as one lacks it, and tensors that are not parameters are left out. A tied tensor
  // is stored once.
  void plan_anew() {
    old_ = std::move(match_);
    match_ = {};
    match_.folder.sharded = old_.folder.sharded;
    match_.of_param.assign(old_.of_param.size(), WeightMatch::kNone);
    for (const TensorFile& file : old_.folder.files) {
      match_.folder.files.emplace_back();
      match_.folder.files.back().name = safetensors_name(file.name);
    }
    // The type for parameters that the old files lack: that of the last parameter that they have.
    DType dtype = DS_DTYPE_F32;
    for (size_t s = 0; s < old_.sources.size(); ++s) {
      const WeightSource& source = old_.sources[s];
      const bool read = source.param.exists() && old_.of_param[source.param] == s;
      if (read) dtype = old_.entry(source).dtype;
      if (read || (!source.param.exists() && old_.drawn.empty())) put(s, source);
    }
    for (ParamId p : old_.of_param.ids()) {
      if (old_.of_param[p] != WeightMatch::kNone) continue;
      put_entry(match_.folder.files.size() - 1,
                {state_.param_names()[p], dtype, state_.param_shapes()[p], 0, 0}, p);
    }
    plan_headers();
    if (match_.folder.sharded) plan_index();
  }

  // Adds the old source with index `number` to the new files.
  void put(size_t number, const WeightSource& source) {
    SafetensorEntry entry = old_.entry(source);
    if (!old_.drawn.empty()) entry.name = state_.param_names()[source.param];
    put_entry(source.file, std::move(entry), source.param);
    if (!source.param.exists()) constants_.emplace_back(match_.sources.size() - 1, number);
  }

  void put_entry(size_t file, SafetensorEntry entry, ParamId param) {
    std::vector<SafetensorEntry>& entries = match_.folder.files[file].header.entries;
    if (param.exists()) match_.of_param[param] = match_.sources.size();
    match_.sources.push_back({file, entries.size(), param});
    entries.push_back(std::move(entry));
  }

  // Returns, for example, "model-00001-of-00002.safetensors" for
  // "pytorch_model-00001-of-00002.bin".
  static std::string safetensors_name(const std::string& name) {
    std::string stem = std::filesystem::path(name).stem();
    constexpr std::string_view torch = "pytorch_model";
    if (stem.starts_with(torch)) stem = "model" + stem.substr(torch.size());
    return stem + ".safetensors";
  }

  // Plans model.safetensors.index.json. The total size counts the values of a tensor with two names
  // once.
  void plan_index() {
    int64_t bytes = 0;
    Json::Object places;
    for (size_t s = 0; s < match_.sources.size(); ++s) {
      const SafetensorEntry& entry = match_.entry(match_.sources[s]);
      if (copies_.empty() || !copies_[s]) bytes += entry.bytes;
      places.emplace_back(entry.name, files()[match_.sources[s].file].name);
    }
    std::ranges::sort(places, [](const auto& a, const auto& b) { return a.first < b.first; });
    Json index;
    index.set("metadata", Json::Object{{"total_size", bytes}});
    index.set("weight_map", std::move(places));
    index_ = index.dump(2) + "\n";
  }

  // Runs on rank 0: creates the files in full size, with everything but the parameters.
  void make_files() {
    make_folders(folder_);
    for (size_t f = 0; f < files().size(); ++f) {
      File file(temporary(f), File::Mode::create);
      file.resize(files()[f].header.file_bytes);
      if (headers_.empty()) {
        copy_rest(f, file);
      } else {
        file.write(headers_[f].data(), headers_[f].size(), 0);
        alone_ ? write_buffers(f, file) : copy_constants(f, file);
      }
      file.sync();
    }
  }

  void write_buffers(size_t f, File& file) {
    for (size_t s = 0; s < match_.sources.size(); ++s) {
      const WeightSource& source = match_.sources[s];
      if (source.file != f || source.param.exists()) continue;
      int64_t at = match_.entry(source).begin;
      extras_.read_buffer(buffers_[s], [&](std::span<const std::byte> bytes) {
        file.write(bytes.data(), bytes.size(), at);
        at += std::ssize(bytes);
      });
    }
  }

  // Copies the header and the constants of the old file unchanged.
  void copy_rest(size_t f, File& file) {
    File source(match_.folder.file_path(f), File::Mode::read);
    int64_t data_begin = files()[f].header.file_bytes;
    for (const SafetensorEntry& e : files()[f].header.entries)
      data_begin = std::min(data_begin, e.begin);
    copy(source, file, 0, data_begin);
    for (const WeightSource& s : match_.sources) {
      if (s.file == f && !s.param.exists())
        copy(source, file, match_.entry(s).begin, match_.entry(s).bytes);
    }
  }

  // Copies the constants into a file with a new header.
  void copy_constants(size_t f, File& file) {
    for (auto [source, old] : constants_) {
      if (match_.sources[source].file != f) continue;
      const WeightSource& from = old_.sources[old];
      const int64_t to = match_.entry(match_.sources[source]).begin;
      copy(File(old_.folder.file_path(from.file), File::Mode::read), file, old_.entry(from).begin,
           old_.entry(from).bytes, to);
    }
  }

  void copy(const File& from, File& to, int64_t begin, int64_t count) {
    copy(from, to, begin, count, begin);
  }

  // Copies `count` bytes at offset `begin` of one file to offset `place` of another.
  void copy(const File& from, File& to, int64_t begin, int64_t count, int64_t place) {
    for (int64_t at = begin, end = begin + count; at < end;) {
      size_t n = std::min(bytes_.size(), static_cast<size_t>(end - at));
      from.read(bytes_.data(), n, at);
      to.write(bytes_.data(), n, place + at - begin);
      at += static_cast<int64_t>(n);
    }
  }

  // Writes this rank's shard of every bucket to each tensor that holds the parameter.
  void write() {
    for (size_t f = 0; f < files().size(); ++f) open_.emplace_back(temporary(f), File::Mode::write);
    IdVector<ParamId, std::vector<size_t>> sources(state_.param_names().size());
    for (size_t s = 0; s < match_.sources.size(); ++s) {
      if (match_.sources[s].param.exists()) sources[match_.sources[s].param].push_back(s);
    }
    for_own_blocks(state_, [&](BucketId b, const ParamPlace& p, const SliceBlock& block) {
      if (sources[p.param].empty()) return;
      auto write = [&](int64_t local, int64_t whole, int64_t n) {
        state_.read_state(StateKind::master, b, p.begin + local, n, block_.data());
        for (size_t s : sources[p.param]) write_block(match_.sources[s], whole, n);
      };
      for_each_run(block, static_cast<int64_t>(block_.size()), write);
    });
    for (File& file : open_) file.sync();
  }

  void write_block(const WeightSource& source, int64_t element, int64_t count) {
    const SafetensorEntry& entry = match_.entry(source);
    int64_t unit = size_of(entry.dtype);
    narrow(entry.dtype, block_.data(), count, bytes_.data());
    open_[source.file].write(bytes_.data(), static_cast<size_t>(count * unit),
                             entry.begin + element * unit);
  }

  void commit() {
    for (size_t f = 0; f < files().size(); ++f) {
      rename_file(temporary(f), final_path(f));
    }
    if (!index_.empty()) write_file_atomic(folder_ + "/" + std::string(kTensorIndex), index_);
    for (const auto& [name, text] : side_texts_) write_file_atomic(folder_ + "/" + name, text);
    if (!like_.empty() && !gguf_ && !std::filesystem::equivalent(like_, folder_)) copy_side_files();
    sync_folder(folder_);
  }

  void copy_side_files() {
    if (match_.folder.sharded && index_.empty()) copy_text(std::string(kTensorIndex));
    for (std::string_view name : side_files) {
      if (exists(like_ + "/" + std::string(name))) copy_text(std::string(name));
    }
  }

  void copy_text(const std::string& name) {
    write_file_atomic(folder_ + "/" + name, read_file(like_ + "/" + name, kMaxSideFile));
  }

  void remove_temporaries() {
    for (size_t f = 0; f < files().size(); ++f) ::unlink(temporary(f).c_str());
  }

  StateAccess& state_;
  int rank_;
  std::string folder_, like_;
  const WeightExtras& extras_;
  // Whether `like_` is a GGUF file, and the names and texts of the files that are made of it. As
  // config.json comes last, only a complete folder is a model folder.
  bool gguf_ = false;
  std::vector<std::pair<std::string, std::string>> side_texts_;
  // The type of parameters in files that do not follow those of another folder.
  DType dtype_ = DS_DTYPE_F32;
  // The suffix of temporary files. Each is finally renamed to its name without the suffix.
  std::string suffix_;
  // Whether the files are planned by plan_alone(), without those of another folder.
  bool alone_ = true;
  WeightMatch match_;
  // The new headers, by file. Empty if the headers of `like_` are copied.
  std::vector<std::string> headers_;
  // The text of the index, or "" if there is one file or the index of `like_` is copied.
  std::string index_;
  // After plan_alone(): for each source the index of its buffer, and whether it is a second name.
  std::vector<size_t> buffers_;
  std::vector<bool> copies_;
  // After plan_anew(): the match of the old folder.
  WeightMatch old_;
  // After plan_anew(): the constants to copy, as pairs of source indices in match_ and old_.
  std::vector<std::pair<size_t, size_t>> constants_;
  std::vector<File> open_;
  std::vector<float> block_ = std::vector<float>(kWriteBlock);
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kWriteBlock * sizeof(float));
};

}  // namespace

void save_weights(StateAccess& state, const std::string& folder, const std::string& like,
                  const WeightExtras& extras) {
  Saver(state, folder, like, extras).save();
}

}  // namespace ds
