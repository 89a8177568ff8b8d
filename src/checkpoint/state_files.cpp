#include "checkpoint/state_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/pieces.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/direct_reader.h"
#include "io/safetensors.h"

namespace ds {
namespace {

constexpr int64_t kUnit = sizeof(float);

// Returns the header of the file of one kind after comparing it with the manifest: file size, hash
// of the header, and the names, types and shapes of its tensors. Throws DS_ERROR_CORRUPT naming the
// path and both values.
SafetensorHeader read_state_header(const Manifest& manifest, const std::string& path, size_t kind) {
  const ManifestFile& listed = manifest.files.at(kind);
  std::string name = path + "/" + state_file(manifest.kinds[kind]);
  check_state_file(manifest, path, kind);
  File file(name, File::Mode::read);
  SafetensorHeader header = read_safetensors_header(name);
  if (header.entries.size() != manifest.tensors.size()) {
    raise(DS_ERROR_CORRUPT, "'{}' holds {} tensors, but {} says {}", name, header.entries.size(),
          kManifestName, manifest.tensors.size());
  }
  // The header ends where the first tensor begins.
  int64_t begin = listed.bytes;
  for (const SafetensorEntry& e : header.entries) begin = std::min(begin, e.begin);
  std::string bytes(static_cast<size_t>(begin), '\0');
  file.read(bytes.data(), bytes.size(), 0);
  if (hash_hex(bytes) != listed.header) {
    raise(DS_ERROR_CORRUPT, "the header of '{}' has hash {}, but {} says {}", name, hash_hex(bytes),
          kManifestName, listed.header);
  }
  for (const ManifestTensor& t : manifest.tensors) {
    const SafetensorEntry* e = header.find(t.name);
    if (!e || e->dtype != DS_DTYPE_F32 || e->shape != t.shape) {
      raise(DS_ERROR_CORRUPT,
            "'{}': tensor '{}' is absent, or has another type or shape than {} says", name,
            TensorName(t.name), kManifestName);
    }
    if (e->begin % kUnit != 0) {
      raise(DS_ERROR_CORRUPT, "'{}': tensor '{}' must begin at a multiple of {} bytes, got {}",
            name, TensorName(t.name), kUnit, e->begin);
    }
  }
  return header;
}

}  // namespace

void check_state_file(const Manifest& manifest, const std::string& path, size_t kind) {
  const ManifestFile& listed = manifest.files.at(kind);
  std::string name = path + "/" + state_file(manifest.kinds[kind]);
  if (!exists(name))
    raise(DS_ERROR_CORRUPT, "'{}' does not exist, but {} names it", name, kManifestName);
  int64_t size = File(name, File::Mode::read).size();
  if (size == listed.bytes) return;
  raise(DS_ERROR_CORRUPT, "'{}' has {} bytes, but {} says {}", name, size, kManifestName,
        listed.bytes);
}

StateFiles::StateFiles(const std::string& path) : path_(path), manifest_(read_manifest(path)) {}

std::string StateFiles::file_path(size_t kind) const {
  return path_ + "/" + state_file(manifest_.kinds[kind]);
}

void StateFiles::open(size_t kinds) {
  for (size_t k = files_.size(); k < kinds; ++k) {
    SafetensorHeader header = read_state_header(manifest_, path_, k);
    std::map<std::string_view, int64_t> begins;
    for (const SafetensorEntry& e : header.entries) begins[e.name] = e.begin;
    std::vector<int64_t>& of_tensors = begins_.emplace_back();
    for (const ManifestTensor& t : manifest_.tensors) of_tensors.push_back(begins.at(t.name));
    headers_.push_back(std::move(header));
    files_.emplace_back(file_path(k), File::Mode::read);
  }
}

void StateFiles::read(size_t kind, const std::string& tensor, int64_t begin, int64_t count,
                      const Block& block) {
  const SafetensorEntry& entry = *headers_[kind].find(tensor);
  for (int64_t at = begin; at < begin + count;) {
    auto n = std::min(static_cast<size_t>(begin + count - at), block_.size());
    files_[kind].read(block_.data(), n * sizeof(float), entry.begin + at * int64_t{sizeof(float)});
    block(std::span(block_).first(n));
    at += static_cast<int64_t>(n);
  }
}

// Each row of a piece is one range of the file. The direct reader requests ranges some blocks ahead
// of the data that it delivers, so each range carries its purpose in its tag: the index of the
// piece, and whether the piece is read completely.
void StateFiles::read_pieces(size_t kind, const NextWish& next, const Use& use) {
  DirectReader file(file_path(kind), direct_blocks_);
  Wish wish;
  int64_t row = 0, rows = 0;
  auto begin_of = [&](const Piece& piece) {
    return begins_[kind][static_cast<size_t>(piece.tensor)];
  };
  auto next_range = [&](DirectReader::Range& range) {
    if (row == rows) {
      if (!next(wish)) return false;
      row = 0;
      rows = wish.whole ? manifest_.pieces[wish.piece].rows : 1;
    }
    const Piece& piece = manifest_.pieces[wish.piece];
    const int64_t begin = wish.whole ? piece.begin + row * piece.stride : wish.begin;
    range.begin = begin_of(piece) + begin * kUnit;
    range.bytes = (wish.whole ? piece.count : wish.count) * kUnit;
    range.tag = static_cast<int64_t>(wish.piece) * 2 + (wish.whole ? 1 : 0);
    ++row;
    return true;
  };
  // The hash of the piece that is being read whole, and the number of its elements still to come.
  std::optional<Hash128> hash;
  int64_t left = 0;
  file.read(next_range, [&](const DirectReader::Range& part, const std::byte* data) {
    const Piece& piece = manifest_.pieces[static_cast<size_t>(part.tag / 2)];
    const int64_t count = part.bytes / kUnit;
    if (part.tag % 2 == 1) {
      if (!hash) {
        hash.emplace();
        left = piece.rows * piece.count;
      }
      hash->update(data, static_cast<size_t>(part.bytes));
    }
    if (use) {
      use(piece, (part.begin - begin_of(piece)) / kUnit,
          {reinterpret_cast<const float*>(data), static_cast<size_t>(count)});
    }
    if (!hash || (left -= count) > 0) return;
    std::string found = hash->hex();
    hash.reset();
    if (found != std::string_view(piece.hash.data(), piece.hash.size())) refuse(piece, found);
  });
}

void StateFiles::check_pieces() {
  for (size_t k = 0; k < opened(); ++k) {
    size_t i = 0;
    read_pieces(
        k,
        [&](Wish& wish) {
          while (i < manifest_.pieces.size() && static_cast<size_t>(manifest_.pieces[i].kind) != k)
            ++i;
          wish = {i++};
          return wish.piece < manifest_.pieces.size();
        },
        {});
  }
}

void StateFiles::refuse(const Piece& piece, const std::string& found) const {
  int64_t last = piece.begin + (piece.rows - 1) * piece.stride + piece.count - 1;
  std::string rows =
      piece.rows == 1 ? "" : fmt::format(" ({} rows of {})", piece.rows, piece.count);
  raise(DS_ERROR_CORRUPT, "tensor '{}' in '{}': elements {} to {}{} have hash {}, but {} says {}",
        TensorName(manifest_.tensors[static_cast<size_t>(piece.tensor)].name),
        file_path(static_cast<size_t>(piece.kind)), piece.begin, last, rows, found, kManifestName,
        std::string_view(piece.hash.data(), piece.hash.size()));
}

}  // namespace ds
