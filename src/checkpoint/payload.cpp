#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/manifest.h"
#include "core/base/hash.h"
#include "io/file.h"

namespace ds {

std::string payload_hash(const std::string& path) {
  Manifest manifest = read_manifest(path);
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  Hash128 hash;
  std::vector<char> block(kPieceBytes);
  for (size_t k = 0; k < manifest.kinds.size(); ++k) {
    const std::string& kind = manifest.kinds[k];
    SafetensorHeader header = read_state_header(manifest, path, k);
    File file(path + "/" + state_file(kind), File::Mode::read);
    for (const ManifestTensor& t : manifest.tensors) {
      const SafetensorEntry& e = *header.find(t.name);
      hash.update(fmt::format("{} {} {} [{}]\n", kind, t.name, dtype_name(e.dtype), fmt::join(t.shape, ",")));
      for (int64_t at = 0; at < e.bytes; at += static_cast<int64_t>(block.size())) {
        size_t n = std::min(block.size(), static_cast<size_t>(e.bytes - at));
        file.read(block.data(), n, e.begin + at);
        hash.update(block.data(), n);
      }
    }
  }
  return hash.hex();
}

}  // namespace ds
