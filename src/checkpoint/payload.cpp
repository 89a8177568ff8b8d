#include "checkpoint/payload.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/state_files.h"
#include "core/base/dtype.h"
#include "core/base/hash.h"

namespace ds {
namespace {

// Returns the pieces of one tensor of one kind, which are consecutive in the manifest.
std::span<const Piece> pieces_of(const Manifest& manifest, size_t kind, size_t tensor) {
  auto before = [](const Piece& a, const Piece& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.tensor < b.tensor;
  };
  Piece wanted{static_cast<int32_t>(kind), static_cast<int32_t>(tensor)};
  auto [begin, end] =
      std::equal_range(manifest.pieces.begin(), manifest.pieces.end(), wanted, before);
  return {begin, end};
}

}  // namespace

std::string payload_hash(const std::string& path) {
  StateFiles files(path);
  const Manifest& manifest = files.manifest();
  files.open(manifest.kinds.size());
  std::vector<size_t> order(manifest.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return manifest.tensors[a].name < manifest.tensors[b].name;
  });
  Hash128 hash;
  for (size_t k = 0; k < manifest.kinds.size(); ++k) {
    for (size_t t : order) {
      const ManifestTensor& tensor = manifest.tensors[t];
      hash.update(fmt::format("{} {} {} [{}]\n", manifest.kinds[k], tensor.name,
                              dtype_name(DS_DTYPE_F32), fmt::join(tensor.shape, ",")));
      // If every piece has one row, the pieces are consecutive in the tensor, so one read serves
      // the hashes of the pieces and of the payload. Pieces with several rows interleave, so the
      // tensor is then read a second time, in order.
      std::span<const Piece> pieces = pieces_of(manifest, k, t);
      bool in_order = std::ranges::all_of(pieces, [](const Piece& p) { return p.rows == 1; });
      auto update = [&](std::span<const float> values) {
        hash.update(values.data(), values.size_bytes());
      };
      size_t next = static_cast<size_t>(pieces.data() - manifest.pieces.data()),
             end = next + pieces.size();
      files.read_pieces(
          k,
          [&](StateFiles::Wish& wish) {
            wish = {next};
            return next++ < end;
          },
          [&](const Piece&, int64_t, std::span<const float> values) {
            if (in_order) update(values);
          });
      if (!in_order) files.read(k, tensor.name, 0, tensor.numel(), update);
    }
  }
  check_rank_files(manifest, path, true);
  return hash.hex();
}

}  // namespace ds
