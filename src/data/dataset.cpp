#include "data/dataset.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"

namespace ds {
namespace {

// What a draw is for: the `op` of its random stream.
enum : uint32_t { draw_offset = 1, draw_round = 2, draw_mask = 3, draw_heldout_mask = 4 };

uint64_t draw(uint64_t seed, int64_t epoch, uint32_t purpose, uint64_t index) {
  RandomStream stream{seed, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32), purpose};
  auto words = stream.block(index);
  return uint64_t{words[0]} << 32 | words[1];
}

// Image of `index` under the epoch's permutation of [0, count): a balanced Feistel network over the next even
// number of bits, walked until it lands in range (Black and Rogaway, "Ciphers with arbitrary finite domains",
// CT-RSA 2002). At most four walks are expected.
int64_t permute(uint64_t seed, int64_t epoch, int64_t index, int64_t count) {
  int half = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      uint64_t mixed = left ^ (draw(seed, epoch, draw_round, round << 40 | right) & mask);
      left = right;
      right = mixed;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

// One sample, whose text begins at token `begin`: its tokens and the token after each, or a masked row.
void fill_sample(const TokenFile& file, const Masking* masking, const RandomStream& stream, int64_t begin,
                 std::span<int32_t> tokens, std::span<int32_t> targets) {
  if (masking) return masking->fill(file, stream, begin, tokens, targets);
  file.copy(begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  file.copy(begin + static_cast<int64_t>(tokens.size()), targets.last(1));
}

// What an epoch's masks are drawn from. Its leaf is one that no micro-step and no parameter has.
RandomStream mask_stream(uint64_t seed, int64_t epoch, uint32_t purpose) {
  constexpr uint32_t kLeaf = 1u << 31;
  return {seed, static_cast<uint32_t>(epoch), kLeaf | static_cast<uint32_t>(epoch >> 32), purpose};
}

// Tokens of text in a sample of `sequence`.
int64_t text_window(int64_t sequence, const Masking* masking) {
  int64_t frame = masking ? masking->frame() : 0;
  require(sequence > frame, "sequence must be above {}, the tokens around a sample's text, got {}", frame,
          sequence);
  return sequence - frame;
}

void check_outputs(std::span<int32_t> tokens, std::span<int32_t> targets, int64_t wanted) {
  require(static_cast<int64_t>(tokens.size()) == wanted && static_cast<int64_t>(targets.size()) == wanted,
          "tokens and targets must hold {} elements each, got {} and {}", wanted, tokens.size(),
          targets.size());
}

// Tokens of a corpus text: those of each file by itself, and between files what ends a text.
std::vector<int32_t> encode_files(const Tokenizer& tokenizer, std::string_view text, TextUse use) {
  std::vector<int32_t> tokens, between;
  if (use == TextUse::masked) between = tokenizer.frame().after;
  if (auto last = tokenizer.end_of_text(); last && between.empty()) between = {*last};
  tokens.reserve(text.size() / 4);
  while (true) {
    size_t end = std::min(text.find('\0'), text.size());
    std::vector<int32_t> file = tokenizer.encode(text.substr(0, end), use == TextUse::next);
    tokens.insert(tokens.end(), file.begin(), file.end());
    if (end == text.size()) return tokens;
    tokens.insert(tokens.end(), between.begin(), between.end());
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void prepare_dataset(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& folder,
                     TextUse use) {
  write_token_file(folder + "/train.tokens", encode_files(tokenizer, corpus.train, use), tokenizer.vocab(),
                   corpus.hash);
  write_token_file(folder + "/heldout.tokens", encode_files(tokenizer, corpus.heldout, use),
                   tokenizer.vocab(), corpus.hash);
}

Dataset open_dataset(const std::string& folder) {
  Dataset dataset{TokenFile(folder + "/train.tokens"), TokenFile(folder + "/heldout.tokens")};
  if (dataset.train.corpus_hash() != dataset.heldout.corpus_hash()) {
    raise(DS_ERROR_CORRUPT, "{}: train.tokens is of corpus {}, heldout.tokens of {}", folder,
          dataset.train.corpus_hash(), dataset.heldout.corpus_hash());
  }
  return dataset;
}

TrainSampler::TrainSampler(const TokenFile& file, int64_t sequence, uint64_t seed, int64_t batch_samples,
                           const Masking* masking)
    : file_(&file),
      masking_(masking),
      sequence_(sequence),
      window_(text_window(sequence, masking)),
      seed_(seed) {
  // One window less than fit leaves room for the start offset; a text of one window has no choice.
  windows_ = std::max<int64_t>(file.size() / window_ - 1, file.size() > window_ ? 1 : 0);
  if (windows_ < std::max<int64_t>(batch_samples, 1)) {
    raise(DS_ERROR_CONFIG,
          "{}: the training text has {} tokens, {} samples of {} + 1, but one batch needs {} samples",
          KeyName(file.path()), file.size(), windows_, window_, batch_samples);
  }
}

int64_t TrainSampler::begin(int64_t sample) const {
  require(sample >= 0, "sample must not be negative, got {}", sample);
  int64_t epoch = sample / windows_;
  int64_t offsets = std::min(window_, file_->size() - windows_ * window_);
  auto offset = static_cast<int64_t>(draw(seed_, epoch, draw_offset, 0) % static_cast<uint64_t>(offsets));
  return offset + permute(seed_, epoch, sample % windows_, windows_) * window_;
}

void TrainSampler::leaf(int64_t step, int64_t leaves, int64_t leaf, int64_t micro_batch,
                        std::span<int32_t> tokens, std::span<int32_t> targets) const {
  require(leaf >= 0 && leaf < leaves, "leaf must be from 0 to {}, got {}", leaves - 1, leaf);
  check_outputs(tokens, targets, micro_batch * sequence_);
  auto length = static_cast<size_t>(sequence_);
  for (int64_t i = 0; i < micro_batch; ++i) {
    size_t at = static_cast<size_t>(i) * length;
    int64_t sample = (step * leaves + leaf) * micro_batch + i;
    fill_sample(*file_, masking_, mask_stream(seed_, sample / windows_, draw_mask), begin(sample),
                tokens.subspan(at, length), targets.subspan(at, length));
  }
}

HeldoutSampler::HeldoutSampler(const TokenFile& file, int64_t sequence, const Masking* masking)
    : file_(&file), masking_(masking), sequence_(sequence), window_(text_window(sequence, masking)) {
  if (file.size() < window_ + 1) {
    raise(DS_ERROR_CONFIG, "{}: the held-out text has {} tokens, but one window needs {}",
          KeyName(file.path()), file.size(), window_ + 1);
  }
}

int64_t HeldoutSampler::begin(int64_t window, int64_t total) const {
  require(window >= 0 && window < total, "window must be from 0 to {}, got {}", total - 1, window);
  return total == 1 ? 0 : window * (file_->size() - 1 - window_) / (total - 1);
}

void HeldoutSampler::windows(int64_t first, int64_t count, int64_t total, std::span<int32_t> tokens,
                             std::span<int32_t> targets) const {
  check_outputs(tokens, targets, count * sequence_);
  auto length = static_cast<size_t>(sequence_);
  for (int64_t i = 0; i < count; ++i) {
    size_t at = static_cast<size_t>(i) * length;
    fill_sample(*file_, masking_, mask_stream(0, 0, draw_heldout_mask), begin(first + i, total),
                tokens.subspan(at, length), targets.subspan(at, length));
  }
}

}  // namespace ds
