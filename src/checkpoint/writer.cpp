// Saves a checkpoint. This essay explains the order of the steps, and what a crash leaves.
//
// Problem. The ranks of a run write one checkpoint together, each the elements that it owns. Power
// may fail at any instruction of any of them, and the disk may be full for only one rank.
// Afterwards there must be either a complete checkpoint or nothing that could be mistaken for one,
// and the older checkpoints must still exist in either case.
//
// Invariant. If a folder has a manifest.json, then every byte that the manifest names is on the
// disk and has the hash that the manifest says. A folder without one does not count as a
// checkpoint, whatever else it holds. Therefore the manifest is the last file written and the first
// one removed: a save renames it into place after everything else has been synced, and a removal
// deletes it and syncs the folder before deleting anything else. Nothing is ever written into a
// folder that has a manifest.
//
// Algorithm. A step begins once every rank has finished the previous one without an error
// (agree()):
//  1. Rank 0 removes leftovers and creates a new folder step-N-C, with C one above any in use, so
//     that saving a step again leaves the older save alone. It creates each file in its full size,
//     with its header, and syncs files and folder; before the first commit also the folders above.
//  2. Every rank writes its shard of every bucket at the offsets that the header gives, hashes each
//     piece on the way, and syncs the files (io/direct_writer.h): a sync by rank 0 would not flush
//     data that another host still has in memory. A rank that holds a slice of a tensor writes it
//     at the slice's offsets in the full tensor; of ranks that hold copies, only one writes.
//     Per-rank states go into one file for each rank (own_files.h), and so do attachments
//     (attachments.h).
//  3. The hashes of all pieces are gathered. Rank 0 checks that the pieces tile every tensor,
//     without gap or overlap, and commits: the manifest is written under a temporary name, synced
//     and renamed, and the folder is synced (write_file_atomic). The manifest ends with a hash of
//     itself.
//  4. Older checkpoints that `keep` does not name are removed. A failure here is only a warning.
// A started save does step 1 on the caller's thread, writes the files of ranks there, and copies
// what else it will write. Steps 2 to 4 run on a thread that must not communicate, because the
// caller's training steps use the same communicator meanwhile. So instead of the gather of step 3,
// each rank leaves its pieces, or its error, in a file rank-R in the checkpoint's folder; rank 0
// polls for these files, removes them, and commits. A rank that died leaves no file: rank 0 then
// gives up after a timeout and removes the folder.
//
// After an error before the commit, which all ranks learn of, rank 0 removes the folder. A crash
// leaves a folder without a manifest, which the next save or resume removes (remove_leftovers).
//
// Cost. Each byte is read from its state, hashed and written once, in blocks of kPieceBytes. A rank
// also holds the descriptions of all ranks' pieces in memory. Each rank syncs each file once, and
// rank 0 also when it creates the file. A save without per-rank states and attachments makes three
// calls of agree(), one of agree_max(), one broadcast and two all_gathers.
//
// Source. File systems preserve this order only if data is synced before the rename and the folder
// after it: Pillai et al., "All file systems are not created equal: on the complexity of crafting
// crash-consistent applications" (OSDI 2014). tests/crash replays every prefix of a save.
#include "checkpoint/writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/attachments.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/own_blocks.h"
#include "checkpoint/own_files.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state_access.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/signals.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/direct_blocks.h"
#include "io/direct_writer.h"
#include "io/file.h"
#include "io/owner.h"
#include "io/safetensors.h"

namespace ds {
namespace {

using PathBytes = std::array<char, 128>;
// Interval at which a started save polls whether other ranks have finished.
constexpr std::chrono::milliseconds kMeetPause(5);

class Writer {
 public:
  Writer(StateAccess& state, const std::string& folder, const CheckpointInfo& info)
      : state_(state), comm_(state.comm()), folder_(folder) {
    manifest_.info = info;
    manifest_.world = comm_.size();
    for (ParamId p : state.param_names().ids()) {
      tensor_of_.push_back(static_cast<int32_t>(manifest_.tensors.size()));
      if (info.stores(p))
        manifest_.tensors.push_back({state.param_names()[p], state.param_shapes()[p]});
    }
    manifest_.kinds = state.state_kinds();
    manifest_.files.resize(manifest_.kinds.size());
    entries_.resize(manifest_.kinds.size());
    headers_.resize(manifest_.kinds.size());
    for (size_t k = 0; k < manifest_.kinds.size(); ++k) plan(k);
  }

  std::string save(const Keep& keep) {
    try {
      begin();
      agree(comm_, "checkpoint data", [&] { write_data(); });
      gather_pieces();
      agree(comm_, "checkpoint commit", [&] {
        if (comm_.rank() == 0) commit();
      });
    } catch (...) {
      abandon();
      throw;
    }
    if (comm_.rank() == 0) remove_older_checkpoints(folder_, keep);
    return path_;
  }

  // Collective. Creates the folder and its files, and writes the files of ranks.
  void begin() {
    agree(comm_, "checkpoint folder", [&] {
      if (comm_.rank() == 0) make_files();
    });
    PathBytes name = {};
    std::copy_n(name_.data(), std::min(name_.size(), name.size() - 1), name.data());
    comm_.broadcast(name.data(), name.size(), 0, "checkpoint name");
    path_ = folder_ + "/" + name.data();
    // All ranks have the same list of states, so all of them write a file or none does.
    if (!own_states(state_).empty())
      manifest_.own = write_on_all("own", [&] { return write_own_file(state_, path_); });
    static const Attachments nothing;
    const Attachments& mine = manifest_.info.attached ? *manifest_.info.attached : nothing;
    if (agree_max(comm_, mine.empty() ? 0 : 1, "checkpoint attachments") == 0) return;
    const auto rank = static_cast<size_t>(comm_.rank());
    manifest_.attached =
        write_on_all("attached", [&] { return write_attached_file(mine, path_, rank); });
  }
  // Carries out the remaining steps of a started save, on its thread and without communication.
  void run_alone(const Keep& keep, int64_t patience_ms) {
    try {
      write_data();
      if (comm_.rank() > 0) return leave(kPiecesMark, std::as_bytes(std::span(mine_)));
      manifest_.pieces = mine_;
      meet(patience_ms);
      commit();
    } catch (const std::exception& error) {
      if (comm_.rank() > 0)
        leave(kErrorMark, std::as_bytes(std::span(std::string_view(error.what()))));
      abandon();
      throw;
    }
    remove_older_checkpoints(folder_, keep);
  }
  // Removes the folder of a save that failed. Only rank 0 has created one.
  void abandon() {
    if (made_) remove_checkpoint(path_);
    made_ = false;
  }
  void give_up() { given_up_ = true; }
  const std::string& path() const { return path_; }

 private:
  static constexpr char kPiecesMark = 'P', kErrorMark = 'E';

  void write_data() {
    for (size_t k = 0; k < manifest_.kinds.size(); ++k) write_kind(k);
  }

  std::string rank_path(int rank) const { return path_ + "/rank-" + std::to_string(rank); }

  // Writes the file rank-R that rank 0 polls for. A rename makes it appear complete.
  void leave(char mark, std::span<const std::byte> content) const {
    std::string text(1, mark);
    text.append(reinterpret_cast<const char*>(content.data()), content.size());
    write_file_atomic(rank_path(comm_.rank()), text);
  }

  // Runs on rank 0: waits for the files of all other ranks and adds the pieces that they list.
  void meet(int64_t patience_ms) {
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
    for (int rank = 1; rank < comm_.size(); ++rank) {
      while (is_absent(rank_path(rank))) {
        if (given_up_)
          raise(DS_ERROR_IO, "{}: the group of ranks ended before rank {} had written its part",
                path_, RankNumber(rank));
        if (std::chrono::steady_clock::now() > end) {
          raise(DS_ERROR_IO, "{}: rank {} has not written its part within {} ms", path_,
                RankNumber(rank), patience_ms);
        }
        std::this_thread::sleep_for(kMeetPause);
      }
      std::string text = read_file(rank_path(rank));
      if (text.empty() || text[0] != kPiecesMark || (text.size() - 1) % sizeof(Piece) != 0) {
        raise(DS_ERROR_IO, "rank {} has not written its part: {}", RankNumber(rank),
              text.empty() ? "" : text.substr(1));
      }
      size_t count = (text.size() - 1) / sizeof(Piece), first = manifest_.pieces.size();
      manifest_.pieces.resize(first + count);
      std::memcpy(manifest_.pieces.data() + first, text.data() + 1, count * sizeof(Piece));
    }
    for (int rank = 1; rank < comm_.size(); ++rank) std::filesystem::remove(rank_path(rank));
  }

  // Plans the offsets of all tensors of one kind. All ranks compute the same offsets.
  void plan(size_t kind) {
    std::vector<SafetensorEntry>& entries = entries_[kind];
    for (const ManifestTensor& t : manifest_.tensors) {
      entries.push_back({t.name, DS_DTYPE_F32, t.shape, 0, t.numel() * int64_t{sizeof(float)}});
    }
    std::string& header = headers_[kind];
    header = plan_safetensors(entries, {{"kind", manifest_.kinds[kind]}});
    ManifestFile& file = manifest_.files[kind];
    file.bytes = static_cast<int64_t>(header.size());
    for (const SafetensorEntry& e : entries) file.bytes = std::max(file.bytes, e.begin + e.bytes);
    file.header = hash_hex(header);
  }

  // Runs on rank 0: removes leftovers, then creates a new folder with files of full size.
  void make_files() {
    make_folders(folder_);
    int64_t last = remove_leftovers(folder_);
    if (last == 0) sync_parents(folder_);
    name_ = checkpoint_name(manifest_.info.step, last + 1, manifest_.info.tag);
    path_ = folder_ + "/" + name_;
    if (!make_folder(path_))
      raise(DS_ERROR_IO, "{}: another process is writing this checkpoint", path_);
    made_ = true;
    for (size_t k = 0; k < manifest_.kinds.size(); ++k) {
      File file(file_path(k), File::Mode::create);
      file.resize(manifest_.files[k].bytes);
      const std::string& header = headers_[k];
      file.write(header.data(), header.size(), 0);
      file.sync();
    }
    sync_folder(path_);
  }

  std::string file_path(size_t kind) const {
    return path_ + "/" + state_file(manifest_.kinds[kind]);
  }

  // Writes this rank's shard of every bucket, without padding.
  void write_kind(size_t kind) {
    DirectWriter file(file_path(kind), blocks_);
    for_own_blocks(state_, [&](BucketId b, const ParamPlace& p, const SliceBlock& block) {
      if (manifest_.info.stores(p.param)) write_piece(file, kind, b, p, block);
    });
    file.finish();
  }

  // Writes and hashes a block of the parameter at `place` in the bucket, and records it as one
  // piece.
  void write_piece(DirectWriter& file, size_t kind, BucketId bucket, const ParamPlace& place,
                   const SliceBlock& block) {
    const int32_t tensor = tensor_of_[place.param];
    const SafetensorEntry& entry = entries_[kind][static_cast<size_t>(tensor)];
    Hash128 hash;
    for_each_run(block, static_cast<int64_t>(block_.size()),
                 [&](int64_t local, int64_t whole, int64_t n) {
                   state_.read_state(static_cast<StateKind>(kind), bucket, place.begin + local, n,
                                     block_.data());
                   size_t bytes = static_cast<size_t>(n) * sizeof(float);
                   hash.update(block_.data(), bytes);
                   file.write(block_.data(), bytes, entry.begin + whole * int64_t{sizeof(float)});
                 });
    Piece piece{
        static_cast<int32_t>(kind), tensor, block.begin, block.count, block.rows, block.stride};
    std::copy_n(hash.hex().data(), piece.hash.size(), piece.hash.data());
    mine_.push_back(piece);
  }

  void gather_pieces() {
    int64_t count = static_cast<int64_t>(mine_.size());
    std::vector<int64_t> counts(static_cast<size_t>(comm_.size()));
    comm_.all_gather(&count, counts.data(), sizeof count, "checkpoint piece counts");
    size_t most = static_cast<size_t>(*std::ranges::max_element(counts));
    // all_gather sends equally many elements from each rank, so every list is padded to the longest
    // one.
    mine_.resize(most);
    std::vector<Piece> all(most * counts.size());
    comm_.all_gather(mine_.data(), all.data(), most * sizeof(Piece), "checkpoint pieces");
    for (size_t r = 0; r < counts.size(); ++r) {
      auto first = all.begin() + static_cast<int64_t>(r * most);
      manifest_.pieces.insert(manifest_.pieces.end(), first, first + counts[r]);
    }
  }

  // Lets every rank write its file, and returns the sizes and hashes of all of them. `kind` names
  // the files in errors.
  std::vector<ManifestRankFile> write_on_all(const std::string& kind,
                                             const std::function<ManifestRankFile()>& write) {
    ManifestRankFile mine;
    agree(comm_, "checkpoint " + kind + " file", [&] { mine = write(); });
    const std::vector<std::string> hashes =
        gather_texts(comm_, mine.hash, "checkpoint hashes of rank files");
    std::vector<int64_t> bytes(hashes.size());
    comm_.all_gather(&mine.bytes, bytes.data(), sizeof mine.bytes,
                     "checkpoint bytes of rank files");
    std::vector<ManifestRankFile> out;
    for (size_t r = 0; r < hashes.size(); ++r) out.push_back({bytes[r], hashes[r]});
    return out;
  }

  // Checks the pieces and writes the manifest. Refuses a manifest above kMostManifest, because no
  // reader would accept it.
  void commit() {
    sort_and_check_pieces(manifest_, path_);
    std::string name = path_ + "/" + std::string(kManifestName), text = manifest_.print();
    if (auto bytes = static_cast<int64_t>(text.size()); bytes > kMostManifest) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "{}: at most {} bytes can be read, but this would have {} ({} of them the client's "
            "state, for {} pieces of {} tensors)",
            name, kMostManifest, bytes, manifest_.info.client.dump().size(),
            manifest_.pieces.size(), manifest_.tensors.size());
    }
    write_file_atomic(name, text);
    made_ = false;
  }

  StateAccess& state_;
  Communicator& comm_;
  std::string folder_, name_, path_;
  // True on rank 0 from the creation of path_ until its commit.
  bool made_ = false;
  Manifest manifest_;
  // The index of each stored parameter in manifest_.tensors.
  IdVector<ParamId, int32_t> tensor_of_;
  // The entries of the tensors and the header of each file, by kind.
  std::vector<std::vector<SafetensorEntry>> entries_;
  std::vector<std::string> headers_;
  // The pieces that this rank has written.
  std::vector<Piece> mine_;
  std::atomic<bool> given_up_ = false;
  std::vector<float> block_ = std::vector<float>(kPieceBytes / sizeof(float));
  DirectBlocks blocks_;
};

// A copy of per-rank states in host memory, for a save in the background.
class CopiedOwnStates final : public OwnStateAccess {
 public:
  explicit CopiedOwnStates(OwnStateAccess& own) : states_(own.states()) {
    for (size_t i = 0; i < states_.size(); ++i) {
      std::vector<float>& values = values_.emplace_back(static_cast<size_t>(states_[i].numel));
      own.read(i, 0, states_[i].numel, values.data());
    }
  }
  std::vector<OwnState> states() override { return states_; }
  void read(size_t i, int64_t begin, int64_t count, float* out) override {
    std::copy_n(values_[i].data() + begin, count, out);
  }
  void write(size_t, int64_t, int64_t, const float*) override { refuse(); }
  void forget() override { refuse(); }

 private:
  static void refuse() { raise(DS_ERROR_INTERNAL, "a copy that is saved is read-only"); }
  std::vector<OwnState> states_;
  std::vector<std::vector<float>> values_;
};

// A copy of the states that a rank writes. It holds only the shard of each bucket that the rank
// writes, so first() and held() describe that shard.
class CopiedState : public StateAccess {
 public:
  CopiedState(StateAccess& state, const CheckpointInfo& info)
      : comm_(state.comm()),
        layout_(state.layout()),
        names_(state.param_names()),
        shapes_(state.param_shapes()),
        kinds_(state.state_kinds()) {
    for (ParamId p : names_.ids()) {
      slices_.push_back(state.slice(p));
      writes_.push_back(state.writes(p) && info.stores(p) ? 1 : 0);
    }
    for (BucketId b : layout_.buckets.ids()) first_.push_back(state.own_first(b));
    for (size_t k = 0; k < kinds_.size(); ++k) {
      data_.emplace_back();
      for (BucketId b : layout_.buckets.ids()) copy(state, static_cast<StateKind>(k), b);
    }
    if (state.own()) own_.emplace(*state.own());
  }

  Communicator& comm() override { return comm_; }
  const Layout& layout() const override { return layout_; }
  const IdVector<ParamId, std::string>& param_names() const override { return names_; }
  const IdVector<ParamId, std::vector<int64_t>>& param_shapes() const override { return shapes_; }
  const ParamSlice& slice(ParamId param) const override { return slices_[param]; }
  bool writes(ParamId param) const override { return writes_[param] != 0; }
  const std::vector<std::string>& state_kinds() const override { return kinds_; }
  int64_t first(BucketId bucket) const override { return first_[bucket]; }
  int64_t held(BucketId bucket) const override { return layout_.buckets[bucket].shard(); }
  int64_t own_first(BucketId bucket) const override { return first_[bucket]; }
  void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                  float* out) override {
    const std::vector<float>& values = data_[static_cast<size_t>(kind)][bucket.index()];
    std::copy_n(values.data() + (begin - first_[bucket]), count, out);
  }
  void write_state(StateKind, BucketId, int64_t, int64_t, const float*) override {
    raise(DS_ERROR_INTERNAL, "a copy that is saved is read-only");
  }
  OwnStateAccess* own() override { return own_ ? &*own_ : nullptr; }

 private:
  void copy(StateAccess& state, StateKind kind, BucketId bucket) {
    int64_t low = first_[bucket], high = low + held(bucket);
    const std::vector<ParamPlace>& params = layout_.buckets[bucket].params;
    const bool any = std::ranges::any_of(params, [&](auto& p) { return writes(p.param); });
    std::vector<float> values(static_cast<size_t>(any ? high - low : 0));
    for (const ParamPlace& p : params) {
      int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
      if (begin < end && writes(p.param))
        state.read_state(kind, bucket, begin, end - begin, values.data() + (begin - low));
    }
    data_.back().push_back(std::move(values));
  }

  Communicator& comm_;
  Layout layout_;
  IdVector<ParamId, std::string> names_;
  IdVector<ParamId, std::vector<int64_t>> shapes_;
  IdVector<ParamId, ParamSlice> slices_;
  IdVector<ParamId, char> writes_;
  IdVector<BucketId, int64_t> first_;
  std::vector<std::string> kinds_;
  // The copied elements, by kind and bucket.
  std::vector<std::vector<std::vector<float>>> data_;
  std::optional<CopiedOwnStates> own_;
};

}  // namespace

class StartedSave::Work {
 public:
  Work(StateAccess& state, const std::string& folder, const CheckpointInfo& info, const Keep& keep,
       int64_t patience_ms)
      : comm_(state.comm()) {
    agree(comm_, "checkpoint copy", [&] {
      copy_.emplace(state, info);
      writer_.emplace(*copy_, folder, info);
    });
    try {
      writer_->begin();
    } catch (...) {
      writer_->abandon();
      throw;
    }
    // Blocks all signals in the new thread, so that the host's handlers run on the host's threads.
    SignalsBlocked blocked(SignalsBlocked::Which::all);
    thread_ = std::thread([this, keep, patience_ms] {
      try {
        writer_->run_alone(keep, patience_ms);
      } catch (...) {
        error_ = std::current_exception();
      }
      finished_ = true;
    });
  }

  ~Work() { join(); }
  bool finished() const { return finished_; }
  void give_up() { writer_->give_up(); }
  // Waits until this rank's thread has ended, and returns its error or null.
  std::exception_ptr join() {
    if (thread_.joinable()) thread_.join();
    return error_;
  }
  Communicator& comm() const { return comm_; }
  const std::string& path() const { return writer_->path(); }

 private:
  Communicator& comm_;
  std::optional<CopiedState> copy_;
  std::optional<Writer> writer_;
  std::exception_ptr error_;
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

StartedSave::StartedSave(StateAccess& state, const std::string& folder, const CheckpointInfo& info,
                         const Keep& keep, int64_t patience_ms) {
  require(keep.newest >= 0, "the number of checkpoints to keep must be at least 0, got {}",
          keep.newest);
  work_ = std::make_unique<Work>(state, folder, info, keep, patience_ms);
}

void StartedSave::give_up() { work_->give_up(); }

StartedSave::~StartedSave() {
  if (!work_) return;
  try {
    if (std::exception_ptr error = work_->join()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    log_line(LogLevel::error, fmt::format("a checkpoint was not saved: {}", error.what()));
  }
}

std::string StartedSave::wait() {
  std::unique_ptr<Work> work = std::move(work_);
  // The ranks repeatedly exchange whether they have finished, until all have. The collective fails
  // if a rank ends meanwhile.
  try {
    while (agree_max(work->comm(), work->finished() ? 0 : 1, "checkpoint threads") != 0)
      std::this_thread::sleep_for(kMeetPause);
  } catch (const std::exception&) {
    work->give_up();
    throw;
  }
  std::exception_ptr error = work->join();
  agree(work->comm(), "checkpoint thread", [&] {
    if (error) std::rethrow_exception(error);
  });
  return work->path();
}

std::string save_checkpoint(StateAccess& state, const std::string& folder,
                            const CheckpointInfo& info, const Keep& keep) {
  require(keep.newest >= 0, "the number of checkpoints to keep must be at least 0, got {}",
          keep.newest);
  return Writer(state, folder, info).save(keep);
}

}  // namespace ds
