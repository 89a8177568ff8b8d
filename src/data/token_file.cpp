#include "data/token_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {
namespace {

// The first bytes of a token file, little-endian.
struct Header {
  char magic[8] = {'d', 's', 't', 'o', 'k', 'e', 'n', 's'};
  uint32_t version = 1;
  uint32_t width = 0;  // bytes of a token
  int64_t vocab = 0;
  int64_t count = 0;
  char corpus_hash[32] = {};
};
static_assert(sizeof(Header) == 64);

int64_t width_of(int64_t vocab) { return vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4; }

Header read_header(const File& file) {
  Header header, own;
  int64_t bytes = file.size() - int64_t{sizeof header};
  if (bytes >= 0) file.read(&header, sizeof header, 0);
  if (bytes < 0 || std::memcmp(header.magic, own.magic, sizeof own.magic) != 0) {
    raise(DS_ERROR_CORRUPT, "{}: not a token file", file.path());
  }
  if (header.version != 1) {
    raise(DS_ERROR_UNSUPPORTED, "{}: token file version must be 1, got {}", file.path(), header.version);
  }
  if (header.vocab < 1 || header.vocab > INT32_MAX || header.width != width_of(header.vocab)) {
    raise(DS_ERROR_CORRUPT, "{}: a vocabulary of {} does not go with {} bytes a token", file.path(),
          header.vocab, header.width);
  }
  if (header.count < 0 || bytes % header.width != 0 || bytes / header.width != header.count) {
    raise(DS_ERROR_CORRUPT, "{}: {} tokens of {} bytes wanted, got {} data bytes", file.path(), header.count,
          header.width, bytes);
  }
  return header;
}

std::string hash_of(const File& file) {
  std::vector<char> block(size_t{1} << 20);
  Hash128 hash;
  for (int64_t at = 0, end = file.size(); at < end; at += static_cast<int64_t>(block.size())) {
    size_t n = std::min(block.size(), static_cast<size_t>(end - at));
    file.read(block.data(), n, at);
    hash.update(block.data(), n);
  }
  return hash.hex();
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(path, File::Mode::read), state_(state_of(path)) {
  Header header = read_header(file_);
  count_ = header.count;
  vocab_ = header.vocab;
  width_ = header.width;
  corpus_hash_.assign(header.corpus_hash, sizeof header.corpus_hash);
  hash_ = hash_of(file_);
}

void TokenFile::check() {
  if (state_of(path()) == state_) return;
  TokenFile now(path());
  if (now.hash_ != hash_) {
    raise(DS_ERROR_CORRUPT, "{}: had hash {} when it was opened and has {} now: the text of a run must stay",
          path(), hash_, now.hash_);
  }
  *this = std::move(now);
}

void TokenFile::copy(int64_t begin, std::span<int32_t> out) const {
  auto wanted = static_cast<int64_t>(out.size());
  require(begin >= 0 && wanted <= count_ && begin <= count_ - wanted,
          "{}: {} tokens wanted at {}, but the file has {}", path(), wanted, begin, count_);
  // Read into the end of `out` and widened from there: a token never lands on one that is still to come.
  size_t width = static_cast<size_t>(width_), bytes = out.size() * width;
  char* from = reinterpret_cast<char*>(out.data() + out.size()) - bytes;
  read(from, bytes, int64_t{sizeof(Header)} + begin * width_);
  for (int32_t& token : out) {
    uint32_t value = 0;
    std::memcpy(&value, from, width);
    if (value >= static_cast<uint32_t>(vocab_)) {
      raise(DS_ERROR_CORRUPT, "{}: token must be below {}, got {}", path(), vocab_, value);
    }
    token = static_cast<int32_t>(value);
    from += width;
  }
}

void TokenFile::read(void* data, size_t bytes, int64_t offset) const {
  try {
    file_.read(data, bytes, offset);
  } catch (const Error& error) {
    int64_t opened = int64_t{sizeof(Header)} + count_ * width_, now = file_.size();
    if (error.status() != DS_ERROR_CORRUPT || now >= opened) throw;
    raise(DS_ERROR_CORRUPT, "{}: had {} bytes when it was opened and has {} now: the text of a run must stay",
          path(), opened, now);
  }
}

void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::string_view corpus_hash) {
  require(vocab >= 1 && vocab <= INT32_MAX, "vocab must be from 1 to 2^31 - 1, got {}", vocab);
  Header header;
  require(corpus_hash.size() == sizeof header.corpus_hash, "corpus_hash must have 32 digits, got {}",
          corpus_hash.size());
  header.width = static_cast<uint32_t>(width_of(vocab));
  header.vocab = vocab;
  header.count = static_cast<int64_t>(tokens.size());
  std::memcpy(header.corpus_hash, corpus_hash.data(), corpus_hash.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.reserve(bytes.size() + tokens.size() * header.width);
  for (int32_t token : tokens) {
    require(token >= 0 && token < vocab, "token must be from 0 to {}, got {}", vocab - 1, token);
    bytes.append(reinterpret_cast<const char*>(&token), header.width);
  }
  write_file_atomic(path, bytes);
}

}  // namespace ds
