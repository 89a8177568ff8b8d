// Supplies the batches of a run.
//
// Invariant. The samples of a step depend only on the configuration and on how many samples were
// used before, never on the number of ranks or on how leaves are distributed among them. Leaf
// `micro * world + rank` of a step has the micro_batch samples from first_of(leaf) on, so ranks
// read disjoint samples without communicating, and a checkpoint needs only two numbers to continue.
#include "run/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <span>

#include "checkpoint/run_paths.h"
#include "core/base/error.h"
#include "core/config/refuse.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/gzip.h"
#include "data/jsonl.h"
#include "data/keys.h"
#include "data/masking.h"
#include "data/preference.h"
#include "data/token_file.h"
#include "data/token_text.h"
#include "io/file.h"
#include "io/gguf_tokenizer.h"

namespace ds {
namespace {

// Held-out text above this size is not compressed to compute the gzip baseline, because gzip
// compresses only about 10 MB a second.
constexpr size_t kMostCompressed = size_t{64} << 20;

// Throws unless the model's vocabulary covers every token of the text. All tokens are read only if
// neither the tokenizer's vocabulary nor the file's largest token decides the question.
void check_vocabulary(const TokenText& text, int64_t vocabulary, const std::string& tokenizer) {
  if (vocabulary >= text.vocab() || (text.largest() >= 0 && text.largest() < vocabulary)) return;
  std::vector<int32_t> block(1 << 16);
  for (int64_t at = 0; at < text.size(); at += static_cast<int64_t>(block.size())) {
    auto count =
        static_cast<size_t>(std::min(text.size() - at, static_cast<int64_t>(block.size())));
    text.copy(at, std::span(block).first(count));
    int32_t largest =
        *std::max_element(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
    if (largest < vocabulary) continue;
    refuse("model.vocab", "{} is too small for the text, which has token {}; {} needs {}",
           vocabulary, largest, tokenizer, text.vocab());
  }
}

// Returns the mask token of the configuration or, if it sets none, of the tokenizer; throws if
// neither has one.
int32_t mask_token(const DataKeys& data, const Tokenizer& tokenizer) {
  if (data.mask_token >= 0) return static_cast<int32_t>(data.mask_token);
  if (auto token = tokenizer.mask_token()) return *token;
  refuse("data.mask_token",
         "missing; the model predicts masked tokens, and tokenizer '{}' names no mask token",
         tokenizer.name());
}

// Opens the tokenizer that data.tokenizer names; returns null if a tokenizer is to be learned.
std::unique_ptr<const Tokenizer> chosen_tokenizer(const DataKeys& data, int64_t vocabulary,
                                                  TextUse use) {
  if (data.tokenizer != kLearnTokenizer) {
    auto tokenizer = open_tokenizer(data.tokenizer);
    if (use == TextUse::masked) mask_token(data, *tokenizer);
    return tokenizer;
  }
  if (use == TextUse::masked) {
    refuse("data.tokenizer",
           "\"{}\" learns no mask token, which a model that predicts masked tokens needs",
           kLearnTokenizer);
  }
  if (vocabulary < least_learned()) {
    refuse("model.vocab",
           "data.tokenizer \"{}\" needs at least {}, for the bytes and the end of a text, got {}",
           kLearnTokenizer, least_learned(), vocabulary);
  }
  return nullptr;
}

// Returns the masking that the configuration describes. Throws if it needs a token that the model
// lacks, or if sequences are too short.
Masking masking_of(const DataKeys& data, int64_t sequence, const Tokenizer& tokenizer,
                   int64_t vocabulary) {
  Tokenizer::Frame frame = tokenizer.frame();
  MaskingOptions out{data.mlm_probability,
                     data.mask_replace_prob,
                     data.random_replace_prob,
                     mask_token(data, tokenizer),
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
    refuse("data.mask_token", "the model has tokens 0 to {}, got {}{}", vocabulary - 1,
           out.mask_token,
           data.mask_token >= 0 ? "" : " from tokenizer '" + tokenizer.name() + "'");
  }
  for (const std::vector<int32_t>* part : {&frame.before, &frame.after}) {
    for (int32_t token : *part) {
      if (token < vocabulary) continue;
      refuse("data.tokenizer", "'{}' puts token {} around a text, but the model has 0 to {}",
             tokenizer.name(), token, vocabulary - 1);
    }
  }
  auto around = static_cast<int64_t>(frame.before.size() + frame.after.size());
  if (sequence <= around) {
    refuse("run.sequence", "must be above {}, the tokens that '{}' puts around a text, got {}",
           around, tokenizer.name(), sequence);
  }
  return Masking(std::move(out));
}

// Returns how documents share a row. With dynamic batching, each row must hold one document.
Packing packing_of(const Config& config) {
  if (config.get<DynamicBatchingKeys>().enabled) return Packing::none;
  const std::string& packing = config.get<DataKeys>().packing;
  return packing == "isolated" ? Packing::isolated
         : packing == "joined" ? Packing::joined
                               : Packing::none;
}

}  // namespace

RunData::RunData(const Config& config, int64_t vocabulary, TextUse use, int rank, int world,
                 const std::string& folder, BatchCallback batch)
    : rank_(rank),
      world_(world),
      micro_batch_(config.micro_batch),
      accumulation_(config.accumulation),
      sequence_(config.sequence),
      batch_samples_(micro_batch_ * accumulation_ * world),
      texts_(config.get<PreferenceKeys>().texts()),
      curriculum_(config.get<CurriculumKeys>()),
      documents_(config.model.documents),
      packing_(packing_of(config)),
      folder_(folder),
      batch_(std::move(batch)) {
  baselines_.unigram = baselines_.bigram = std::numeric_limits<double>::quiet_NaN();
  const DataKeys& data = config.get<DataKeys>();
  if (batch_ && data.packing == "isolated") {
    refuse("data.packing",
           "\"isolated\" works only with text; the batches of a function have no documents");
  }
  if (batch_ && config.get<DynamicBatchingKeys>().enabled) {
    refuse("data_efficiency.data_sampling.dynamic_batching.enabled",
           "true works only with documents from files; this run gets its batches from a function");
  }
  if (batch_ && texts_ > 1) {
    refuse("preference.loss_type",
           "\"{}\" works only with pairs from files; this run gets its batches from a function",
           config.get<PreferenceKeys>().loss_type);
  }
  if (batch_) return;
  std::string tokenizer = run_tokenizer(folder, data.tokenizer);
  tokenizer_ = open_tokenizer(tokenizer);
  dataset_ = data.format == "tokens"
                 ? open_token_files(data.paths, data.heldout, tokenizer_hash(tokenizer))
                 : open_dataset(folder);
  hash_ = dataset_.corpus_hash;
  for (const TokenText* text : {&dataset_.train, &dataset_.heldout}) {
    check_vocabulary(*text, vocabulary, data.tokenizer);
  }
  open_samplers(config, vocabulary, use);
}

// Opens the samplers for the kind of text: documents in rows or in groups, a masked stream, or a
// stream.
void RunData::open_samplers(const Config& config, int64_t vocabulary, TextUse use) {
  const std::string& format = config.get<DataKeys>().format;
  const DynamicBatchingKeys& dynamic = config.get<DynamicBatchingKeys>();
  if (dataset_.train.of_documents() || format == "jsonl") {
    if (use == TextUse::masked) {
      refuse("data.format",
             "documents need a model that predicts the next token, but this model predicts masked "
             "tokens");
    }
    train_documents_.emplace(dataset_.train, sequence_, packing_, config.seed,
                             dynamic.enabled ? 0 : batch_samples_, texts_);
    if (dynamic.enabled) open_dynamic(dynamic);
    if (dataset_.heldout.documents() > 0) {
      heldout_documents_.emplace(dataset_.heldout, sequence_, packing_, config.seed, 0, texts_);
      if (heldout_documents_->epoch_samples() == 0) heldout_documents_.reset();
    }
    return;
  }
  if (use == TextUse::masked)
    masking_.emplace(masking_of(config.get<DataKeys>(), sequence_, *tokenizer_, vocabulary));
  if (dynamic.enabled) {
    refuse("data_efficiency.data_sampling.dynamic_batching.enabled",
           "true needs token files of documents, but these hold a stream");
  }
  if (packing_ == Packing::isolated) {
    std::optional<int32_t> last = tokenizer_->end_of_text();
    if (!last) {
      refuse("data.packing",
             "\"isolated\" needs a token that ends a text, but tokenizer '{}' names none",
             tokenizer_->name());
    }
    separator_ = *last;
  }
  const Masking* masking = masking_ ? &*masking_ : nullptr;
  train_.emplace(dataset_.train, sequence_, config.seed, batch_samples_, masking);
  // A held-out text this short has no target to evaluate or, with masking, does not fill a row.
  if (dataset_.heldout.size() < (masking ? sequence_ - masking->frame() : 2)) return;
  heldout_.emplace(dataset_.heldout, sequence_, masking);
  if (masking || dataset_.train.vocab() > kBaselineVocab || format != "text") return;
  baselines_ = measure_baselines(dataset_.train, dataset_.heldout, separator_);
}

// Fills the samples, then finds the documents of a stream, then shortens rows or removes targets
// according to the curriculum.
bool RunData::fill(int64_t step, int32_t micro, const BatchRows& to) const {
  int64_t leaf = int64_t{micro} * world_ + rank_;
  if (dynamic_) {
    fill_dynamic(step, leaf, to);
    return true;
  }
  if (batch_) {
    if (!batch_(step, micro, to.tokens, to.targets)) return false;
    std::ranges::fill(to.counted, 1);
  } else if (train_documents_) {
    train_documents_->rows(first_of(leaf), micro_batch_, to);
    for (int64_t i = 0; i < micro_batch_ && reference_; ++i)
      put_reference(reference_->train, train_documents_->row(first_of(leaf) + i), i, to);
  } else {
    train_->rows(first_of(leaf), micro_batch_, to);
  }
  if (!train_documents_ && !to.begins.empty()) find_documents(separator_, sequence_, to);
  if (!curriculum_.enabled) return true;
  int64_t length = curriculum_difficulty(curriculum_, step);
  if (shortens()) {
    shorten(length, to);
  } else {
    cut_targets(length, to);
  }
  return true;
}

int64_t RunData::first_sample() const {
  return dynamic_ ? dynamic_->first_of_step(next_, batch_samples_) : next_;
}

// A skipped step also uses its samples, and the next step continues after them.
void RunData::end_step() {
  next_ = first_sample() + batch_samples_;
  samples_ += batch_samples_;
}

// To form groups, dynamic batching needs the lengths of all rows in advance.
void RunData::open_dynamic(const DynamicBatchingKeys& dynamic) {
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < train_documents_->epoch_samples(); ++row) {
    lengths.push_back(train_documents_->length(row));
  }
  dynamic_.emplace(lengths, DynamicBatchOptions{dynamic.max_tokens, dynamic.min_batch,
                                                dynamic.max_batch, dynamic.order, dynamic.seed});
  lr_scaling_ = dynamic.lr_scaling;
  if (dynamic_->groups() >= batch_samples_) return;
  refuse(
      "data_efficiency.data_sampling.dynamic_batching.max_tokens",
      "{} samples do not fill a step of {} groups of at most {} tokens and at least min_batch_size "
      "{} samples",
      lengths.size(), batch_samples_, dynamic.max_tokens, dynamic.min_batch);
}

// Without dynamic batching, rows have the length of the curriculum or run.sequence. With it, every
// micro-batch of a step is as long as the longest one on any rank, so that the shapes of matrix
// products, and with them the bits of results, do not depend on the number of ranks. The rest of a
// micro-batch is then padding: documents of one token without a target.
int64_t RunData::tokens_of(int64_t step) const {
  if (!dynamic_)
    return micro_batch_ * texts_ *
           (curriculum_.enabled && shortens() ? curriculum_difficulty(curriculum_, step)
                                              : sequence_);
  int64_t most = 0, first = first_sample();
  for (int64_t leaf = first; leaf < first + batch_samples_; leaf += micro_batch_) {
    int64_t sum = 0;
    for (int64_t group = leaf; group < leaf + micro_batch_; ++group) {
      for (int64_t row : dynamic_->group(group)) sum += train_documents_->length(row);
    }
    most = std::max(most, sum);
  }
  return most;
}

// Rows of documents are padded in memory, so the lengths of the documents are added up instead.
int64_t RunData::real_tokens(int64_t step) const {
  const int64_t length = curriculum_.enabled ? curriculum_difficulty(curriculum_, step) : sequence_;
  if (!train_documents_) return batch_samples_ * length;
  int64_t sum = 0;
  for (int64_t i = first_sample(), end = i + batch_samples_; i < end; ++i) {
    for (int64_t t = 0; t < texts_ && !dynamic_; ++t)
      sum += std::min(train_documents_->length(train_documents_->row(i) + t), length);
    if (!dynamic_) continue;
    for (int64_t row : dynamic_->group(i)) sum += train_documents_->length(row);
  }
  return sum;
}

// With dynamic batching, the number of documents varies between steps, and the learning rate may
// follow it.
double RunData::lr_factor() const {
  if (!dynamic_) return 1;
  return ds::lr_factor(lr_scaling_, dynamic_->documents(first_sample(), batch_samples_),
                       batch_samples_);
}

void RunData::fill_dynamic(int64_t step, int64_t leaf, const BatchRows& to) const {
  pad(0, static_cast<size_t>(tokens_of(step)), to);
  size_t at = 0;
  for (int64_t i = 0; i < micro_batch_; ++i) {
    for (int64_t row : dynamic_->group(first_of(leaf) + i)) {
      train_documents_->place(row, at, to);
      at += static_cast<size_t>(train_documents_->length(row));
    }
  }
}

// Moves the first `length` tokens of each row toward the front, so that the rows become contiguous.
// No row is overwritten before it is read, because rows move only toward the front, in order.
void RunData::shorten(int64_t length, const BatchRows& rows) const {
  for (int64_t row = 0; row < micro_batch_; ++row) {
    auto from = static_cast<size_t>(row * sequence_), to = static_cast<size_t>(row * length);
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      rows.tokens[to + i] = rows.tokens[from + i];
      rows.targets[to + i] = rows.targets[from + i];
      rows.begins[to + i] = rows.begins[from + i] - static_cast<int32_t>(from - to);
      if (!rows.counted.empty()) rows.counted[to + i] = rows.counted[from + i];
    }
  }
}

// Removes the targets from index `length` on in each row, and marks those tokens as not counted.
void RunData::cut_targets(int64_t length, const BatchRows& rows) const {
  for (int64_t row = 0; row < micro_batch_; ++row) {
    const BatchRows rest = rows.part(static_cast<size_t>(row * sequence_ + length),
                                     static_cast<size_t>(sequence_ - length));
    std::ranges::fill(rest.targets, kNoTarget);
    std::ranges::fill(rest.counted, 0);
  }
}

int64_t RunData::heldout_rows() const {
  return heldout_documents_ ? heldout_documents_->epoch_samples() : heldout_ ? heldout_->rows() : 0;
}

void RunData::fill_heldout(int64_t first, int64_t total, const BatchRows& to) const {
  check_rows(to, micro_batch_ * texts_ * sequence_);
  const int64_t all = heldout_rows();
  for (int64_t i = 0; i < micro_batch_; ++i) {
    const int64_t index = first + i;
    const auto at = static_cast<size_t>(i * texts_ * sequence_);
    // Computes index * all / total, split so that the product stays within 64 bits.
    const int64_t row = all / total * index + all % total * index / total;
    if (index >= total) {
      pad(at, static_cast<size_t>(texts_ * sequence_), to);
    } else if (heldout_documents_) {
      fill_sample(*heldout_documents_, row * texts_, i, to);
      if (reference_) put_reference(reference_->heldout, row * texts_, i, to);
    } else {
      heldout_->fill(row, at, to);
    }
  }
  if (!heldout_documents_ && !to.begins.empty()) find_documents(separator_, sequence_, to);
}

int64_t RunData::heldout_targets() const {
  const int64_t all = std::max<int64_t>(dataset_.heldout.size() - 1, 0);
  if (separator_ < 0) return all;
  // The last token of a document has no target: it would be in the next document.
  int64_t out = all;
  std::vector<int32_t> block(1 << 16);
  for (int64_t at = 0; at < all; at += static_cast<int64_t>(block.size())) {
    block.resize(static_cast<size_t>(std::min(all - at, static_cast<int64_t>(block.size()))));
    dataset_.heldout.copy(at, block);
    out -= std::ranges::count(block, separator_);
  }
  return out;
}

// Writes the texts of a sample, whose first row is `row`, as sample `index` of a micro-batch.
void RunData::fill_sample(const DocumentSampler& documents, int64_t row, int64_t index,
                          const BatchRows& to) const {
  for (int64_t t = 0; t < texts_; ++t)
    documents.fill(row + t, static_cast<size_t>((index * texts_ + t) * sequence_), to);
}

void RunData::put_reference(std::span<const double> sums, int64_t row, int64_t index,
                            const BatchRows& to) const {
  for (int64_t t = 0; t < texts_; ++t) {
    place_reference(sums[static_cast<size_t>(row + t)],
                    to.part(static_cast<size_t>((index * texts_ + t) * sequence_),
                            static_cast<size_t>(sequence_)));
  }
}

int64_t RunData::pairs(bool heldout) const {
  const auto& documents = heldout ? heldout_documents_ : train_documents_;
  return documents ? documents->epoch_samples() : 0;
}

// Fills a micro-batch with pairs in the order of the documents. Pairs from `end` on are padding.
void RunData::fill_pairs(bool heldout, int64_t first, const BatchRows& to) const {
  const DocumentSampler& documents = heldout ? *heldout_documents_ : *train_documents_;
  for (int64_t i = 0; i < micro_batch_; ++i) {
    if (first + i < documents.epoch_samples()) {
      fill_sample(documents, (first + i) * texts_, i, to);
    } else {
      pad(static_cast<size_t>(i * texts_ * sequence_), static_cast<size_t>(texts_ * sequence_), to);
    }
  }
}

void RunData::take_reference(ReferenceLosses losses) { reference_ = std::move(losses); }

std::string RunData::rows() const {
  if (!train_documents_) return "";
  if (texts_ > 1) return describe_pairs(*train_documents_, sequence_);
  if (dynamic_) {
    return fmt::format("{} documents in {} steps; {} pieces of documents are in no step",
                       dataset_.train.documents(), dynamic_->groups() / batch_samples_,
                       dynamic_->left_out(batch_samples_));
  }
  return fmt::format(
      "{} documents in {} samples of {} tokens; {} documents have no target within a sample",
      dataset_.train.documents(), train_documents_->epoch_samples(), sequence_,
      train_documents_->left_out());
}

Json RunData::record() const {
  Json out;
  out.set("corpus", hash_);
  if (batch_) return out;
  out.set("train.tokens", dataset_.train.hash());
  out.set("heldout.tokens", dataset_.heldout.hash());
  if (reference_) out.set("reference.losses", reference_->hash);
  return out;
}

// A checkpoint of an earlier version has neither number. Its samples are the number of steps times
// the batch size; with dynamic batching, each repetition of the groups omits those that do not fill
// a step.
void RunData::go_on(const CheckpointInfo& saved) {
  auto read = [&](const char* name, int64_t& value) {
    const Json* found = saved.client.is_object() ? saved.client.find(name) : nullptr;
    if (!found) return false;
    if (!found->is_integer() || found->integer() < 0)
      raise(DS_ERROR_CORRUPT, "checkpoint '{}': client.{} must be a number of samples, got {}",
            saved.path, name, found->dump());
    value = found->integer();
    return true;
  };
  if (read("samples", samples_) && read("next", next_)) return;
  const Json* config = saved.config.is_object() ? saved.config.find("config") : nullptr;
  const Json* batch = config ? config->find("train_batch_size") : nullptr;
  const int64_t each =
      batch && batch->is_integer() && batch->integer() > 0 ? batch->integer() : batch_samples_;
  samples_ = next_ = saved.step * each;
  if (!dynamic_ || dynamic_->groups() < each) return;
  // Number of steps in one repetition of the groups.
  const int64_t steps = dynamic_->groups() / each;
  next_ = saved.step / steps * dynamic_->groups() + saved.step % steps * each;
}

// A checkpoint stores the record, which identifies the text, and two numbers: the samples that were
// used, and the index of the next one in the order.
Json RunData::place() const {
  Json out = record();
  out.set("samples", samples_);
  out.set("next", next_);
  return out;
}

// An earlier version did not record every hash, so only hashes that both records have are compared.
void RunData::check_record(const Json& saved, const std::string& where) const {
  if (!saved.is_object()) return;
  const Json own = record();
  for (const auto& [name, hash] : own.object()) {
    const Json* recorded = saved.find(name);
    if (!recorded || !recorded->is_string() || recorded->string() == hash.string()) continue;
    std::string text_name =
        name == "corpus" ? "the text of this run" : "'" + folder_ + "/" + name + "'";
    raise(DS_ERROR_CORRUPT,
          "{} has hash {}, but {} says {}: a run goes on with the text that it began with",
          text_name, hash.string(), where, recorded->string());
  }
}

void RunData::check_files() {
  if (batch_) return;
  dataset_.train.check();
  dataset_.heldout.check();
}

// Ends the prompt after the first document, so that it does not run into the next one.
std::vector<int32_t> RunData::prompt(int64_t tokens) const {
  if (batch_ || masking_) return {};
  const TokenText& text = dataset_.heldout.size() > 0 ? dataset_.heldout : dataset_.train;
  int64_t most = text.of_documents() ? text.ends()[0].end : text.size();
  std::vector<int32_t> out(static_cast<size_t>(std::min(tokens, most)));
  std::vector<uint8_t> targets(out.size());
  text.copy(0, out, targets);
  // The prompt of a conversation ends before the first answer.
  auto answer = std::ranges::find(targets, 1);
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

// Copies the files of a tokenizer to the run folder, so that the run can be resumed and its model
// used without the original. The byte tokenizer has no files.
static void copy_tokenizer(const std::string& name, const std::string& folder) {
  std::vector<TokenizerFile> files = tokenizer_files(name);
  if (files.empty()) return;
  make_folders(folder);
  for (const TokenizerFile& file : files) {
    const std::filesystem::path copy = std::filesystem::path(folder) / file.name;
    make_folders(copy.parent_path());
    write_file_atomic(copy, read_tokenizer_file(file.path));
  }
}

// Writes the token files of conversations, one document for each. Unless the loss is on all tokens,
// each token is marked as a target or not.
static TextFacts prepare_jsonl(const DataKeys& data, const Tokenizer& tokenizer,
                               const std::string& folder, const volatile int32_t* stop,
                               bool pairs) {
  ChatEncoder encoder(tokenizer, data.tokenizer, data.chat_template, data.loss_on == "all");
  TokenWriter::Options format{tokenizer.vocab(), tokenizer_hash(data.tokenizer), true,
                              data.loss_on != "all"};
  JsonlFacts facts =
      write_jsonl_documents({data.paths, data.heldout, stop, data.text, pairs}, encoder, format,
                            folder + "/train.tokens", folder + "/heldout.tokens");
  return {describe(facts), 0, 0};
}

TextFacts prepare_run_data(const DataKeys& data, int64_t vocabulary, TextUse use,
                           const std::string& folder, const volatile int32_t* stop, bool pairs) {
  check_data_given(data);
  // A bad tokenizer should be refused before reading the text, which takes longer.
  std::unique_ptr<const Tokenizer> tokenizer = chosen_tokenizer(data, vocabulary, use);
  make_folders(folder);
  if (data.format != "text") {
    copy_tokenizer(data.tokenizer, folder + "/tokenizer");
    return data.format == "jsonl" ? prepare_jsonl(data, *tokenizer, folder, stop, pairs)
                                  : TextFacts();
  }
  Corpus corpus =
      read_corpus({data.paths, data.heldout, data.max_bytes, data.strip_licences, stop, data.text});
  TextFacts facts{describe(corpus), static_cast<int64_t>(corpus.heldout.size()), 0};
  if (corpus.heldout.size() <= kMostCompressed) facts.gzip_bytes = gzip_bytes(corpus.heldout);
  if (!tokenizer) {
    make_folders(folder + "/tokenizer");
    facts.lines += "\n" + learn_tokenizer(corpus.train, vocabulary, folder + "/tokenizer", stop);
    tokenizer = open_tokenizer(folder + "/tokenizer");
  } else {
    copy_tokenizer(data.tokenizer, folder + "/tokenizer");
  }
  prepare_dataset(corpus, *tokenizer, folder, use,
                  tokenizer_hash(run_tokenizer(folder, data.tokenizer)));
  return facts;
}

}  // namespace ds
