#include "run/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "checkpoint/run_paths.h"
#include "core/base/error.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/gzip.h"
#include "data/jsonl.h"
#include "data/masking.h"
#include "data/token_file.h"
#include "data/token_text.h"
#include "data/tokenizers/bpe_learner.h"
#include "io/file.h"

namespace ds {
namespace {

// Held-out text above this is not compressed for its figure: a second takes about 10 MB.
constexpr size_t kMostCompressed = size_t{64} << 20;

// Every token of the text must be one that the model has a row for.
void check_vocabulary(const TokenText& text, int64_t vocabulary, const Config& config) {
  if (vocabulary >= text.vocab() || (text.largest() >= 0 && text.largest() < vocabulary)) return;
  std::vector<int32_t> block(1 << 16);
  for (int64_t at = 0; at < text.size(); at += static_cast<int64_t>(block.size())) {
    auto count = static_cast<size_t>(std::min(text.size() - at, static_cast<int64_t>(block.size())));
    text.copy(at, std::span(block).first(count));
    int32_t largest = *std::max_element(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
    if (largest < vocabulary) continue;
    raise(DS_ERROR_CONFIG, "{}: {} is too small for the text, which has token {}; {} needs {}",
          KeyName("model.vocab"), vocabulary, largest, config.data.tokenizer, text.vocab());
  }
}

int32_t mask_token(const Config& config, const Tokenizer& tokenizer) {
  if (config.data.mask_token >= 0) return static_cast<int32_t>(config.data.mask_token);
  if (auto token = tokenizer.mask_token()) return *token;
  raise(DS_ERROR_CONFIG,
        "{}: missing; the model predicts masked tokens, and tokenizer '{}' names no mask token",
        KeyName("data.mask_token"), tokenizer.name());
}

// The tokenizer that data.tokenizer names; null for one that is to be learned.
std::unique_ptr<const Tokenizer> chosen_tokenizer(const Config& config, int64_t vocabulary, TextUse use) {
  if (config.data.tokenizer != kLearnTokenizer) {
    auto tokenizer = open_tokenizer(config.data.tokenizer);
    if (use == TextUse::masked) mask_token(config, *tokenizer);
    return tokenizer;
  }
  if (use == TextUse::masked) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" learns no mask token, which a model that predicts masked tokens needs",
          KeyName("data.tokenizer"), kLearnTokenizer);
  }
  if (vocabulary < kLeastLearned) {
    raise(DS_ERROR_CONFIG,
          "{}: data.tokenizer \"{}\" needs at least {}, for the bytes and the end of a text, got {}",
          KeyName("model.vocab"), kLearnTokenizer, kLeastLearned, vocabulary);
  }
  return nullptr;
}

Masking masking_of(const Config& config, const Tokenizer& tokenizer, int64_t vocabulary) {
  const DataConfig& data = config.data;
  Tokenizer::Frame frame = tokenizer.frame();
  MaskingOptions out{data.mlm_probability,
                     data.mask_replace_prob,
                     data.random_replace_prob,
                     mask_token(config, tokenizer),
                     0,
                     frame.before,
                     frame.after,
                     {}};
  out.vocabulary = std::min(vocabulary, tokenizer.vocab());
  for (int32_t token = 0; token < out.vocabulary; ++token) {
    if (tokenizer.is_special(token)) out.special.push_back(token);
  }
  out.special.push_back(out.mask_token);
  if (out.mask_token >= vocabulary) {
    raise(DS_ERROR_CONFIG, "{}: the model has tokens 0 to {}, got {}{}", KeyName("data.mask_token"),
          vocabulary - 1, out.mask_token,
          data.mask_token >= 0 ? "" : " from tokenizer '" + tokenizer.name() + "'");
  }
  for (const std::vector<int32_t>* part : {&frame.before, &frame.after}) {
    for (int32_t token : *part) {
      if (token < vocabulary) continue;
      raise(DS_ERROR_CONFIG, "{}: '{}' puts token {} around a text, but the model has 0 to {}",
            KeyName("data.tokenizer"), tokenizer.name(), token, vocabulary - 1);
    }
  }
  auto around = static_cast<int64_t>(frame.before.size() + frame.after.size());
  if (config.sequence <= around) {
    raise(DS_ERROR_CONFIG, "{}: must be above {}, the tokens that '{}' puts around a text, got {}",
          KeyName("run.sequence"), around, tokenizer.name(), config.sequence);
  }
  return Masking(std::move(out));
}

}  // namespace

RunData::RunData(const Config& config, int64_t vocabulary, TextUse use, int rank, int world,
                 const std::string& folder, BatchCallback batch)
    : rank_(rank),
      world_(world),
      micro_batch_(config.micro_batch),
      accumulation_(config.accumulation),
      sequence_(config.sequence),
      curriculum_(config.curriculum),
      documents_(config.model.documents),
      isolated_(config.data.packing == "isolated"),
      folder_(folder),
      batch_(std::move(batch)) {
  baselines_.unigram = baselines_.bigram = std::numeric_limits<double>::quiet_NaN();
  if (batch_ && isolated_) {
    raise(DS_ERROR_CONFIG, "{}: \"isolated\" is for text; batches of a function have no documents",
          KeyName("data.packing"));
  }
  if (batch_ && config.dynamic_batching.enabled) {
    raise(DS_ERROR_CONFIG, "{}: true is for documents of files; a function brings its own batches",
          KeyName("data_efficiency.data_sampling.dynamic_batching.enabled"));
  }
  if (batch_) return;
  std::string tokenizer = run_tokenizer(folder, config.data.tokenizer);
  tokenizer_ = open_tokenizer(tokenizer);
  dataset_ = config.data.format == "tokens"
                 ? open_token_files(config.data.paths, config.data.heldout, tokenizer_hash(tokenizer))
                 : open_dataset(folder);
  hash_ = dataset_.corpus_hash;
  for (const TokenText* text : {&dataset_.train, &dataset_.heldout}) {
    check_vocabulary(*text, vocabulary, config);
  }
  open_samplers(config, vocabulary, use);
}

void RunData::open_samplers(const Config& config, int64_t vocabulary, TextUse use) {
  int64_t batch = micro_batch_ * accumulation_ * world_;
  if (dataset_.train.of_documents() || config.data.format == "jsonl") {
    if (use == TextUse::masked) {
      raise(DS_ERROR_CONFIG,
            "{}: documents are for a model that predicts the next token; this one predicts masked "
            "tokens",
            KeyName("data.format"));
    }
    bool packing = config.data.packing != "none";
    const DynamicBatchingConfig& dynamic = config.dynamic_batching;
    if (dynamic.enabled) packing = false;
    train_documents_.emplace(dataset_.train, sequence_, packing, config.run.seed, batch);
    if (dynamic.enabled) open_dynamic(dynamic, batch);
    if (dataset_.heldout.documents() > 0) {
      heldout_documents_.emplace(dataset_.heldout, sequence_, packing, config.run.seed, 0);
      if (heldout_documents_->epoch_samples() == 0) heldout_documents_.reset();
    }
    return;
  }
  if (use == TextUse::masked) masking_.emplace(masking_of(config, *tokenizer_, vocabulary));
  if (config.dynamic_batching.enabled) {
    raise(DS_ERROR_CONFIG, "{}: true needs token files of documents, these hold a stream",
          KeyName("data_efficiency.data_sampling.dynamic_batching.enabled"));
  }
  if (isolated_) {
    std::optional<int32_t> last = tokenizer_->end_of_text();
    if (!last) {
      raise(DS_ERROR_CONFIG, "{}: \"isolated\" needs a token that ends a text, tokenizer '{}' names none",
            KeyName("data.packing"), tokenizer_->name());
    }
    separator_ = *last;
  }
  const Masking* masking = masking_ ? &*masking_ : nullptr;
  train_.emplace(dataset_.train, sequence_, config.run.seed, batch, masking);
  int64_t window = sequence_ - (masking ? masking->frame() : 0);
  if (dataset_.heldout.size() <= window) return;  // nothing to evaluate on
  heldout_.emplace(dataset_.heldout, sequence_, masking);
  if (masking || dataset_.train.vocab() > kBaselineVocab || config.data.format != "text") return;
  baselines_ = measure_baselines(dataset_.train, dataset_.heldout);
}

bool RunData::fill(int64_t step, int32_t micro, std::span<int32_t> tokens, std::span<int32_t> targets,
                   std::span<int32_t> begins) const {
  if (batch_) {
    if (!begins.empty()) find_documents(-1, sequence_, tokens, targets, begins);
    return batch_(step, micro, tokens, targets);
  }
  int64_t leaves = accumulation_ * world_, leaf = int64_t{micro} * world_ + rank_;
  if (dynamic_) {
    fill_dynamic(step, leaf, tokens, targets, begins);
    return true;
  }
  if (train_documents_) {
    train_documents_->leaf(step, leaves, leaf, micro_batch_, tokens, targets, begins);
  } else {
    train_->leaf(step, leaves, leaf, micro_batch_, tokens, targets);
    if (!begins.empty()) find_documents(separator_, sequence_, tokens, targets, begins);
  }
  if (!curriculum_.enabled) return true;
  int64_t length = curriculum_difficulty(curriculum_, step);
  if (!begins.empty()) {
    shorten(length, tokens, targets, begins);
    return true;
  }
  for (int64_t row = 0; row < micro_batch_; ++row) {
    std::span<int32_t> all =
        targets.subspan(static_cast<size_t>(row * sequence_), static_cast<size_t>(sequence_));
    std::fill(all.begin() + length, all.end(), kNoTarget);
  }
  return true;
}

void RunData::open_dynamic(const DynamicBatchingConfig& dynamic, int64_t batch) {
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < train_documents_->epoch_samples(); ++row) {
    lengths.push_back(train_documents_->length(row));
  }
  dynamic_.emplace(lengths, DynamicBatchOptions{dynamic.max_tokens, dynamic.min_batch, dynamic.max_batch,
                                                dynamic.order, dynamic.seed, batch});
  lr_scaling_ = dynamic.lr_scaling;
  if (dynamic_->batches() > 0) return;
  raise(
      DS_ERROR_CONFIG,
      "{}: {} samples fill no step of {} groups of at most {} tokens and at least min_batch_size {} samples",
      KeyName("data_efficiency.data_sampling.dynamic_batching.max_tokens"), lengths.size(), batch,
      dynamic.max_tokens, dynamic.min_batch);
}

// A step's micro-batches are as long as the longest of all ranks, so that products, and with them bits, do
// not depend on how many ranks there are. What is left is padding: documents of one token without a target.
int64_t RunData::tokens_of(int64_t step) const {
  if (dynamic_) {
    int64_t most = 0, batch = step % dynamic_->batches();
    for (int64_t leaf = 0; leaf < accumulation_ * world_; ++leaf) {
      int64_t sum = 0;
      for (int64_t i = 0; i < micro_batch_; ++i) {
        for (int64_t row : dynamic_->group(batch, leaf * micro_batch_ + i))
          sum += train_documents_->length(row);
      }
      most = std::max(most, sum);
    }
    return most;
  }
  bool shorter = curriculum_.enabled && !batch_ && documents_;
  return micro_batch_ * (shorter ? curriculum_difficulty(curriculum_, step) : sequence_);
}

double RunData::lr_factor(int64_t step) const {
  if (!dynamic_) return 1;
  int64_t base = micro_batch_ * accumulation_ * world_;
  return ds::lr_factor(lr_scaling_, dynamic_->documents(step % dynamic_->batches()), base);
}

void RunData::fill_dynamic(int64_t step, int64_t leaf, std::span<int32_t> tokens, std::span<int32_t> targets,
                           std::span<int32_t> begins) const {
  auto count = static_cast<std::ptrdiff_t>(tokens_of(step));
  std::fill_n(tokens.begin(), count, 0);
  std::fill_n(targets.begin(), count, kNoTarget);
  std::iota(begins.begin(), begins.begin() + count, 0);
  size_t at = 0;
  for (int64_t i = 0; i < micro_batch_; ++i) {
    for (int64_t row : dynamic_->group(step % dynamic_->batches(), leaf * micro_batch_ + i)) {
      train_documents_->place(row, at, tokens, targets, begins);
      at += static_cast<size_t>(train_documents_->length(row));
    }
  }
}

// The first `length` tokens of each row, one row behind the other.
void RunData::shorten(int64_t length, std::span<int32_t> tokens, std::span<int32_t> targets,
                      std::span<int32_t> begins) const {
  for (int64_t row = 0; row < micro_batch_; ++row) {
    auto from = static_cast<size_t>(row * sequence_), to = static_cast<size_t>(row * length);
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      tokens[to + i] = tokens[from + i];
      targets[to + i] = targets[from + i];
      begins[to + i] = begins[from + i] - static_cast<int32_t>(from - to);
    }
  }
}

void RunData::fill_heldout(int64_t index, int64_t batches, std::span<int32_t> tokens,
                           std::span<int32_t> targets, std::span<int32_t> begins) const {
  int64_t first = (index * world_ + rank_) * micro_batch_, total = batches * world_ * micro_batch_;
  if (heldout_documents_) {
    return heldout_documents_->windows(first, micro_batch_, total, tokens, targets, begins);
  }
  heldout_->windows(first, micro_batch_, total, tokens, targets);
  if (!begins.empty()) find_documents(separator_, sequence_, tokens, targets, begins);
}

std::string RunData::rows() const {
  if (!train_documents_) return "";
  if (dynamic_) {
    return fmt::format("{} documents in {} steps; {} pieces of documents are in none",
                       dataset_.train.documents(), dynamic_->batches(), dynamic_->left_out());
  }
  return fmt::format("{} documents in {} samples of {} tokens; {} documents have no target within a sample",
                     dataset_.train.documents(), train_documents_->epoch_samples(), sequence_,
                     train_documents_->left_out());
}

Json RunData::record() const {
  Json out;
  out.set("corpus", hash_);
  if (batch_) return out;
  out.set("train.tokens", dataset_.train.hash());
  out.set("heldout.tokens", dataset_.heldout.hash());
  return out;
}

void RunData::check_record(const Json& saved, const std::string& where) const {
  if (!saved.is_object()) return;
  const Json own = record();
  for (const auto& [name, hash] : own.object()) {
    const Json* recorded = saved.find(name);
    if (!recorded || !recorded->is_string() || recorded->string() == hash.string()) continue;
    std::string text_name = name == "corpus" ? "the text of this run" : "'" + folder_ + "/" + name + "'";
    raise(DS_ERROR_CORRUPT, "{} has hash {}, but {} says {}: a run goes on with the text that it began with",
          text_name, hash.string(), where, recorded->string());
  }
}

void RunData::check_files() {
  if (batch_) return;
  dataset_.train.check();
  dataset_.heldout.check();
}

std::vector<int32_t> RunData::prompt(int64_t tokens) const {
  if (batch_ || masking_) return {};
  const TokenText& text = dataset_.heldout.size() > 0 ? dataset_.heldout : dataset_.train;
  int64_t most = text.of_documents() ? text.ends()[0].end : text.size();
  std::vector<int32_t> out(static_cast<size_t>(std::min(tokens, most)));
  std::vector<uint8_t> targets(out.size());
  text.copy(0, out, targets);
  // Of a conversation, what comes before the first answer.
  auto answer = std::find(targets.begin(), targets.end(), 1);
  if (text.of_documents() && answer != targets.begin())
    out.resize(static_cast<size_t>(answer - targets.begin()));
  return out;
}

void TextFacts::keep(Json& record) const {
  if (heldout_bytes > 0) record.set("heldout.bytes", heldout_bytes);
  if (gzip_bytes > 0) record.set("heldout.gzip", gzip_bytes);
}

TextFacts TextFacts::kept(const Json& record) {
  TextFacts out;
  auto read = [&](const char* name, int64_t& value) {
    const Json* found = record.is_object() ? record.find(name) : nullptr;
    if (found && found->is_integer()) value = std::max<int64_t>(found->integer(), 0);
  };
  read("heldout.bytes", out.heldout_bytes);
  read("heldout.gzip", out.gzip_bytes);
  return out;
}

static void copy_tokenizer(const std::string& name, const std::string& folder) {
  std::vector<TokenizerFile> files = tokenizer_files(name);
  if (files.empty()) return;
  make_folders(folder);
  for (const TokenizerFile& file : files) write_file_atomic(folder + "/" + file.name, read_file(file.path));
}

static TextFacts prepare_jsonl(const Config& config, const Tokenizer& tokenizer, const std::string& folder,
                               const volatile int32_t* stop) {
  const DataConfig& data = config.data;
  ChatEncoder encoder(tokenizer, data.tokenizer, data.chat_template, data.loss_on == "all");
  TokenWriter::Options format{tokenizer.vocab(), tokenizer_hash(data.tokenizer), true, data.loss_on != "all"};
  JsonlFacts facts = write_jsonl_documents({data.paths, data.heldout, stop}, encoder, format,
                                           folder + "/train.tokens", folder + "/heldout.tokens");
  return {describe(facts), 0, 0};
}

TextFacts prepare_run_data(const Config& config, int64_t vocabulary, TextUse use, const std::string& folder,
                           const volatile int32_t* stop) {
  const DataConfig& data = config.data;
  if (data.paths.empty())
    raise(DS_ERROR_CONFIG, "{} must name files or folders of text, got none", KeyName("data.paths"));
  // First what refuses a tokenizer: reading the text takes longer.
  std::unique_ptr<const Tokenizer> tokenizer = chosen_tokenizer(config, vocabulary, use);
  make_folders(folder);
  if (data.format != "text") {
    copy_tokenizer(data.tokenizer, folder + "/tokenizer");
    return data.format == "jsonl" ? prepare_jsonl(config, *tokenizer, folder, stop) : TextFacts();
  }
  Corpus corpus = read_corpus({data.paths, data.heldout, data.max_bytes, data.strip_licences, stop});
  TextFacts facts{describe(corpus), static_cast<int64_t>(corpus.heldout.size()), 0};
  if (corpus.heldout.size() <= kMostCompressed) facts.gzip_bytes = gzip_bytes(corpus.heldout);
  if (!tokenizer) {
    make_folders(folder + "/tokenizer");
    facts.lines += "\n" + learn_tokenizer(corpus.train, vocabulary, folder + "/tokenizer", stop);
    tokenizer = open_tokenizer(folder + "/tokenizer");
  } else {
    copy_tokenizer(data.tokenizer, folder + "/tokenizer");
  }
  prepare_dataset(corpus, *tokenizer, folder, use, tokenizer_hash(run_tokenizer(folder, data.tokenizer)));
  return facts;
}

}  // namespace ds
