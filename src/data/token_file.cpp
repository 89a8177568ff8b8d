#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/file_stream.h"

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

[[noreturn]] void raise_errno(const std::string& path, std::string_view action) {
  int error = errno;
  raise(error == ENOENT ? DS_ERROR_NOT_FOUND : DS_ERROR_IO, "{}: {}: {}", path, action,
        std::generic_category().message(error));
}

Header check_header(const std::string& path, const uint8_t* map, size_t bytes) {
  Header header;
  if (bytes < sizeof header || std::memcmp(map, header.magic, sizeof header.magic) != 0) {
    raise(DS_ERROR_CORRUPT, "{}: not a token file", path);
  }
  std::memcpy(&header, map, sizeof header);
  if (header.version != 1) {
    raise(DS_ERROR_UNSUPPORTED, "{}: token file version must be 1, got {}", path, header.version);
  }
  if (header.vocab < 1 || header.vocab > INT32_MAX || header.width != width_of(header.vocab)) {
    raise(DS_ERROR_CORRUPT, "{}: a vocabulary of {} does not go with {} bytes a token", path, header.vocab,
          header.width);
  }
  auto data = static_cast<int64_t>(bytes - sizeof header);
  if (header.count < 0 || data % header.width != 0 || data / header.width != header.count) {
    raise(DS_ERROR_CORRUPT, "{}: {} tokens of {} bytes wanted, got {} data bytes", path, header.count,
          header.width, data);
  }
  return header;
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : path_(path) {
  int fd = above_standard(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0) raise_errno(path, "open");
  struct stat status {};
  if (::fstat(fd, &status) != 0 || status.st_size < static_cast<off_t>(sizeof(Header))) {
    ::close(fd);
    raise(DS_ERROR_CORRUPT, "{}: not a token file", path);
  }
  map_bytes_ = static_cast<size_t>(status.st_size);
  void* map = ::mmap(nullptr, map_bytes_, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (map == MAP_FAILED) raise_errno(path, "mmap");
  Header header;
  try {
    header = check_header(path, static_cast<const uint8_t*>(map), map_bytes_);
  } catch (const Error&) {
    ::munmap(map, map_bytes_);
    throw;
  }
  map_ = static_cast<const uint8_t*>(map);
  count_ = header.count;
  vocab_ = header.vocab;
  width_ = header.width;
  corpus_hash_.assign(header.corpus_hash, sizeof header.corpus_hash);
}

TokenFile::~TokenFile() {
  if (map_) ::munmap(const_cast<uint8_t*>(map_), map_bytes_);
}

TokenFile::TokenFile(TokenFile&& other) noexcept { *this = std::move(other); }

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(corpus_hash_, other.corpus_hash_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(count_, other.count_);
  std::swap(vocab_, other.vocab_);
  std::swap(width_, other.width_);
  return *this;
}

void TokenFile::copy(int64_t begin, std::span<int32_t> out) const {
  auto wanted = static_cast<int64_t>(out.size());
  require(begin >= 0 && wanted <= count_ && begin <= count_ - wanted,
          "{}: {} tokens wanted at {}, but the file has {}", path_, wanted, begin, count_);
  const uint8_t* at = map_ + sizeof(Header) + begin * width_;
  for (int32_t& token : out) {
    uint32_t value = 0;
    std::memcpy(&value, at, static_cast<size_t>(width_));
    if (value >= static_cast<uint32_t>(vocab_)) {
      raise(DS_ERROR_CORRUPT, "{}: token must be below {}, got {}", path_, vocab_, value);
    }
    token = static_cast<int32_t>(value);
    at += width_;
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
  std::string temporary = path + ".tmp";
  {
    OutputFile stream(temporary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    stream.close();
    if (!stream) raise_errno(temporary, "write");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) raise_errno(path, "rename from .tmp");
}

}  // namespace ds
