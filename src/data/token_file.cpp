#include "data/token_file.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/file_kind.h"

namespace ds {
namespace {

// The format of a token file, little-endian: this header; tokens of `width` bytes; zeros up to a
// multiple of 8; for each document twice the number of tokens before its end, plus 1 if each of its
// tokens is a target; and the xxh3-64 of each block of everything between the header and these
// hashes. A token is stored in the smallest of 1, 2 and 4 bytes that can hold every token of the
// vocabulary. In a marked file it is shifted up by one bit, and the lowest bit says whether it is a
// target. Version 1 consists of the first 64 bytes of the header and the tokens.
struct Header {
  char magic[8] = {'d', 's', 't', 'o', 'k', 'e', 'n', 's'};
  uint32_t version = 2;
  // Bytes of a token.
  uint32_t width = 0;
  int64_t vocab = 0;
  int64_t count = 0;
  char corpus_hash[32] = {};
  char tokenizer_hash[32] = {};
  int64_t documents = 0;
  uint32_t marked = 0;
  // The largest token.
  int32_t largest = -1;
  uint64_t reserved = 0;
  // xxh3-64 of this header, with 0 here, and of the checksums of all blocks.
  uint64_t check = 0;
};
static_assert(sizeof(Header) == 128);
constexpr int64_t kOldHeader = 64, kBlock = 1 << 16;

// Returns the smallest width in bytes that can represent this many different values.
int64_t width_of(int64_t values) { return values <= 256 ? 1 : values <= 65536 ? 2 : 4; }
int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// Returns the bytes between the header and the checksums.
int64_t body_bytes(const Header& header) {
  return padded(header.count * int64_t{header.width}) + 8 * header.documents;
}

// Returns a hash of the header and the checksums, and thereby of the whole content.
uint64_t check_of(Header header, const std::vector<uint64_t>& checks) {
  header.check = 0;
  std::string all(reinterpret_cast<const char*>(&header), sizeof header);
  all.append(reinterpret_cast<const char*>(checks.data()), checks.size() * sizeof checks[0]);
  return hash64(all);
}

// Returns the size of a file with this header.
int64_t bytes_wanted(const Header& header) {
  if (header.version == 1) return kOldHeader + header.count * int64_t{header.width};
  const int64_t body = body_bytes(header), blocks = (body + kBlock - 1) / kBlock;
  return int64_t{sizeof header} + body + 8 * blocks;
}

Header read_header(const File& file) {
  Header header, own;
  int64_t size = file.size();
  if (size >= kOldHeader)
    file.read(&header, static_cast<size_t>(std::min(size, int64_t{sizeof header})), 0);
  if (size < kOldHeader || std::memcmp(header.magic, own.magic, sizeof own.magic) != 0) {
    raise_fault(file.path(), Error(DS_ERROR_CORRUPT, "not a token file"), Wanted::tokens);
  }
  if (header.version != 1 && header.version != 2) {
    raise(DS_ERROR_UNSUPPORTED, "{}: token file version must be 1 or 2, got {}", file.path(),
          header.version);
  }
  // The tokens follow the first 64 bytes, so the rest of the header is not valid.
  if (header.version == 1) {
    Header old;
    std::memcpy(static_cast<void*>(&old), &header, kOldHeader);
    header = old;
  } else if (size < int64_t{sizeof header}) {
    raise(DS_ERROR_CORRUPT, "{}: has {} bytes, but its header alone needs {}", file.path(), size,
          sizeof header);
  }
  // Sizes are bounded before they are multiplied, since the header may be damaged.
  bool marks = header.marked == 1;
  if (header.vocab < 1 || header.vocab > INT32_MAX / (marks ? 2 : 1) || header.marked > 1 ||
      header.width != width_of(header.vocab * (marks ? 2 : 1))) {
    raise(DS_ERROR_CORRUPT, "{}: a vocabulary of {} contradicts {} bytes for each token",
          file.path(), header.vocab, header.width);
  }
  if (header.count < 0 || header.count > INT64_MAX / 16 || header.documents < 0 ||
      header.documents > header.count) {
    raise(DS_ERROR_CORRUPT, "{}: the header gives {} tokens in {} documents, which is impossible",
          file.path(), header.count, header.documents);
  }
  if (const int64_t wanted = bytes_wanted(header); size != wanted) {
    raise(DS_ERROR_CORRUPT, "{}: has {} bytes, but {} tokens of {} bytes in {} documents need {}",
          file.path(), size, header.count, header.width, header.documents, wanted);
  }
  return header;
}

// Hashes the whole file, in blocks.
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

// The most recently read blocks. A full window replaces the least recently used one.
struct TokenFile::Window {
  static constexpr size_t kBlocks = 16;
  struct Slot {
    int64_t block = -1;
    uint64_t used = 0;
    std::vector<char> bytes;
  };
  std::mutex mutex;
  uint64_t clock = 0;
  std::vector<Slot> slots;
};

TokenFile::TokenFile() = default;
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

TokenFile::TokenFile(const std::string& path, Read how)
    : file_(path, File::Mode::read),
      state_(state_of(path)),
      read_(how),
      window_(std::make_unique<Window>()) {
  Header header = read_header(file_);
  count_ = header.count;
  vocab_ = header.vocab;
  width_ = header.width;
  bytes_ = file_.size();
  marked_ = header.marked == 1;
  documents_ = header.documents;
  corpus_hash_.assign(header.corpus_hash, sizeof header.corpus_hash);
  tokenizer_hash_ = kNoHash;
  begin_ = kOldHeader;
  if (header.version == 1 || how == Read::whole) hash_ = hash_of(file_);
  if (header.version == 1) return;
  begin_ = sizeof header;
  largest_ = header.largest;
  tokenizer_hash_.assign(header.tokenizer_hash, sizeof header.tokenizer_hash);
  int64_t body = body_bytes(header);
  checks_.resize(static_cast<size_t>((body + kBlock - 1) / kBlock));
  file_.read(checks_.data(), checks_.size() * sizeof checks_[0], begin_ + body);
  // The whole file has been hashed, so the hash of header and checksums is not needed.
  if (how == Read::whole) return;
  if (header.check != check_of(header, checks_)) {
    raise(DS_ERROR_CORRUPT, "{}: header and checksums contradict each other: the file is damaged",
          path);
  }
  Hash128 hash;
  hash.update(&header, sizeof header);
  hash.update(checks_.data(), checks_.size() * sizeof checks_[0]);
  hash_ = hash.hex();
}

// Compares content and not only times: a copied or touched file with equal content is accepted.
void TokenFile::check() {
  FileState state = state_of(path());
  if (state == state_) return;
  if (state.size < bytes_) cut_short(state.size);
  TokenFile now(path(), read_);
  if (now.hash_ != hash_) {
    raise(DS_ERROR_CORRUPT,
          "{}: had hash {} when it was opened and has {} now: the text of a run must not change",
          path(), hash_, now.hash_);
  }
  *this = std::move(now);
}

void TokenFile::copy(int64_t begin, std::span<int32_t> out) const { copy(begin, out, {}); }

void TokenFile::copy(int64_t begin, std::span<int32_t> out, std::span<uint8_t> targets) const {
  auto wanted = static_cast<int64_t>(out.size());
  require(begin >= 0 && wanted <= count_ && begin <= count_ - wanted,
          "{}: {} tokens wanted at {}, but the file has {}", path(), wanted, begin, count_);
  // Tokens are read into the end of `out` and widened from there, so a widened token never
  // overwrites one that is still to come.
  size_t width = static_cast<size_t>(width_), bytes = out.size() * width;
  char* from = reinterpret_cast<char*>(out.data() + out.size()) - bytes;
  read(from, bytes, begin * width_);
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t value = 0;
    std::memcpy(&value, from, width);
    from += width;
    if (!targets.empty()) targets[i] = marked_ ? value & 1 : 1;
    if (marked_) value >>= 1;
    if (value >= static_cast<uint32_t>(vocab_)) {
      raise(DS_ERROR_CORRUPT, "{}: token must be below {}, got {}", path(), vocab_, value);
    }
    out[i] = static_cast<int32_t>(value);
  }
}

// Ends must increase, so that every document has tokens.
std::vector<DocumentEnd> TokenFile::ends() const {
  std::vector<uint64_t> packed(static_cast<size_t>(documents_));
  read(packed.data(), packed.size() * sizeof packed[0], padded(count_ * width_));
  std::vector<DocumentEnd> out;
  out.reserve(packed.size());
  int64_t last = 0;
  for (uint64_t one : packed) {
    out.push_back({static_cast<int64_t>(one >> 1), (one & 1) != 0});
    if (out.back().end <= last || out.back().end > count_) {
      raise(DS_ERROR_CORRUPT,
            "{}: a document ends at token {}, but must end after {} and not beyond {}", path(),
            out.back().end, last, count_);
    }
    last = out.back().end;
  }
  return out;
}

// Reads bytes; `offset` is relative to the end of the header.
void TokenFile::read(void* data, size_t bytes, int64_t offset) const {
  if (checks_.empty()) return read_file(data, bytes, begin_ + offset);
  auto* to = static_cast<char*>(data);
  std::lock_guard lock(window_->mutex);
  std::vector<Window::Slot>& slots = window_->slots;
  while (bytes > 0) {
    int64_t block = offset / kBlock, within = offset % kBlock;
    auto slot = std::ranges::find_if(slots, [&](const auto& s) { return s.block == block; });
    if (slot == slots.end()) {
      slot = slots.size() < Window::kBlocks
                 ? slots.emplace(slots.end())
                 : std::ranges::min_element(
                       slots, [](const auto& a, const auto& b) { return a.used < b.used; });
      // The slot stays invalid until the block has passed its check, since read_block() may throw.
      slot->block = -1;
      read_block(block, slot->bytes);
      slot->block = block;
    }
    slot->used = ++window_->clock;
    size_t part = std::min(bytes, slot->bytes.size() - static_cast<size_t>(within));
    std::memcpy(to, slot->bytes.data() + within, part);
    to += part;
    bytes -= part;
    offset += static_cast<int64_t>(part);
  }
}

// A block that differs from its checksum is never returned.
void TokenFile::read_block(int64_t block, std::vector<char>& out) const {
  int64_t body = padded(count_ * width_) + 8 * documents_;
  out.resize(static_cast<size_t>(std::min(kBlock, body - block * kBlock)));
  read_file(out.data(), out.size(), begin_ + block * kBlock);
  uint64_t found = hash64({out.data(), out.size()}), wanted = checks_[static_cast<size_t>(block)];
  if (found == wanted) return;
  raise(DS_ERROR_CORRUPT,
        "{}: bytes {} to {} have checksum {:016x}, but the file says {:016x}: it is damaged",
        path(), begin_ + block * kBlock, begin_ + block * kBlock + static_cast<int64_t>(out.size()),
        found, wanted);
}

// If the file became shorter while it was open, the message says so.
void TokenFile::read_file(void* data, size_t bytes, int64_t offset) const {
  try {
    file_.read(data, bytes, offset);
  } catch (const Error& error) {
    int64_t now = file_.size();
    if (error.status() != DS_ERROR_CORRUPT || now >= bytes_) throw;
    cut_short(now);
  }
}

void TokenFile::cut_short(int64_t now) const {
  raise(DS_ERROR_CORRUPT,
        "{}: had {} bytes when it was opened and has {} now: the text of a run must not change",
        path(), bytes_, now);
}

TokenWriter::TokenWriter(const std::string& path, Options options)
    : path_(path), unfinished_(fresh_name(path)), options_(std::move(options)) {
  int64_t most = options_.marked ? INT32_MAX / 2 : INT32_MAX;
  require(options_.vocab >= 1 && options_.vocab <= most, "vocab must be from 1 to {}, got {}", most,
          options_.vocab);
  require(options_.tokenizer_hash.size() == kNoHash.size(),
          "tokenizer_hash must have 32 digits, got {}", options_.tokenizer_hash.size());
  width_ = width_of(options_.vocab * (options_.marked ? 2 : 1));
  file_ = File(unfinished_, File::Mode::create);
  at_ = sizeof(Header);
}

TokenWriter::~TokenWriter() {
  if (!unfinished_.empty()) std::remove(unfinished_.c_str());
}

// Blocks are hashed as they fill, so that the file need not be read again.
void TokenWriter::put(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    size_t part = std::min(bytes, static_cast<size_t>(kBlock) - block_.size());
    block_.insert(block_.end(), from, from + part);
    from += part;
    bytes -= part;
    if (block_.size() == static_cast<size_t>(kBlock)) flush();
  }
}

void TokenWriter::flush() {
  if (block_.empty()) return;
  checks_.push_back(hash64({block_.data(), block_.size()}));
  file_.write(block_.data(), block_.size(), at_);
  at_ += static_cast<int64_t>(block_.size());
  block_.clear();
}

// Tokens are checked as they come, so that a file never holds one beyond its vocabulary.
void TokenWriter::add(std::span<const int32_t> tokens, std::span<const uint8_t> targets) {
  require(
      targets.size() == (options_.marked ? tokens.size() : 0),
      "{} tokens have {} marks of targets; a marked file needs one for each, any other file none",
      tokens.size(), targets.size());
  bool whole = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < options_.vocab, "token must be from 0 to {}, got {}",
            options_.vocab - 1, tokens[i]);
    auto value = static_cast<uint32_t>(tokens[i]);
    if (options_.marked) {
      whole = whole && targets[i] != 0;
      value = value << 1 | (targets[i] != 0 ? 1 : 0);
    }
    largest_ = std::max(largest_, int64_t{tokens[i]});
    put(&value, static_cast<size_t>(width_));
  }
  count_ += static_cast<int64_t>(tokens.size());
  // The lowest bit marks documents in which each token is a target.
  if (options_.documents && !tokens.empty())
    ends_.push_back(static_cast<uint64_t>(count_) << 1 | (whole ? 1 : 0));
}

void TokenWriter::finish(std::string_view corpus_hash) {
  Header header;
  require(corpus_hash.size() == sizeof header.corpus_hash,
          "corpus_hash must have 32 digits, got {}", corpus_hash.size());
  header.width = static_cast<uint32_t>(width_);
  header.vocab = options_.vocab;
  header.count = count_;
  header.documents = static_cast<int64_t>(ends_.size());
  header.marked = options_.marked ? 1 : 0;
  header.largest = static_cast<int32_t>(largest_);
  std::memcpy(header.corpus_hash, corpus_hash.data(), corpus_hash.size());
  std::memcpy(header.tokenizer_hash, options_.tokenizer_hash.data(), sizeof header.tokenizer_hash);
  const uint64_t zeros = 0;
  put(&zeros, static_cast<size_t>(padded(count_ * width_) - count_ * width_));
  put(ends_.data(), ends_.size() * sizeof ends_[0]);
  flush();
  // The header is written last, so a file that was not finished has none.
  header.check = check_of(header, checks_);
  file_.write(checks_.data(), checks_.size() * sizeof checks_[0], at_);
  file_.write(&header, sizeof header, 0);
  // This order makes the file appear complete or not at all: content, then the name, then the
  // folder.
  file_.sync();
  file_ = File();
  rename_file(unfinished_, path_);
  unfinished_.clear();
  size_t slash = path_.rfind('/');
  sync_folder(slash == path_.npos ? "." : path_.substr(0, std::max<size_t>(slash, 1)));
}

void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::string_view corpus_hash, const std::string& tokenizer_hash) {
  TokenWriter writer(path, {.vocab = vocab, .tokenizer_hash = tokenizer_hash});
  writer.add(tokens);
  writer.finish(corpus_hash);
}

}  // namespace ds
