#include "checkpoint/reader.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/own_files.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state_access.h"
#include "checkpoint/state_files.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/shape.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"

namespace ds {
namespace {

class Reader {
 public:
  Reader(StateAccess& state, const std::string& path) : state_(state), path_(path) {}

  CheckpointInfo load(const std::function<void(const CheckpointInfo&)>& checked) {
    Communicator& comm = state_.comm();
    agree(comm, "checkpoint check", [&] {
      files_.emplace(path_);
      match_model();
      files_->open(state_.state_kinds().size());
      check_share();
      if (own_counts()) check_own_file(manifest(), path_, rank(), true);
    });
    compare();
    CheckpointInfo info = manifest().info;
    info.path = path_;
    if (checked) checked(info);
    agree(comm, "checkpoint read", [&] {
      for (size_t k = 0; k < state_.state_kinds().size(); ++k) read_kind(k);
    });
    take_own();
    return info;
  }

 private:
  // A file system may show two hosts two states of one folder.
  void compare() {
    std::vector<std::string> all = gather_texts(state_.comm(), manifest().hash, "checkpoint hash");
    if (size_t rank = first_different(all); rank != 0) {
      raise(DS_ERROR_CORRUPT, "checkpoint '{}': its {} has hash {} on rank 0, {} on rank {}", path_,
            kManifestName, all[0], all[rank], RankNumber(rank));
    }
  }

  const Manifest& manifest() const { return files_->manifest(); }
  size_t rank() { return static_cast<size_t>(state_.comm().rank()); }

  // What ranks had for themselves counts for as many ranks, on all alike.
  bool own_counts() {
    return !state_.own_states().empty() && std::ssize(manifest().own) == state_.comm().size();
  }

  // Of all ranks, or of none.
  void take_own() {
    if (state_.own_states().empty()) return;
    bool fits = false;
    agree(state_.comm(), "checkpoint own",
          [&] { fits = own_counts() && own_file_fits(state_, path_, rank()); });
    if (agree_max(state_.comm(), fits ? 0 : 1, "checkpoint own") == 0) {
      agree(state_.comm(), "checkpoint own", [&] { read_own_file(state_, path_, rank()); });
      return;
    }
    state_.forget_own();
    if (!manifest().own.empty()) {
      agree(state_.comm(), "checkpoint own", [&] {
        check_own_file(manifest(), path_, 0, true);
        read_common(state_, path_);
      });
    }
    if (rank() == 0)
      log_line(
          LogLevel::info,
          fmt::format("checkpoint '{}' has nothing that {} ranks had for themselves with these parameters: "
                      "errors of compression begin at 0, and steps since ranks last agreed are lost",
                      path_, state_.comm().size()));
  }

  // The engine has the checkpoint's kinds of state, or masters only; its parameters are the checkpoint's
  // tensors.
  void match_model() {
    bool masters = state_.state_kinds().size() == 1 && state_.state_kinds()[0] == manifest().kinds.at(0);
    if (!masters && state_.state_kinds() != manifest().kinds) {
      raise(DS_ERROR_CONFIG, "the optimizer has states {}, checkpoint '{}' has {}",
            fmt::join(state_.state_kinds(), ", "), path_, fmt::join(manifest().kinds, ", "));
    }
    std::map<std::string, const ManifestTensor*> saved;
    for (const ManifestTensor& t : manifest().tensors) saved[t.name] = &t;
    for (size_t p = 0; p < state_.param_names().size(); ++p) {
      const std::string& name = state_.param_names()[p];
      auto it = saved.find(name);
      if (it == saved.end()) {
        raise(DS_ERROR_CONFIG, "the model has parameter '{}', checkpoint '{}' does not", TensorName(name),
              path_);
      }
      Shape mine = shape(state_.param_shapes()[p]), theirs = shape(it->second->shape);
      if (!(mine == theirs)) {
        raise(DS_ERROR_CONFIG, "parameter '{}' has shape {} in the model, {} in checkpoint '{}'",
              TensorName(name), mine.text(), theirs.text(), path_);
      }
      saved.erase(it);
    }
    if (!saved.empty()) {
      raise(DS_ERROR_CONFIG, "checkpoint '{}' has tensor '{}', the model does not", path_,
            TensorName(saved.begin()->first));
    }
  }

  static Shape shape(const std::vector<int64_t>& extents) {
    return Shape(std::vector<Dim>(extents.begin(), extents.end()));
  }

  // Hashes of every world-th piece.
  void check_share() {
    auto world = static_cast<size_t>(state_.comm().size());
    for (auto i = static_cast<size_t>(state_.comm().rank()); i < manifest().pieces.size(); i += world) {
      const Piece& piece = manifest().pieces[i];
      if (static_cast<size_t>(piece.kind) < files_->opened()) files_->read_piece(piece, {});
    }
  }

  void read_kind(size_t kind) {
    const Layout& layout = state_.layout();
    for (BucketId b : layout.buckets.ids()) {
      int64_t low = state_.first(b), high = low + state_.held(b);
      for (const ParamPlace& p : layout.buckets[b].params) {
        int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
        if (begin >= end) continue;
        for (const SliceBlock& block : state_.slice(p.param).blocks(begin - p.begin, end - begin))
          read_block(kind, b, p, block);
      }
    }
  }

  // A block of the parameter at `place` in the bucket.
  void read_block(size_t kind, BucketId bucket, const ParamPlace& place, const SliceBlock& block) {
    for_each_run(block, block.count, [&](int64_t local, int64_t whole, int64_t count) {
      int64_t at = place.begin + local;
      files_->read(kind, state_.param_names()[place.param], whole, count, [&](std::span<const float> values) {
        auto n = static_cast<int64_t>(values.size());
        state_.write_state(static_cast<StateKind>(kind), bucket, at, n, values.data());
        at += n;
      });
    });
  }

  StateAccess& state_;
  std::string path_;
  std::optional<StateFiles> files_;
};

}  // namespace

CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const std::function<void(const CheckpointInfo&)>& checked) {
  return Reader(state, path).load(checked);
}

CheckpointInfo read_checkpoint_info(const std::string& path) { return read_manifest(path).info; }

}  // namespace ds
