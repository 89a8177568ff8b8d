#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

// Appends to the text in to[0..size), which stays a C string; returns its new length.
size_t put_text(char* to, size_t size, std::string_view text, size_t at = 0);

// What a rank says it is doing, before the first round of a collective. Texts are cut to fit.
struct Intent {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  uint64_t label_hash = 0;
  uint64_t counts_hash = 0;  // of the counts of each rank, where they differ by rank
  char operation[40] = {};
  char label[88] = {};

  // `detail` is what ranks must agree on besides the operation: the wire type, the root.
  void set(uint64_t number, std::string_view name, std::string_view detail, uint64_t count,
           std::string_view about);
  // A number of everything that ranks must agree on.
  uint64_t digest() const;
};

// "" when two ranks are about to do the same, else the line that says what each is doing.
std::string intents_differ(int rank, const Intent& mine, int other, const Intent& theirs);

}  // namespace ds
