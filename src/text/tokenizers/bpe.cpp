// Byte pair encoding.
//
// Problem: a word of n characters must be joined in the order of ranks, not from left to right, and
// each merge creates new pairs. Algorithm: a short word keeps the rank of each adjacent pair in an
// array and scans it for the lowest before each merge, which is quadratic but needs no other data
// structure. A long word is a linked list with a heap of candidate pairs; outdated candidates are
// recognized when they leave the heap, so its time is O(n log n). Both choose the leftmost of equal
// ranks and therefore agree.
//
// Texts repeat words, so recent words and their tokens are cached. If no merge crosses the boundary
// before a space mark, words are cut there as well, so that even a text without a pre-tokenizer has
// words to cache. Source: Sennrich et al., "Neural machine translation of rare words with subword
// units", ACL 2016; the details (fallback to bytes, fused unknown tokens, affixes) are those of
// Hugging Face's `tokenizers`.
#include "text/tokenizers/bpe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <span>

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "text/tokenizers/pieces.h"
#include "text/tokenizers/section.h"

namespace ds::text {
namespace {

// The rank of a pair that no merge joins.
constexpr int32_t no_rank = std::numeric_limits<int32_t>::max();
// The largest number of symbols for which a scan for the lowest rank is faster than a heap.
constexpr size_t short_word = 48;

}  // namespace

// Recent words and their tokens. The hash of a word selects its entry, and a new word replaces the
// old one there. An entry fills one cache line.
class Bpe::Cache {
 public:
  std::mutex mutex;

  bool find(std::string_view word, std::vector<int32_t>& out) {
    last_ = nullptr;
    if (word.size() > sizeof Entry::word) return false;
    if (entries_.empty()) entries_.resize(1 << 15);
    last_ = &entries_[hash64(word) % entries_.size()];
    if (last_->bytes != word.size() || std::memcmp(last_->word, word.data(), word.size()) != 0)
      return false;
    out.insert(out.end(), last_->tokens, last_->tokens + last_->count);
    return true;
  }

  // Stores the tokens of the word that find() has just missed.
  void keep(std::string_view word, std::span<const int32_t> tokens) {
    if (!last_ || tokens.size() > std::size(last_->tokens)) return;
    last_->bytes = static_cast<uint8_t>(word.size());
    last_->count = static_cast<uint8_t>(tokens.size());
    std::memcpy(last_->word, word.data(), word.size());
    std::ranges::copy(tokens, last_->tokens);
  }

 private:
  struct alignas(64) Entry {
    int32_t tokens[8];
    // An unused entry has 0 bytes.
    uint8_t bytes = 0, count = 0;
    char word[30];
  };
  std::vector<Entry> entries_;
  Entry* last_ = nullptr;
};

struct Bpe::Scratch {
  // `before` and `after` are indices of neighbours, or -1; `token` is -1 once the symbol has been
  // joined to the previous one.
  struct Symbol {
    int32_t token, before, after;
  };
  struct Join {
    int32_t rank, at, token;
    bool operator>(const Join& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<int32_t> tokens, ranks;
  // Range of each of `tokens` in the word; empty unless traced.
  std::vector<Range> spans;
  bool traced = false;
  std::vector<Symbol> symbols;
  std::vector<Join> heap;
  // The token for unknown characters, if it still has to be added; the next character may extend
  // it.
  std::optional<int32_t> unknown;
  Range unknown_span;

  void add(int32_t token, Range span) {
    tokens.push_back(token);
    if (traced) spans.push_back(span);
  }
  void add_unknown() {
    if (unknown) add(*unknown, unknown_span);
    unknown.reset();
  }
};

// Dropout would make the encoding random, so a file that uses it is refused.
Bpe::Bpe(Section& section, bool spell_bytes)
    : WordModel(section), spell_bytes_(spell_bytes), cache_(new Cache) {
  if (section.find("dropout")) section.unsupported("dropout");
  prefix_ = section.text("continuing_subword_prefix", "");
  suffix_ = section.text("end_of_word_suffix", "");
  unknown_ = section.text("unk_token", "");
  byte_fallback_ = section.flag("byte_fallback", false);
  fuse_unknown_ = section.flag("fuse_unk", false);
  ignore_merges_ = section.flag("ignore_merges", false);
  if (!unknown_.empty() && find(unknown_) < 0) {
    raise(DS_ERROR_CORRUPT, "{}: '{}' is not in the vocabulary", section.path("unk_token"),
          unknown_);
  }
  read_merges(section);
  section.done();
  fill_byte_tokens();
}

Bpe::~Bpe() = default;

// A merge is "left right" or ["left", "right"]. Its rank is its index in the list.
void Bpe::read_merges(Section& section) {
  const Json::Array& list = section.array("merges");
  merges_ = PairTable(list.size());
  // If no merge crosses a space mark, words can be cut there and cached.
  cut_at_spaces_ = prefix_.empty() && suffix_.empty() && !ignore_merges_ && find(space_mark) >= 0;
  for (size_t rank = 0; rank < list.size(); ++rank) {
    auto where = [&] { return fmt::format("{}[{}]", section.path("merges"), rank); };
    std::string left, right;
    if (const Json& one = list[rank]; one.is_string()) {
      size_t space = one.string().find(' ');
      if (space == std::string::npos || one.string().find(' ', space + 1) != std::string::npos) {
        raise(DS_ERROR_CORRUPT, "{} must be two pieces with a space between them, got '{}'",
              where(), one.string());
      }
      left = one.string().substr(0, space);
      right = one.string().substr(space + 1);
    } else {
      if (!one.is_array() || one.array().size() != 2 || !one.array()[0].is_string() ||
          !one.array()[1].is_string()) {
        raise(DS_ERROR_CORRUPT, "{} must be a string or two strings, got {}", where(), one.dump());
      }
      left = one.array()[0].string();
      right = one.array()[1].string();
    }
    auto id_of = [&](const std::string& piece) {
      int32_t id = find(piece);
      if (id < 0) raise(DS_ERROR_CORRUPT, "{}: '{}' is not in the vocabulary", where(), piece);
      return id;
    };
    int32_t left_id = id_of(left), right_id = id_of(right);
    if (right.size() < prefix_.size())
      raise(DS_ERROR_CORRUPT, "{}: '{}' must begin with the prefix '{}'", where(), right, prefix_);
    merges_.set(left_id, right_id,
                {static_cast<int32_t>(rank), id_of(left + right.substr(prefix_.size()))});
    if (right.starts_with(space_mark) && !left.ends_with(space_mark)) cut_at_spaces_ = false;
  }
}

void Bpe::fill_byte_tokens() {
  for (size_t byte = 0; byte < 256; ++byte) {
    spelt_byte_[byte] = find(alphabet_.spelling(static_cast<uint8_t>(byte)));
    fallback_byte_[byte] = byte_fallback_ ? find(fmt::format("<0x{:02X}>", byte)) : -1;
  }
}

// Cuts words at space marks if that cannot change the result.
void Bpe::encode(const Pieces& words, std::vector<int32_t>& out,
                 std::vector<Range>* sources) const {
  Scratch scratch;
  scratch.traced = sources != nullptr;
  // One thread at a time uses the cache; other threads encode without it meanwhile. The cache has
  // no spans, so traced texts do not use it.
  std::unique_lock<std::mutex> lock(cache_->mutex, std::defer_lock);
  Cache* cache = !sources && lock.try_lock() ? cache_.get() : nullptr;
  auto encode = [&](Range word) {
    encode_word(words.view(word), scratch, cache, out);
    for (Range span : scratch.spans) {
      sources->push_back(words.source({word.begin + span.begin, word.begin + span.end}));
    }
  };
  for (Range word : words.ranges) {
    while (cut_at_spaces_ && word.begin < word.end) {
      std::string_view text = words.view(word);
      size_t end = 0;
      while (text.substr(end).starts_with(space_mark)) end += space_mark.size();
      end = word.begin + std::min(text.find(space_mark, end), text.size());
      encode({word.begin, end});
      word.begin = end;
    }
    if (word.begin < word.end) encode(word);
  }
}

// With ignore_merges, a word that is itself in the vocabulary is one token.
void Bpe::encode_word(std::string_view word, Scratch& scratch, Cache* cache,
                      std::vector<int32_t>& out) const {
  if (cache && cache->find(word, out)) return;
  size_t begin = out.size();
  scratch.spans.clear();
  int32_t whole =
      !ignore_merges_ ? -1 : find(spell_bytes_ ? alphabet_.spell(word) : std::string(word));
  if (whole >= 0) {
    out.push_back(whole);
    if (scratch.traced) scratch.spans.push_back({0, word.size()});
  } else {
    first_tokens(word, scratch);
    if (scratch.tokens.size() <= short_word) {
      join_short(scratch);
    } else {
      join_long(scratch);
    }
    out.insert(out.end(), scratch.tokens.begin(), scratch.tokens.end());
  }
  if (cache) cache->keep(word, std::span(out).subspan(begin));
}

// Turns the characters of a word into tokens.
void Bpe::first_tokens(std::string_view word, Scratch& scratch) const {
  scratch.tokens.clear();
  scratch.unknown.reset();
  bool plain = prefix_.empty() && suffix_.empty();
  if (spell_bytes_) {
    for (size_t at = 0; at < word.size(); ++at) {
      auto byte = static_cast<uint8_t>(word[at]);
      if (!plain) {
        add_character(affixed(alphabet_.spelling(byte), at == 0, at + 1 == word.size()),
                      {at, at + 1}, scratch);
      } else if (spelt_byte_[byte] >= 0 && !scratch.unknown) {
        scratch.add(spelt_byte_[byte], {at, at + 1});
      } else {
        add_character(alphabet_.spelling(byte), {at, at + 1}, scratch);
      }
    }
  } else {
    for (size_t at = 0, next; at < word.size(); at = next) {
      next = at + std::max<size_t>(1, utf8_sequence(word.substr(at)));
      std::string_view character = word.substr(at, next - at);
      if (plain) {
        add_character(character, {at, next}, scratch);
      } else {
        add_character(affixed(character, at == 0, next == word.size()), {at, next}, scratch);
      }
    }
  }
  scratch.add_unknown();
}

// Some vocabularies spell the characters inside a word with a prefix and the last one with a
// suffix.
std::string Bpe::affixed(std::string_view character, bool first, bool last) const {
  std::string out = first ? "" : prefix_;
  out += character;
  if (last) out += suffix_;
  return out;
}

// Adds a character. A character outside the vocabulary becomes the tokens of its bytes if each byte
// has one, otherwise the unknown token, once for a whole run of such characters if these are fused.
// Without an unknown token the character is dropped.
void Bpe::add_character(std::string_view text, Range span, Scratch& scratch) const {
  if (int32_t id = find(text); id >= 0) {
    scratch.add_unknown();
    scratch.add(id, span);
    return;
  }
  auto token_of = [&](char c) { return fallback_byte_[static_cast<uint8_t>(c)]; };
  if (byte_fallback_ && std::ranges::all_of(text, [&](char c) { return token_of(c) >= 0; })) {
    for (char c : text) scratch.add(token_of(c), span);
    return;
  }
  if (unknown_.empty()) return;
  bool fused = scratch.unknown && fuse_unknown_;
  if (!fused) scratch.add_unknown();
  scratch.unknown_span = {fused ? scratch.unknown_span.begin : span.begin, span.end};
  scratch.unknown = find(unknown_);
}

// ranks[i] belongs to the pair at i. A merge changes only the ranks of the pairs on its two sides.
void Bpe::join_short(Scratch& scratch) const {
  std::vector<int32_t>&tokens = scratch.tokens, &ranks = scratch.ranks;
  auto rank_at = [&](size_t i) {
    const PairTable::Merge* merge = merges_.find(tokens[i], tokens[i + 1]);
    return merge ? merge->rank : no_rank;
  };
  ranks.clear();
  for (size_t i = 0; i + 1 < tokens.size(); ++i) ranks.push_back(rank_at(i));
  while (!ranks.empty()) {
    auto lowest = std::ranges::min_element(ranks);
    if (*lowest == no_rank) return;
    auto at = static_cast<size_t>(lowest - ranks.begin());
    tokens[at] = merges_.find(tokens[at], tokens[at + 1])->token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    if (scratch.traced) {
      scratch.spans[at].end = scratch.spans[at + 1].end;
      scratch.spans.erase(scratch.spans.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    ranks.erase(lowest);
    if (at < ranks.size()) ranks[at] = rank_at(at);
    if (at > 0) ranks[at - 1] = rank_at(at - 1);
  }
}

// Symbols form a linked list, so that a merge is O(1). Candidates in the heap may be outdated, so
// each is checked when it leaves the heap.
void Bpe::join_long(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<Scratch::Join>& heap = scratch.heap;
  auto count = static_cast<int32_t>(scratch.tokens.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch.tokens[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  auto index = [](int32_t i) { return static_cast<size_t>(i); };
  auto at = [&](int32_t i) -> Scratch::Symbol& { return symbols[index(i)]; };
  // Adds the pair that begins at i to the heap.
  auto candidate = [&](int32_t i) {
    if (i < 0 || at(i).after < 0) return;
    const PairTable::Merge* merge = merges_.find(at(i).token, at(at(i).after).token);
    if (merge) heap.push_back({merge->rank, i, merge->token});
  };
  for (int32_t i = 0; i < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  auto push = [&](int32_t i) {
    size_t before = heap.size();
    candidate(i);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    Scratch::Join best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = at(best.at);
    if (left.token < 0 || left.after < 0) continue;
    Scratch::Symbol& right = at(left.after);
    const PairTable::Merge* merge = merges_.find(left.token, right.token);
    // The left or the right symbol has been joined with another one meanwhile.
    if (!merge || merge->token != best.token) continue;
    left.token = best.token;
    if (scratch.traced) scratch.spans[index(best.at)].end = scratch.spans[index(left.after)].end;
    left.after = right.after;
    right.token = -1;
    if (left.after >= 0) at(left.after).before = best.at;
    push(left.before);
    push(best.at);
  }
  size_t kept = 0;
  for (int32_t i = 0; i >= 0 && count > 0; i = at(i).after, ++kept) {
    scratch.tokens[kept] = at(i).token;
    if (scratch.traced) scratch.spans[kept] = scratch.spans[index(i)];
  }
  scratch.tokens.resize(kept);
  if (scratch.traced) scratch.spans.resize(kept);
}

}  // namespace ds::text
