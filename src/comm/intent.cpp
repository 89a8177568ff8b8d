#include "comm/intent.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {
namespace {

// Returns a text that came from another rank: it may contain any bytes and may lack the terminating
// zero.
template <size_t size>
std::string_view text_of(const char (&text)[size]) {
  return {text, strnlen(text, size)};
}

}  // namespace

size_t put_text(char* to, size_t size, std::string_view text, size_t at) {
  size_t count = std::min(size - 1 - at, text.size());
  if (count != 0) std::memcpy(to + at, text.data(), count);
  to[at + count] = '\0';
  return at + count;
}

void Intent::set(uint64_t number, std::string_view name, std::string_view detail, uint64_t count,
                 std::string_view about) {
  sequence = number;
  bytes = count;
  label_hash = hash64(about);
  size_t at = put_text(operation, sizeof operation, name);
  if (!detail.empty()) at = put_text(operation, sizeof operation, " ", at);
  put_text(operation, sizeof operation, detail, at);
  put_text(label, sizeof label, about);
}

uint64_t Intent::digest() const {
  const uint64_t parts[] = {sequence, bytes, label_hash, counts_hash, hash64(operation)};
  return hash64({reinterpret_cast<const char*>(parts), sizeof parts});
}

// Labels are compared by hash, because a long label is cut.
std::string intents_differ(int rank, const Intent& mine, int other, const Intent& theirs) {
  const std::string_view operation = text_of(theirs.operation);
  bool same = theirs.sequence == mine.sequence && theirs.bytes == mine.bytes &&
              theirs.label_hash == mine.label_hash && operation == mine.operation;
  if (same && theirs.counts_hash == mine.counts_hash) return "";
  if (same) {
    return fmt::format(
        "ranks differ: ranks {} and {} pass different counts to {} '{}' of {} bytes as number {}",
        std::min(rank, other), std::max(rank, other), mine.operation, mine.label, mine.bytes,
        mine.sequence);
  }
  return fmt::format(
      "ranks differ: rank {} calls {} '{}' of {} bytes as number {}, rank {} calls {} '{}' of {} "
      "bytes as number {}",
      rank, mine.operation, mine.label, mine.bytes, mine.sequence, other, one_line(operation),
      one_line(text_of(theirs.label)), theirs.bytes, theirs.sequence);
}

}  // namespace ds
