#include "checkpoint/attachments.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/rank_files.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ds {

ManifestRankFile write_attached_file(const Attachments& attached, const std::string& path,
                                     size_t rank) {
  std::vector<SafetensorEntry> entries;
  for (const auto& [name, a] : attached)
    entries.push_back({name, a.dtype, a.shape, 0, static_cast<int64_t>(a.bytes.size())});
  const std::string header = plan_safetensors(entries, {});
  File file(path + "/" + attached_file(rank), File::Mode::create);
  // Planned entries have no gaps between them, so the file is written and hashed in one pass.
  file.write(header.data(), header.size(), 0);
  Hash128 hash;
  hash.update(header);
  auto end = static_cast<int64_t>(header.size());
  for (auto entry = entries.cbegin(); const auto& [name, a] : attached) {
    if (!a.bytes.empty()) file.write(a.bytes.data(), a.bytes.size(), entry->begin);
    hash.update(a.bytes.data(), a.bytes.size());
    end = std::max(end, entry->begin + entry->bytes);
    ++entry;
  }
  file.sync();
  sync_folder(path);
  return {end, hash.hex()};
}

namespace {

// Opens the file of `rank` after its size, or with `whole` its hash, has been compared.
File open_attached(const Manifest& manifest, const std::string& path, size_t rank, bool whole) {
  if (rank >= static_cast<size_t>(manifest.world))
    raise(DS_ERROR_NOT_FOUND,
          "rank must be below {}, the number of ranks that saved checkpoint '{}', got {}",
          manifest.world, path, rank);
  if (manifest.attached.empty())
    raise(DS_ERROR_NOT_FOUND, "checkpoint '{}' has no attachments", path);
  const std::string name = path + "/" + attached_file(rank);
  check_rank_file(manifest.attached[rank], name, whole);
  return File(name, File::Mode::read);
}

Attachment read_entry(File& file, const SafetensorEntry& entry) {
  Attachment out{entry.dtype, entry.shape, {}};
  out.bytes.resize(static_cast<size_t>(entry.bytes));
  if (!out.bytes.empty()) file.read(out.bytes.data(), out.bytes.size(), entry.begin);
  return out;
}

}  // namespace

Attachment read_attachment(const Manifest& manifest, const std::string& path, size_t rank,
                           const std::string& name) {
  File file = open_attached(manifest, path, rank, false);
  const SafetensorHeader header = read_safetensors_header(path + "/" + attached_file(rank));
  const SafetensorEntry* entry = header.find(name);
  if (!entry)
    raise(DS_ERROR_NOT_FOUND, "rank {} has attached no '{}' to checkpoint '{}'", rank,
          TensorName(name), path);
  return read_entry(file, *entry);
}

Attachments read_attachments(const Manifest& manifest, const std::string& path, size_t rank) {
  File file = open_attached(manifest, path, rank, true);
  Attachments out;
  for (const SafetensorEntry& e : read_safetensors_header(path + "/" + attached_file(rank)).entries)
    out.emplace(e.name, read_entry(file, e));
  return out;
}

}  // namespace ds
