#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "checkpoint/agree.h"
#include "checkpoint/manifest.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/shape.h"
#include "io/file.h"

namespace ds {
namespace {

class Reader {
 public:
  Reader(StateAccess& state, const std::string& path) : state_(state), path_(path) {}

  CheckpointInfo load(const std::function<void(const CheckpointInfo&)>& checked) {
    Communicator& comm = state_.comm();
    agree(comm, "checkpoint check", [&] {
      manifest_ = read_manifest(path_);
      match_model();
      for (size_t k = 0; k < state_.state_kinds().size(); ++k) {
        headers_.push_back(read_state_header(manifest_, path_, k));
        files_.push_back(File(file_path(k), File::Mode::read));
      }
      check_share();
    });
    compare();
    if (checked) checked(manifest_.info);
    agree(comm, "checkpoint read", [&] {
      for (size_t k = 0; k < state_.state_kinds().size(); ++k) read_kind(k);
    });
    return manifest_.info;
  }

 private:
  // A file system may show two hosts two states of one folder.
  void compare() {
    std::vector<std::string> all = gather_texts(state_.comm(), manifest_.hash, "checkpoint hash");
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      raise(DS_ERROR_CORRUPT, "checkpoint '{}': its {} has hash {} on rank 0, {} on rank {}", path_,
            kManifestName, all[0], all[rank], rank);
    }
  }

  std::string file_path(size_t kind) const { return path_ + "/" + state_file(manifest_.kinds[kind]); }

  const SafetensorEntry& entry(size_t kind, const std::string& name) const {
    return *headers_[kind].find(name);
  }

  // The engine has the checkpoint's kinds of state, or masters only; its parameters are the checkpoint's
  // tensors.
  void match_model() {
    bool masters = state_.state_kinds().size() == 1 && state_.state_kinds()[0] == manifest_.kinds.at(0);
    if (!masters && state_.state_kinds() != manifest_.kinds) {
      raise(DS_ERROR_CONFIG, "the optimizer has states {}, checkpoint '{}' has {}",
            fmt::join(state_.state_kinds(), ", "), path_, fmt::join(manifest_.kinds, ", "));
    }
    std::map<std::string, const ManifestTensor*> saved;
    for (const ManifestTensor& t : manifest_.tensors) saved[t.name] = &t;
    for (size_t p = 0; p < state_.param_names().size(); ++p) {
      const std::string& name = state_.param_names()[p];
      auto it = saved.find(name);
      if (it == saved.end()) {
        raise(DS_ERROR_CONFIG, "the model has parameter '{}', checkpoint '{}' does not", name, path_);
      }
      Shape mine = shape(state_.param_shapes()[p]), theirs = shape(it->second->shape);
      if (!(mine == theirs)) {
        raise(DS_ERROR_CONFIG, "parameter '{}' has shape {} in the model, {} in checkpoint '{}'", name,
              mine.text(), theirs.text(), path_);
      }
      saved.erase(it);
    }
    if (!saved.empty()) {
      raise(DS_ERROR_CONFIG, "checkpoint '{}' has tensor '{}', the model does not", path_,
            saved.begin()->first);
    }
  }

  static Shape shape(const std::vector<int64_t>& extents) {
    return Shape(std::vector<Dim>(extents.begin(), extents.end()));
  }

  // Hashes of every world-th piece.
  void check_share() {
    auto world = static_cast<size_t>(state_.comm().size());
    for (auto i = static_cast<size_t>(state_.comm().rank()); i < manifest_.pieces.size(); i += world) {
      if (static_cast<size_t>(manifest_.pieces[i].kind) < files_.size()) check_piece(manifest_.pieces[i]);
    }
  }

  void check_piece(const Piece& piece) {
    const std::string& name = manifest_.tensors[static_cast<size_t>(piece.tensor)].name;
    Hash128 hash;
    for (int64_t at = 0; at < piece.count;) {
      int64_t n = read_block(static_cast<size_t>(piece.kind), name, piece.begin + at, piece.count - at);
      hash.update(block_.data(), static_cast<size_t>(n) * sizeof(float));
      at += n;
    }
    std::string said(piece.hash.data(), piece.hash.size()), found = hash.hex();
    if (said == found) return;
    raise(DS_ERROR_CORRUPT, "tensor '{}' in '{}': elements {} to {} have hash {}, {} says {}", name,
          file_path(static_cast<size_t>(piece.kind)), piece.begin, piece.begin + piece.count - 1, found,
          kManifestName, said);
  }

  // Elements [begin, begin + at most count) of a tensor into block_; returns how many.
  int64_t read_block(size_t kind, const std::string& name, int64_t begin, int64_t count) {
    int64_t n = std::min(count, static_cast<int64_t>(block_.size()));
    files_[kind].read(block_.data(), static_cast<size_t>(n) * sizeof(float),
                      entry(kind, name).begin + begin * int64_t{sizeof(float)});
    return n;
  }

  void read_kind(size_t kind) {
    const Layout& layout = state_.layout();
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      int64_t low = state_.first(b), high = low + state_.held(b);
      for (const ParamPlace& p : layout.buckets[b].params) {
        const std::string& name = state_.param_names()[static_cast<size_t>(p.param)];
        int64_t end = std::min(high, p.begin + p.numel);
        for (int64_t at = std::max(low, p.begin); at < end;) {
          int64_t n = read_block(kind, name, at - p.begin, end - at);
          state_.write_state(static_cast<StateKind>(kind), b, at, n, block_.data());
          at += n;
        }
      }
    }
  }

  StateAccess& state_;
  std::string path_;
  Manifest manifest_;
  std::vector<SafetensorHeader> headers_;  // by kind
  std::vector<File> files_;
  std::vector<float> block_ = std::vector<float>(kPieceBytes / sizeof(float));
};

}  // namespace

CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const std::function<void(const CheckpointInfo&)>& checked) {
  return Reader(state, path).load(checked);
}

}  // namespace ds
