// Datasets on disk and the samplers of streams of tokens. Samplers keep no state: every sample is
// computed from its index.
#include "data/dataset.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/base/round.h"
#include "core/config/refuse.h"
#include "data/data_files.h"
#include "data/permutation.h"

namespace ds {
namespace {

// Fills one sample whose text begins at token `begin`: its tokens and the token after each, or a
// masked row.
void fill_sample(const TokenSource& file, const Masking* masking, const RandomStream& stream,
                 int64_t begin, std::span<int32_t> tokens, std::span<int32_t> targets) {
  if (masking) return masking->fill(file, stream, begin, tokens, targets);
  file.copy(begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  file.copy(begin + static_cast<int64_t>(tokens.size()), targets.last(1));
}

// Returns the random stream for the masks of an epoch. Its leaf number differs from those of all
// micro-steps and parameters.
RandomStream mask_stream(uint64_t seed, int64_t epoch, DrawFor purpose) {
  constexpr uint32_t kLeaf = 1u << 31;
  return {seed, static_cast<uint32_t>(epoch), kLeaf | static_cast<uint32_t>(epoch >> 32),
          static_cast<uint32_t>(purpose)};
}

// Returns the number of text tokens in a sample of `sequence` tokens.
int64_t text_window(int64_t sequence, const Masking* masking) {
  int64_t frame = masking ? masking->frame() : 0;
  require(sequence > frame, "sequence must be above {}, the tokens around a sample's text, got {}",
          frame, sequence);
  return sequence - frame;
}

// Returns the tokens of a corpus text: each file is encoded by itself, and tokens that end a text
// follow each NUL-terminated file.
std::vector<int32_t> encode_files(const Tokenizer& tokenizer, std::string_view text, TextUse use) {
  std::vector<int32_t> tokens, between;
  if (use == TextUse::masked) between = tokenizer.frame().after;
  if (auto last = tokenizer.end_of_text(); last && between.empty()) between = {*last};
  tokens.reserve(text.size() / 4);
  while (!text.empty()) {
    size_t end = std::min(text.find('\0'), text.size());
    std::vector<int32_t> file = tokenizer.encode(text.substr(0, end), use == TextUse::next);
    tokens.insert(tokens.end(), file.begin(), file.end());
    if (end == text.size()) break;
    tokens.insert(tokens.end(), between.begin(), between.end());
    text.remove_prefix(end + 1);
  }
  return tokens;
}

}  // namespace

// Both files contain the hash of the corpus, by which open_dataset() recognizes a pair.
void prepare_dataset(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& folder,
                     TextUse use, const std::string& tokenizer_hash) {
  auto write = [&](const char* name, std::string_view text) {
    write_token_file(folder + name, encode_files(tokenizer, text, use), tokenizer.vocab(),
                     corpus.hash, tokenizer_hash);
  };
  write("/train.tokens", corpus.train);
  write("/heldout.tokens", corpus.heldout);
}

Dataset open_dataset(const std::string& folder) {
  auto train = std::make_shared<TokenFile>(folder + "/train.tokens", TokenFile::Read::whole);
  auto heldout = std::make_shared<TokenFile>(folder + "/heldout.tokens", TokenFile::Read::whole);
  if (train->corpus_hash() != heldout->corpus_hash()) {
    raise(DS_ERROR_CORRUPT, "{}: train.tokens was made from corpus {}, but heldout.tokens from {}",
          folder, train->corpus_hash(), heldout->corpus_hash());
  }
  return {TokenText(train), TokenText(heldout), train->corpus_hash()};
}

// The split runs over all files in order: the beginning is for training, so at most one file is
// cut.
Dataset open_token_files(const std::vector<std::string>& paths, double heldout,
                         const std::string& tokenizer_hash) {
  std::vector<std::shared_ptr<TokenFile>> files;
  Hash128 hash;
  int64_t all = 0;
  auto units = [](const TokenFile& file) {
    return file.documents() > 0 ? file.documents() : file.size();
  };
  const FoundFiles all_found = find_data_files(paths, nullptr, {{".tokens"}, {}});
  for (const DataFile& found : all_found.files) {
    files.push_back(std::make_shared<TokenFile>(found.path));
    const TokenFile& file = *files.back();
    // Ids of another tokenizer would be accepted silently if they were below the vocabulary.
    if (file.tokenizer_hash() != kNoHash && file.tokenizer_hash() != tokenizer_hash) {
      refuse("data.tokenizer", "{} was made by a tokenizer with hash {}, but data.tokenizer has {}",
             file.path(), file.tokenizer_hash(), tokenizer_hash);
    }
    hash.update(file.hash());
    all += units(file);
  }
  if (files.empty()) {
    refuse("data.paths", "hold no token file (*.tokens); the first path is '{}'{}", paths.at(0),
           left_out_text(all_found.left_out));
  }
  Dataset dataset;
  // Number of tokens or documents that training still gets.
  int64_t left = all - static_cast<int64_t>(static_cast<double>(all) * heldout);
  for (const std::shared_ptr<TokenFile>& file : files) {
    int64_t count = units(*file), train = std::min(count, left);
    if (train > 0) dataset.train.append(file, 0, train);
    if (train < count) dataset.heldout.append(file, train, count);
    left -= train;
  }
  dataset.corpus_hash = hash.hex();
  return dataset;
}

// A batch must not contain the same window twice, so an epoch must have at least batch_samples
// windows.
TrainSampler::TrainSampler(const TokenSource& file, int64_t sequence, uint64_t seed,
                           int64_t batch_samples, const Masking* masking)
    : file_(&file),
      masking_(masking),
      sequence_(sequence),
      window_(text_window(sequence, masking)),
      seed_(seed) {
  // One window fewer than would fit leaves room for the start offset, unless the text has only one
  // window.
  windows_ = std::max<int64_t>(file.size() / window_ - 1, file.size() > window_ ? 1 : 0);
  if (windows_ < std::max<int64_t>(batch_samples, 1)) {
    refuse(file.path(),
           "the training text has {} tokens, enough for {} samples of {} + 1, but one batch needs "
           "{} samples",
           file.size(), windows_, window_, batch_samples);
  }
}

int64_t TrainSampler::begin(int64_t sample) const {
  require(sample >= 0, "sample must not be negative, got {}", sample);
  int64_t epoch = sample / windows_;
  // The text that the windows leave over bounds the offset, so that the last window and its last
  // target are within the text.
  int64_t offsets = std::min(window_, file_->size() - windows_ * window_);
  auto offset =
      static_cast<int64_t>(draw(seed_, epoch, DrawFor::offset, 0) % static_cast<uint64_t>(offsets));
  return offset + permute(seed_, epoch, sample % windows_, windows_) * window_;
}

void TrainSampler::rows(int64_t first, int64_t count, const BatchRows& to) const {
  check_rows(to, count * sequence_);
  auto length = static_cast<size_t>(sequence_);
  for (int64_t i = 0; i < count; ++i) {
    const BatchRows row = to.part(static_cast<size_t>(i) * length, length);
    fill_sample(*file_, masking_, mask_stream(seed_, (first + i) / windows_, DrawFor::mask),
                begin(first + i), row.tokens, row.targets);
  }
  std::ranges::fill(to.counted, 1);
}

HeldoutSampler::HeldoutSampler(const TokenSource& file, int64_t sequence, const Masking* masking)
    : file_(&file),
      masking_(masking),
      sequence_(sequence),
      window_(text_window(sequence, masking)) {
  const int64_t least = masking ? window_ : 2;
  if (file.size() < least) {
    refuse(file.path(), "the held-out text has {} tokens, but one row needs {}", file.size(),
           least);
  }
}

// Without masking, the last token has no successor and therefore begins no row.
int64_t HeldoutSampler::rows() const {
  return masking_ ? ceil_div(file_->size(), window_) : ceil_div(file_->size() - 1, sequence_);
}

void HeldoutSampler::fill(int64_t row, size_t at, const BatchRows& to) const {
  require(row >= 0 && row < rows(), "row must be from 0 to {}, got {}", rows() - 1, row);
  const BatchRows whole = to.part(at, static_cast<size_t>(sequence_));
  if (masking_) {
    // The last window is moved back so that it is full.
    const int64_t own = row * window_, begin = std::min(own, file_->size() - window_);
    masking_->fill(*file_, mask_stream(0, 0, DrawFor::heldout_mask), begin, whole.tokens,
                   whole.targets);
    // Tokens that belong to an earlier row are not targets again.
    const auto again = whole.targets.first(masking_->before() + static_cast<size_t>(own - begin));
    std::ranges::fill(again, kNoTarget);
    std::ranges::fill(whole.counted, 1);
    return;
  }
  const int64_t begin = row * sequence_, count = std::min(sequence_, file_->size() - 1 - begin);
  const auto used = static_cast<size_t>(count);
  fill_sample(*file_, nullptr, {}, begin, whole.tokens.first(used), whole.targets.first(used));
  std::ranges::fill(whole.counted, 1);
  pad(used, whole.tokens.size() - used, {whole.tokens, whole.targets, {}, whole.counted});
}

}  // namespace ds
