#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

// Writes `text`, cut to fit, into the C string to[0..size) from position `at` on, and returns the
// string's new length.
size_t put_text(char* to, size_t size, std::string_view text, size_t at = 0);

// The operation that a rank is about to perform, as the ranks compare it. Ranks compare intents in
// the first round of a collective. Texts are cut to fit.
struct Intent {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  uint64_t label_hash = 0;
  // Hash of the list of counts on which ranks must agree, in coalesced collectives, all_gather_v
  // and reduce_scatter_v; 0 in other operations.
  uint64_t counts_hash = 0;
  char operation[40] = {};
  char label[88] = {};

  // Sets sequence to `number`, operation to `name` and `detail`, bytes to `count`, and label and
  // its hash to `about`. `detail` is what ranks must agree on besides the operation, for example
  // the wire type or the root.
  void set(uint64_t number, std::string_view name, std::string_view detail, uint64_t count,
           std::string_view about);
  // Returns a hash of everything that ranks must agree on.
  uint64_t digest() const;
};

// Returns "" if two ranks are about to perform the same operation, otherwise a line that names the
// operations of both.
std::string intents_differ(int rank, const Intent& mine, int other, const Intent& theirs);

}  // namespace ds
