// Order of a save: rank 0 makes files of full size and fresh names with their headers, every rank
// writes its cuts, rank 0 renames.
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
#include "checkpoint/model_folder.h"
#include "checkpoint/state_access.h"
#include "checkpoint/weight_match.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {
namespace {

constexpr size_t kWriteBlock = 1 << 18;  // elements written at once

// Beside the weights: what makes a folder loadable, none of it large.
constexpr std::array<std::string_view, 10> side_files{
    "config.json",       "generation_config.json",
    "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model",   "vocab.json",
    "merges.txt",        "vocab.txt",
    "added_tokens.json", "special_tokens_map.json"};
constexpr int64_t kMaxSideFile = 1 << 28;

class Saver {
 public:
  Saver(StateAccess& state, const std::string& folder, const std::string& like,
        const WeightExtras& extras)
      : state_(state), rank_(state.comm().rank()), folder_(folder), like_(like), extras_(extras) {}

  void save() {
    agree(state_.comm(), "weights plan", [&] {
      if (!like_.empty() && !std::filesystem::is_directory(like_)) {
        raise(DS_ERROR_NOT_FOUND, "like: '{}' is no folder", like_);
      }
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

  // A tensor of files that are like none: a parameter, a buffer, or another name of either.
  struct Planned {
    SafetensorEntry entry;
    ParamId param;      // or:
    size_t buffer = 0;  // of extras_
    bool copy = false;  // a second name
    size_t file = 0;
  };

  std::vector<Planned> planned() const {
    std::vector<Planned> all;
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < extras_.buffers.size(); ++i) {
      places.emplace(extras_.buffers[i].name, all.size());
      all.push_back({extras_.buffers[i], {}, i});
    }
    auto add = [&](ParamId p) {
      const std::string& name = state_.param_names()[p];
      places.emplace(name, all.size());
      all.push_back({{name, DS_DTYPE_F32, state_.param_shapes()[p]}, p});
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
      all.back().file = found->second;  // until files are known
    }
    return all;
  }

  // The files that huggingface_hub makes of tensors in this order: one that is too large for a file
  // has its own, which stands before the file that is being filled, and a second name is where the
  // first one is.
  static size_t place(std::vector<Planned>& all, int64_t most) {
    std::vector<std::vector<size_t>> files;
    std::vector<size_t> current;
    int64_t filled = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].copy) continue;
      std::vector<SafetensorEntry> one{all[i].entry};
      plan_safetensors(one, {});  // its bytes
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

  void plan_alone() {
    std::vector<Planned> all = planned();
    const size_t count = place(all, extras_.file_bytes);
    match_.of_param = IdVector<ParamId, size_t>(state_.param_names().size());
    match_.folder.sharded = count > 1;
    for (size_t f = 0; f < count; ++f) {
      TensorFile file;
      file.name = count == 1 ? std::string(kTensorFile)
                             : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, count);
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

  void plan_headers() {
    for (TensorFile& file : match_.folder.files) {
      headers_.push_back(plan_safetensors(file.header.entries, {{"format", "pt"}}));
      file.header.file_bytes = static_cast<int64_t>(headers_.back().size());
      for (const SafetensorEntry& e : file.header.entries) file.header.file_bytes += e.bytes;
    }
  }

  // Files of safetensors for a folder that torch wrote, or that lacks the model's head: then all
  // tensors get the model's names, because one whose name lacks a prefix makes Transformers add it
  // to all, and what is no parameter goes. A tied tensor is stored once.
  void plan_anew() {
    old_ = std::move(match_);
    match_ = {};
    match_.folder.sharded = old_.folder.sharded;
    match_.of_param.assign(old_.of_param.size(), WeightMatch::kNone);
    for (const TensorFile& file : old_.folder.files) {
      match_.folder.files.emplace_back();
      match_.folder.files.back().name = safetensors_name(file.name);
    }
    DType dtype = DS_DTYPE_F32;  // of what is not stored: as the others
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

  // "model-00001-of-00002.safetensors" of "pytorch_model-00001-of-00002.bin".
  static std::string safetensors_name(const std::string& name) {
    std::string stem = std::filesystem::path(name).stem();
    constexpr std::string_view torch = "pytorch_model";
    if (stem.starts_with(torch)) stem = "model" + stem.substr(torch.size());
    return stem + ".safetensors";
  }

  // A second name's values are counted once.
  void plan_index() {
    int64_t bytes = 0;
    Json::Object places;
    for (size_t s = 0; s < match_.sources.size(); ++s) {
      const SafetensorEntry& entry = match_.entry(match_.sources[s]);
      if (copies_.empty() || !copies_[s]) bytes += entry.bytes;
      places.emplace_back(entry.name, files()[match_.sources[s].file].name);
    }
    std::sort(places.begin(), places.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    Json index;
    index.set("metadata", Json::Object{{"total_size", bytes}});
    index.set("weight_map", std::move(places));
    index_ = index.dump(2) + "\n";
  }

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

  // The header and the constants, as they were read.
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

  // `place`: where the bytes go.
  void copy(const File& from, File& to, int64_t begin, int64_t count, int64_t place) {
    for (int64_t at = begin, end = begin + count; at < end;) {
      size_t n = std::min(bytes_.size(), static_cast<size_t>(end - at));
      from.read(bytes_.data(), n, at);
      to.write(bytes_.data(), n, place + at - begin);
      at += static_cast<int64_t>(n);
    }
  }

  // This rank's cut of every bucket.
  void write() {
    for (size_t f = 0; f < files().size(); ++f) open_.emplace_back(temporary(f), File::Mode::write);
    const Layout& layout = state_.layout();
    IdVector<ParamId, std::vector<size_t>> sources(state_.param_names().size());
    for (size_t s = 0; s < match_.sources.size(); ++s) {
      if (match_.sources[s].param.exists()) sources[match_.sources[s].param].push_back(s);
    }
    for (BucketId b : layout.buckets.ids()) {
      int64_t low = state_.own_first(b), high = low + layout.buckets[b].shard();
      for (const ParamPlace& p : layout.buckets[b].params) {
        int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
        if (begin >= end || !state_.writes(p.param)) continue;
        auto write = [&](int64_t local, int64_t whole, int64_t n) {
          state_.read_state(StateKind::master, b, p.begin + local, n, block_.data());
          for (size_t s : sources[p.param]) write_block(match_.sources[s], whole, n);
        };
        for (const SliceBlock& block : state_.slice(p.param).blocks(begin - p.begin, end - begin))
          for_each_run(block, static_cast<int64_t>(block_.size()), write);
      }
    }
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
    if (!like_.empty() && !std::filesystem::equivalent(like_, folder_)) copy_side_files();
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
  std::string suffix_;  // of the files that will replace others
  bool alone_ = true;   // no weights to be like
  WeightMatch match_;
  std::vector<std::string> headers_;  // of files that are made anew; empty: as the folder has them
  std::string index_;                 // of several such files
  // Of files that are like none, by source.
  std::vector<size_t> buffers_;
  std::vector<bool> copies_;
  WeightMatch old_;                                   // of a folder whose files are made anew
  std::vector<std::pair<size_t, size_t>> constants_;  // their numbers among the sources of both
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
