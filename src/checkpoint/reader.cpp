// Loads a checkpoint: finds which elements this rank holds, assigns each hash to a rank, reads.
//
// Problem. A checkpoint may have been saved by other ranks and at another stage than it is loaded
// with. Every byte must be compared with its hash, and a damaged checkpoint must not leave an
// engine with only some of its states loaded.
// Invariant. Either all states come from pieces whose hashes matched, or every rank throws the same
// error and the states are as before: unchanged, or recreated by LoadCalls::restore. The exceptions
// are an error of communication, and a file that becomes unreadable between two passes.
// Algorithm. Each rank lists the runs of elements that it holds of each tensor (find_held). One
// rank checks each piece, preferably one that holds all of it and so reads it anyway (deal_pieces).
// If the states can be restored, each rank reads the elements that it holds and the pieces that it
// checks in one pass. Otherwise check_share() compares all hashes before read_all() changes any
// state.
// Cost. With one pass, each byte is read by every rank that holds it, and at least once. Two passes
// add one read of every byte by one rank.
#include "checkpoint/reader.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/own_files.h"
#include "checkpoint/pieces.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/state_access.h"
#include "checkpoint/state_files.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/base/shape.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "nn/adapter_keys.h"
#include "nn/adapter_names.h"

namespace ds {
namespace {

// Elements of a tensor that this rank holds and that are consecutive both in the tensor and in the
// bucket.
struct HeldRun {
  // Index of the first element in the unpartitioned tensor, and number of elements.
  int64_t whole = 0, count = 0;
  BucketId bucket;
  // Index of the first element in the bucket.
  int64_t at = 0;
};

// Calls visit(run, begin, count) for each part of [begin, begin + count) that lies in one of
// `runs`, which are sorted and disjoint.
template <typename Visit>
void for_held(const std::vector<HeldRun>& runs, int64_t begin, int64_t count, const Visit& visit) {
  auto it = std::ranges::upper_bound(runs, begin, {}, &HeldRun::whole);
  if (it != runs.begin()) --it;
  for (; it != runs.end() && it->whole < begin + count; ++it) {
    int64_t low = std::max(begin, it->whole), high = std::min(begin + count, it->whole + it->count);
    if (low < high) visit(*it, low, high - low);
  }
}

// A buffer that writes elements of one kind of state and joins consecutive ones to complete
// granules. If a granule of a quantized state were written in two parts, it would be quantized
// twice and could lose precision.
class GranuleWriter {
 public:
  GranuleWriter(StateAccess& state, StateKind kind) : state_(state), kind_(kind) {}

  void write(BucketId bucket, int64_t at, std::span<const float> values) {
    if (bucket != bucket_ || at != at_ + std::ssize(rest_)) {
      flush();
      bucket_ = bucket, at_ = at;
    }
    if (!rest_.empty()) {
      const auto n = std::min(static_cast<size_t>(round_up(at, kGranule) - at), values.size());
      rest_.insert(rest_.end(), values.begin(), values.begin() + static_cast<int64_t>(n));
      values = values.subspan(n);
      at += static_cast<int64_t>(n);
      if (at % kGranule == 0) flush();
      if (values.empty()) return;
    }
    int64_t end = at + std::ssize(values), whole = std::max(at, end / kGranule * kGranule);
    if (whole > at) state_.write_state(kind_, bucket_, at, whole - at, values.data());
    rest_.assign(values.begin() + (whole - at), values.end());
    at_ = whole;
  }

  void flush() {
    if (!rest_.empty()) state_.write_state(kind_, bucket_, at_, std::ssize(rest_), rest_.data());
    at_ += std::ssize(rest_);
    rest_.clear();
  }

 private:
  StateAccess& state_;
  StateKind kind_;
  BucketId bucket_;
  // Elements that wait for the rest of their granule, and the index in the bucket of the first one.
  int64_t at_ = 0;
  std::vector<float> rest_;
};

class Reader {
 public:
  Reader(StateAccess& state, const std::string& path) : state_(state), path_(path) {}

  CheckpointInfo load(const LoadCalls& calls) {
    Communicator& comm = state_.comm();
    agree(comm, "checkpoint check", [&] {
      files_.emplace(path_);
      match_model();
      files_->open(state_.state_kinds().size());
      if (own_counts()) check_own(rank());
      check_attached();
    });
    compare();
    CheckpointInfo info = manifest().info;
    info.path = path_;
    info.hash = manifest().hash;
    find_held();
    deal_pieces();
    const bool mine = calls.restorable && calls.restorable(info);
    const bool once = agree_max(comm, mine ? 0 : 1, "checkpoint restorable") == 0;
    if (!once) agree(comm, "checkpoint check", [&] { check_share(); });
    if (calls.checked) calls.checked(info);
    // calls.checked() may have changed which elements this rank holds, so they are determined
    // again.
    if (!once) {
      find_held();
      read_all(false);
      return info;
    }
    try {
      read_all(true);
    } catch (const Error& error) {
      // Every rank gets the same error unless communication has failed. In that case no collective
      // may follow, and the engine is unusable anyway.
      if (error.status() != DS_ERROR_COMM && error.status() != DS_ERROR_POISONED) calls.restore();
      throw;
    }
    return info;
  }

 private:
  // Throws unless all ranks read the same manifest: a shared file system may show different hosts
  // different versions of a folder.
  void compare() {
    std::vector<std::string> all = gather_texts(state_.comm(), manifest().hash, "checkpoint hash");
    if (size_t rank = first_different(all); rank != 0) {
      raise(DS_ERROR_CORRUPT, "checkpoint '{}': its {} has hash {} on rank 0, {} on rank {}", path_,
            kManifestName, all[0], all[rank], RankNumber(rank));
    }
  }

  const Manifest& manifest() const { return files_->manifest(); }
  size_t rank() { return static_cast<size_t>(state_.comm().rank()); }

  // Returns whether the checkpoint's per-rank states can be used: they are valid only for the same
  // number of ranks. The result is the same on all ranks.
  bool own_counts() {
    return !own_states(state_).empty() && std::ssize(manifest().own) == state_.comm().size();
  }

  void check_own(size_t rank) const {
    check_rank_file(manifest().own.at(rank), path_ + "/" + own_file(rank), true);
  }

  // Checks this rank's share of the files of attachments, which callers read after the load.
  void check_attached() {
    const auto ranks = static_cast<size_t>(state_.comm().size());
    for (size_t r = rank(); r < manifest().attached.size(); r += ranks)
      check_rank_file(manifest().attached[r], path_ + "/" + attached_file(r), true);
  }

  // Reads the per-rank states on all ranks, or on none. If they do not fit, states that are valid
  // in one layout only start at zero, and the states that are equal on all ranks are read from rank
  // 0's file, if the checkpoint has one.
  void take_own() {
    if (own_states(state_).empty()) return;
    bool fits = false;
    agree(state_.comm(), "checkpoint own",
          [&] { fits = own_counts() && own_file_fits(state_, path_, rank()); });
    if (agree_max(state_.comm(), fits ? 0 : 1, "checkpoint own") == 0) {
      agree(state_.comm(), "checkpoint own", [&] { read_own_file(state_, path_, rank()); });
      return;
    }
    state_.own()->forget();
    if (!manifest().own.empty()) {
      agree(state_.comm(), "checkpoint own", [&] {
        check_own(0);
        read_common(state_, path_);
      });
    }
    if (rank() == 0)
      log_line(LogLevel::info,
               fmt::format(
                   "checkpoint '{}' has no per-rank states of {} ranks with these parameters: "
                   "errors of compression begin at 0, and steps since ranks last agreed are lost",
                   path_, state_.comm().size()));
  }

  // Returns whether the parameter keeps its value if the checkpoint does not have it: one of a base
  // that the checkpoint names, or of a frozen adapter, which comes from its own folder.
  bool may_be_absent(const std::string& param) const {
    const std::string_view adapter = split_adapter_param(param).adapter;
    return adapter.empty() ? !manifest().info.base.is_null() : adapter != kOwnAdapter;
  }

  // Checks that the engine has the same kinds of state as the checkpoint, or masters only, and that
  // its parameters are the checkpoint's tensors.
  void match_model() {
    bool masters =
        state_.state_kinds().size() == 1 && state_.state_kinds()[0] == manifest().kinds.at(0);
    if (!masters && state_.state_kinds() != manifest().kinds) {
      raise(DS_ERROR_CONFIG, "the optimizer has states {}, but checkpoint '{}' has {}",
            fmt::join(state_.state_kinds(), ", "), path_, fmt::join(manifest().kinds, ", "));
    }
    std::map<std::string, const ManifestTensor*> saved;
    for (const ManifestTensor& t : manifest().tensors) saved[t.name] = &t;
    for (size_t p = 0; p < state_.param_names().size(); ++p) {
      const std::string& name = state_.param_names()[p];
      auto it = saved.find(name);
      if (it == saved.end() && may_be_absent(name)) continue;
      if (it == saved.end()) {
        raise(DS_ERROR_CONFIG, "parameter '{}' of the model is missing from checkpoint '{}'",
              TensorName(name), path_);
      }
      Shape mine = shape(state_.param_shapes()[p]), theirs = shape(it->second->shape);
      if (!(mine == theirs)) {
        raise(DS_ERROR_CONFIG,
              "parameter '{}' has shape {} in the model, but {} in checkpoint '{}'",
              TensorName(name), mine.text(), theirs.text(), path_);
      }
      saved.erase(it);
    }
    if (!saved.empty()) {
      raise(DS_ERROR_CONFIG, "checkpoint '{}' has tensor '{}', which the model lacks", path_,
            TensorName(saved.begin()->first));
    }
  }

  static Shape shape(const std::vector<int64_t>& extents) {
    return Shape(std::vector<Dim>(extents.begin(), extents.end()));
  }

  // Finds which elements of each tensor of the manifest this rank holds, and which pieces it holds
  // completely.
  void find_held() {
    std::map<std::string_view, size_t> numbers;
    for (size_t t = 0; t < manifest().tensors.size(); ++t) numbers[manifest().tensors[t].name] = t;
    held_.assign(numbers.size(), {});
    const Layout& layout = state_.layout();
    for (BucketId b : layout.buckets.ids()) {
      int64_t low = state_.first(b), high = low + state_.held(b);
      for (const ParamPlace& p : layout.buckets[b].params) {
        int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
        const auto tensor = numbers.find(state_.param_names()[p.param]);
        if (begin >= end || tensor == numbers.end()) continue;
        std::vector<HeldRun>& runs = held_[tensor->second];
        for (const SliceBlock& block : state_.slice(p.param).blocks(begin - p.begin, end - begin)) {
          for_each_run(block, block.count, [&](int64_t local, int64_t whole, int64_t count) {
            runs.push_back({whole, count, b, p.begin + local});
          });
        }
      }
    }
    for (std::vector<HeldRun>& runs : held_) {
      std::ranges::sort(runs, [](const HeldRun& a, const HeldRun& b) { return a.whole < b.whole; });
    }
    holds_.clear();
    for (const Piece& piece : manifest().pieces) holds_.push_back(holds(piece) ? 1 : 0);
  }

  const std::vector<HeldRun>& held(const Piece& piece) const {
    return held_[static_cast<size_t>(piece.tensor)];
  }

  // Returns whether this rank holds all elements of a piece of an open kind.
  bool holds(const Piece& piece) const {
    if (static_cast<size_t>(piece.kind) >= files_->opened()) return false;
    int64_t count = 0;
    for (int64_t row = 0; row < piece.rows; ++row) {
      for_held(held(piece), piece.begin + row * piece.stride, piece.count,
               [&](const HeldRun&, int64_t, int64_t n) { count += n; });
    }
    return count == piece.rows * piece.count;
  }

  // Assigns each piece to one rank, which compares its hash. A rank that holds the entire piece is
  // preferred, as it reads the piece anyway. The search for piece i begins at rank i mod ranks to
  // spread the pieces evenly.
  void deal_pieces() {
    const size_t pieces = manifest().pieces.size(),
                 ranks = static_cast<size_t>(state_.comm().size());
    const size_t bytes = (pieces + 7) / 8;
    std::vector<uint8_t> mine(bytes, 0), all(bytes * ranks);
    for (size_t i = 0; i < pieces; ++i) {
      if (holds_[i]) mine[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
    }
    state_.comm().all_gather(mine.data(), all.data(), bytes, "checkpoint pieces held");
    checks_.resize(pieces);
    for (size_t i = 0; i < pieces; ++i) {
      size_t owner = i % ranks;
      for (size_t r = 0; r < ranks; ++r) {
        const size_t candidate = (i + r) % ranks;
        if ((all[candidate * bytes + i / 8] >> (i % 8) & 1) == 0) continue;
        owner = candidate;
        break;
      }
      checks_[i] = owner == rank() ? 1 : 0;
    }
  }

  // Advances `i` to the next piece of the kind, in manifest order, for which each(i) is true.
  // Returns false if none exists.
  bool next_piece(size_t kind, size_t& i, const std::function<bool(size_t)>& each) const {
    for (; i < manifest().pieces.size(); ++i) {
      if (static_cast<size_t>(manifest().pieces[i].kind) == kind && each(i)) return true;
    }
    return false;
  }

  // Compares the hashes of the pieces that are assigned to this rank, without using their values.
  void check_share() {
    for (size_t k = 0; k < files_->opened(); ++k) {
      size_t i = 0;
      files_->read_pieces(k,
                          [&](StateFiles::Wish& wish) {
                            if (!next_piece(k, i, [&](size_t p) { return checks_[p] != 0; }))
                              return false;
                            wish = {i++};
                            return true;
                          },
                          {});
    }
  }

  // Reads all states. With `once`, no hash has been compared yet, so this pass compares them.
  void read_all(bool once) {
    agree(state_.comm(), "checkpoint read", [&] {
      for (size_t k = 0; k < state_.state_kinds().size(); ++k) read_kind(k, once);
    });
    take_own();
  }

  // Reads the elements of one kind that this rank holds. A piece is read completely if this rank
  // holds all of it or, with `once`, checks it; otherwise only the runs that it holds are read.
  void read_kind(size_t kind, bool once) {
    size_t i = 0;
    // Parts of the previous piece that remain to be read, the last one first.
    std::vector<StateFiles::Wish> parts;
    auto next = [&](StateFiles::Wish& wish) {
      while (parts.empty()) {
        if (!next_piece(kind, i, [](size_t) { return true; })) return false;
        if (holds_[i] || (once && checks_[i])) {
          wish = {i++};
          return true;
        }
        const Piece& piece = manifest().pieces[i];
        for (int64_t row = 0; row < piece.rows; ++row) {
          for_held(held(piece), piece.begin + row * piece.stride, piece.count,
                   [&](const HeldRun&, int64_t begin, int64_t count) {
                     parts.push_back({i, false, begin, count});
                   });
        }
        std::ranges::reverse(parts);
        ++i;
      }
      wish = parts.back();
      parts.pop_back();
      return true;
    };
    GranuleWriter out(state_, static_cast<StateKind>(kind));
    files_->read_pieces(kind, next,
                        [&](const Piece& piece, int64_t first, std::span<const float> values) {
                          for_held(held(piece), first, std::ssize(values),
                                   [&](const HeldRun& run, int64_t begin, int64_t count) {
                                     out.write(run.bucket, run.at + (begin - run.whole),
                                               values.subspan(static_cast<size_t>(begin - first),
                                                              static_cast<size_t>(count)));
                                   });
                        });
    out.flush();
  }

  StateAccess& state_;
  std::string path_;
  std::optional<StateFiles> files_;
  // The runs that this rank holds of each tensor of the manifest, sorted.
  std::vector<std::vector<HeldRun>> held_;
  // For each piece, whether this rank holds all of it, and whether this rank compares its hash.
  std::vector<char> holds_, checks_;
};

}  // namespace

CheckpointInfo load_checkpoint(StateAccess& state, const std::string& path,
                               const LoadCalls& calls) {
  return Reader(state, path).load(calls);
}

CheckpointInfo read_checkpoint_info(const std::string& path) { return read_manifest(path).info; }

}  // namespace ds
