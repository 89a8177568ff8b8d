#include "checkpoint/own_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "checkpoint/rank_files.h"
#include "core/base/hash.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ds {
namespace {

constexpr int64_t kValueBytes = sizeof(float);
// Number of elements that are read or written at a time.
constexpr auto kBlock = static_cast<int64_t>(kPieceBytes) / kValueBytes;

// Calls body(first, count) for consecutive blocks that cover `numel` elements.
void by_blocks(int64_t numel, const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t at = 0; at < numel; at += kBlock) body(at, std::min(kBlock, numel - at));
}

std::vector<SafetensorEntry> entries_of(StateAccess& state) {
  std::vector<SafetensorEntry> entries;
  for (const OwnState& own : own_states(state))
    entries.push_back({own.name, DS_DTYPE_F32, {own.numel}, 0, own.numel * kValueBytes});
  return entries;
}

}  // namespace

ManifestRankFile write_own_file(StateAccess& state, const std::string& path) {
  std::vector<SafetensorEntry> entries = entries_of(state);
  const std::string header = plan_safetensors(entries, {});
  const std::string name = path + "/" + own_file(static_cast<size_t>(state.comm().rank()));
  File file(name, File::Mode::create);
  // Planned entries have no gaps between them, so the file is written and hashed in one pass.
  int64_t end = static_cast<int64_t>(header.size());
  for (const SafetensorEntry& e : entries) end = std::max(end, e.begin + e.bytes);
  file.resize(end);
  file.write(header.data(), header.size(), 0);
  Hash128 hash;
  hash.update(header);
  std::vector<float> block(static_cast<size_t>(kBlock));
  for (size_t i = 0; i < entries.size(); ++i) {
    by_blocks(entries[i].bytes / kValueBytes, [&](int64_t first, int64_t count) {
      state.own()->read(i, first, count, block.data());
      file.write(block.data(), static_cast<size_t>(count * kValueBytes),
                 entries[i].begin + first * kValueBytes);
      hash.update(block.data(), static_cast<size_t>(count * kValueBytes));
    });
  }
  file.sync();
  sync_folder(path);
  return {end, hash.hex()};
}

bool own_file_fits(StateAccess& state, const std::string& path, size_t rank) {
  const SafetensorHeader header = read_safetensors_header(path + "/" + own_file(rank));
  const std::vector<SafetensorEntry> wanted = entries_of(state);
  return header.entries.size() == wanted.size() &&
         std::ranges::all_of(wanted, [&](const SafetensorEntry& w) {
           const SafetensorEntry* e = header.find(w.name);
           return e && e->dtype == w.dtype && e->shape == w.shape;
         });
}

namespace {

// Reads the per-rank states for which `wants` returns true from the file of `rank`. `wants` is
// called with the index of a state and its entry in the file, or null if the file lacks the state.
void read_states(StateAccess& state, const std::string& path, size_t rank,
                 const std::function<bool(size_t, const SafetensorEntry*)>& wants) {
  const std::string name = path + "/" + own_file(rank);
  const SafetensorHeader header = read_safetensors_header(name);
  File file(name, File::Mode::read);
  std::vector<float> block(static_cast<size_t>(kBlock));
  const std::vector<SafetensorEntry> entries = entries_of(state);
  for (size_t i = 0; i < entries.size(); ++i) {
    const SafetensorEntry* entry = header.find(entries[i].name);
    if (!wants(i, entry)) continue;
    by_blocks(entry->bytes / kValueBytes, [&](int64_t first, int64_t count) {
      file.read(block.data(), static_cast<size_t>(count * kValueBytes),
                entry->begin + first * kValueBytes);
      state.own()->write(i, first, count, block.data());
    });
  }
}

}  // namespace

void read_common(StateAccess& state, const std::string& path) {
  const std::vector<OwnState> all = own_states(state);
  read_states(state, path, 0, [&](size_t i, const SafetensorEntry* e) {
    return all[i].common && e && e->dtype == DS_DTYPE_F32 && e->shape == std::vector{all[i].numel};
  });
}

void read_own_file(StateAccess& state, const std::string& path, size_t rank) {
  read_states(state, path, rank, [](size_t, const SafetensorEntry*) { return true; });
}

}  // namespace ds
