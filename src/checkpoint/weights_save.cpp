// Order of a save: rank 0 makes files of full size and fresh names with their headers, every rank writes its
// cuts, rank 0 renames.
#include "checkpoint/weights_save.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/state_access.h"
#include "checkpoint/weight_match.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/ids.h"
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
constexpr std::array<std::string_view, 10> side_files{"config.json",       "generation_config.json",
                                                      "tokenizer.json",    "tokenizer_config.json",
                                                      "tokenizer.model",   "vocab.json",
                                                      "merges.txt",        "vocab.txt",
                                                      "added_tokens.json", "special_tokens_map.json"};
constexpr int64_t kMaxSideFile = 1 << 28;

class Saver {
 public:
  Saver(StateAccess& state, const std::string& folder, const std::string& like)
      : state_(state), rank_(state.comm().rank()), folder_(folder), like_(like) {}

  void save() {
    agree(state_.comm(), "weights plan", [&] {
      if (!like_.empty() && !std::filesystem::is_directory(like_)) {
        raise(DS_ERROR_NOT_FOUND, "like: '{}' is no folder", like_);
      }
      alone_ = like_.empty() || !has_weights(like_);
      if (alone_) {
        plan_alone();
      } else {
        match_ = match_weights(state_.param_names(), state_.param_shapes(), like_);
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

  void plan_alone() {
    TensorFile file;
    file.name = kTensorFile;
    for (ParamId p : state_.param_names().ids()) {
      file.header.entries.push_back({state_.param_names()[p], DS_DTYPE_F32, state_.param_shapes()[p], 0, 0});
      match_.sources.push_back({0, p.index(), p});
      match_.of_param.push_back(p.index());
    }
    header_ = plan_safetensors(file.header.entries, {{"format", "pt"}});
    file.header.file_bytes = static_cast<int64_t>(header_.size());
    for (const SafetensorEntry& e : file.header.entries) file.header.file_bytes += e.bytes;
    match_.folder.files.push_back(std::move(file));
  }

  void make_files() {
    make_folders(folder_);
    for (size_t f = 0; f < files().size(); ++f) {
      File file(temporary(f), File::Mode::create);
      file.resize(files()[f].header.file_bytes);
      if (alone_) {
        file.write(header_.data(), header_.size(), 0);
      } else {
        copy_rest(f, file);
      }
      file.sync();
    }
  }

  // The header and the constants, as they were read.
  void copy_rest(size_t f, File& file) {
    File source(match_.folder.file_path(f), File::Mode::read);
    int64_t data_begin = files()[f].header.file_bytes;
    for (const SafetensorEntry& e : files()[f].header.entries) data_begin = std::min(data_begin, e.begin);
    copy(source, file, 0, data_begin);
    for (const WeightSource& s : match_.sources) {
      if (s.file == f && !s.param.exists()) copy(source, file, match_.entry(s).begin, match_.entry(s).bytes);
    }
  }

  void copy(const File& from, File& to, int64_t begin, int64_t count) {
    for (int64_t at = begin, end = begin + count; at < end;) {
      size_t n = std::min(bytes_.size(), static_cast<size_t>(end - at));
      from.read(bytes_.data(), n, at);
      to.write(bytes_.data(), n, at);
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
    open_[source.file].write(bytes_.data(), static_cast<size_t>(count * unit), entry.begin + element * unit);
  }

  void commit() {
    for (size_t f = 0; f < files().size(); ++f) {
      rename_file(temporary(f), final_path(f));
    }
    if (!like_.empty() && !std::filesystem::equivalent(like_, folder_)) copy_side_files();
    sync_folder(folder_);
  }

  void copy_side_files() {
    if (match_.folder.sharded) copy_text(std::string(kTensorIndex));
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
  std::string suffix_;  // of the files that will replace others
  bool alone_ = true;   // no weights to be like
  WeightMatch match_;
  std::string header_;  // of a file that is like none
  std::vector<File> open_;
  std::vector<float> block_ = std::vector<float>(kWriteBlock);
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kWriteBlock * sizeof(float));
};

}  // namespace

void save_weights(StateAccess& state, const std::string& folder, const std::string& like) {
  Saver(state, folder, like).save();
}

}  // namespace ds
