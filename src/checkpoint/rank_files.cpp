#include "checkpoint/rank_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/file.h"

namespace ds {

std::string own_file(size_t rank) { return fmt::format("own-{:05}.safetensors", rank); }
std::string attached_file(size_t rank) { return fmt::format("attached-{:05}.safetensors", rank); }

void check_rank_file(const ManifestRankFile& listed, const std::string& path, bool whole) {
  if (!exists(path))
    raise(DS_ERROR_CORRUPT, "'{}' does not exist, but {} names it", path, kManifestName);
  File file(path, File::Mode::read);
  if (file.size() != listed.bytes)
    raise(DS_ERROR_CORRUPT, "'{}' has {} bytes, but {} says {}", path, file.size(), kManifestName,
          listed.bytes);
  if (!whole) return;
  Hash128 hash;
  std::vector<std::byte> block(kPieceBytes);
  for (int64_t at = 0; at < listed.bytes;) {
    size_t count = std::min(block.size(), static_cast<size_t>(listed.bytes - at));
    file.read(block.data(), count, at);
    hash.update(block.data(), count);
    at += static_cast<int64_t>(count);
  }
  if (hash.hex() != listed.hash)
    raise(DS_ERROR_CORRUPT, "'{}' has hash {}, but {} says {}", path, hash.hex(), kManifestName,
          listed.hash);
}

void check_rank_files(const Manifest& manifest, const std::string& path, bool whole) {
  for (size_t r = 0; r < manifest.own.size(); ++r)
    check_rank_file(manifest.own[r], path + "/" + own_file(r), whole);
  for (size_t r = 0; r < manifest.attached.size(); ++r)
    check_rank_file(manifest.attached[r], path + "/" + attached_file(r), whole);
}

}  // namespace ds
