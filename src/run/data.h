#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/config/config.h"
#include "data/baselines.h"
#include "data/batch_rows.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/dynamic_batches.h"
#include "data/keys.h"
#include "data/masking.h"
#include "data/tokenizer.h"
#include "run/reference.h"
#include "run/train_options.h"

namespace ds {

// The batches of a run, from token files or from the caller, and the position of the run in them. A
// batch is micro_batch * sequence token ids, each with the id that follows it as its target. For a
// masked language model it consists of the rows of Masking; for files of documents, of the rows of
// DocumentSampler. With a curriculum, targets beyond the step's length are not counted; if the
// model isolates documents and the text is from files, rows are cut to that length and joined.
//
// A step uses the next micro_batch * accumulation * ranks samples of the order, leaf by leaf.
// Checkpoints store how many samples the run has used. So a resumed run may have another batch size
// or number of ranks, and still neither skips a sample nor uses one twice.
class RunData {
 public:
  // Opens the token files in `folder` or, with data.format "tokens", those that data.paths names.
  // If `batch`, which is copied, supplies the batches, opens no files. `vocabulary` is the number
  // of token ids of the model. Throws DS_ERROR_CONFIG if there are too few tokens for a batch, if
  // one of them is not in the vocabulary, if a required mask token is missing, or if the text does
  // not have the form that the keys need.
  RunData(const Config& config, int64_t vocabulary, TextUse use, int rank, int world,
          const std::string& folder, BatchCallback batch);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  // Fills a micro-batch of this rank with the next samples. Returns false if the caller's batch
  // function ends the run. `step` is passed to the batch function and determines the length of the
  // curriculum.
  bool fill(int64_t step, int32_t micro, const BatchRows& to) const;
  // Marks the samples of a step as used, even if the step was skipped.
  void end_step();
  // Returns the number of samples that steps have used. A sample is a row or, with dynamic
  // batching, a group of documents.
  int64_t samples() const { return samples_; }
  // Continues at the position of a checkpoint of this run. If a checkpoint of an earlier version
  // does not store it, the position is the number of steps times the batch size. Throws
  // DS_ERROR_CORRUPT if it is invalid.
  void go_on(const CheckpointInfo& saved);

  // Returns the number of tokens in each micro-batch of this step. fill() writes them to the
  // beginning of its spans.
  int64_t tokens_of(int64_t step) const;
  // Returns the number of tokens of all ranks in this step, without padding and without the tokens
  // beyond the curriculum's length.
  int64_t real_tokens(int64_t step) const;
  // Returns the factor by which the learning rates of this step are multiplied.
  double lr_factor() const;

  // Returns the number of rows that together contain each held-out target exactly once, or 0
  // without held-out text.
  int64_t heldout_rows() const;
  // Fills the micro_batch rows from index `first` on, out of `total` rows that are spread evenly
  // over all held-out rows. Rows from index `total` on are padding.
  void fill_heldout(int64_t first, int64_t total, const BatchRows& to) const;
  // Returns the number of texts of a sample: 2 for a pair.
  int64_t texts() const { return texts_; }
  // Returns the number of training or held-out pairs.
  int64_t pairs(bool heldout) const;
  // Fills a micro-batch with the pairs from index `first` on, in the order of their documents.
  // Pairs beyond the last one are padding.
  void fill_pairs(bool heldout, int64_t first, const BatchRows& to) const;
  // Takes the reference's losses, which fill() and fill_heldout() then write to their rows.
  void take_reference(ReferenceLosses losses);
  bool has_reference() const { return reference_.has_value(); }
  // Returns the number of targets in a held-out text that is a stream.
  int64_t heldout_targets() const;

  // Returns the hash of the text, or "caller" if a batch function supplies the batches.
  const std::string& hash() const { return hash_; }
  // Returns the record of the text that config.json stores: hash() and the hash of each token file.
  Json record() const;
  // Returns the record that checkpoints store: record() and the position in the order of samples.
  Json place() const;
  // Throws DS_ERROR_CORRUPT, naming the file and both hashes, unless `saved`, the record of a
  // resumed run, matches record(). `where` names the file that contains `saved`, which may be null
  // (earlier versions).
  void check_record(const Json& saved, const std::string& where) const;
  // Throws DS_ERROR_CORRUPT or DS_ERROR_NOT_FOUND if an open token file was changed or removed.
  void check_files();
  // Returns the held-out losses of counted models. They are NaN unless the text has the format
  // "text", some of it is held out, the vocabulary is small, and no tokens are masked.
  const Baselines& baselines() const { return baselines_; }
  // Returns a line that describes the masking, or "" without masking.
  std::string masking() const { return masking_ ? masking_->describe() : ""; }
  // Returns a line about the rows of documents, or "" for other text.
  std::string rows() const;
  // Returns the first tokens of the held-out text, or of the training text if none is held out, as
  // the prompt of the sample text: at most `tokens`, none after the first document of a file of
  // documents and, if only answers have a loss, none from the first answer on. Empty with a batch
  // function and for a masked language model, which cannot continue a text.
  std::vector<int32_t> prompt(int64_t tokens) const;
  // Returns null with a batch function.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  void open_samplers(const Config& config, int64_t vocabulary, TextUse use);
  void open_dynamic(const DynamicBatchingKeys& dynamic);
  // These return the index of the first sample of the next step, and of one of its leaves.
  int64_t first_sample() const;
  int64_t first_of(int64_t leaf) const { return first_sample() + leaf * micro_batch_; }
  void fill_sample(const DocumentSampler& documents, int64_t row, int64_t index,
                   const BatchRows& to) const;
  void put_reference(std::span<const double> sums, int64_t row, int64_t index,
                     const BatchRows& to) const;
  // Fills a leaf with groups of documents, which vary in number and length.
  void fill_dynamic(int64_t step, int64_t leaf, const BatchRows& to) const;
  // Returns whether a curriculum shortens the rows themselves instead of only removing targets.
  bool shortens() const { return documents_ && !batch_; }
  // These cut each row to `length` tokens, or remove the row's targets from index `length` on.
  void shorten(int64_t length, const BatchRows& rows) const;
  void cut_targets(int64_t length, const BatchRows& rows) const;

  const int rank_, world_;
  const int64_t micro_batch_, accumulation_, sequence_;
  // Number of samples in a step.
  const int64_t batch_samples_;
  // Number of texts in a sample.
  const int64_t texts_;
  const CurriculumKeys curriculum_;
  // Whether the model isolates documents from each other.
  const bool documents_;
  // How several documents share a row.
  const Packing packing_;
  // The token that ends each document in a stream with isolated documents; -1 for other streams.
  int32_t separator_ = -1;
  const std::string folder_;
  BatchCallback batch_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Dataset dataset_;
  // The samplers refer to this object.
  std::optional<Masking> masking_;
  std::optional<TrainSampler> train_;
  std::optional<HeldoutSampler> heldout_;
  // The samplers for documents, used in place of train_ and heldout_.
  std::optional<DocumentSampler> train_documents_, heldout_documents_;
  std::optional<ReferenceLosses> reference_;
  // Groups of rows of train_documents_, with dynamic batching.
  std::optional<DynamicBatches> dynamic_;
  std::string lr_scaling_;
  // Number of samples used so far, and index of the next one in the order. They differ if dynamic_
  // omits samples at the end of a repetition.
  int64_t samples_ = 0;
  int64_t next_ = 0;
  std::string hash_ = "caller";
  Baselines baselines_;
};

// Facts about a run's text that its token files do not contain. config.json stores the two sizes
// for a resumed run.
struct TextFacts {
  // Lines for the log; "" in a resumed run.
  std::string lines;
  // Bytes of the held-out text, and its bytes after gzip -9; 0 means not known.
  int64_t heldout_bytes = 0;
  int64_t gzip_bytes = 0;
  // Adds these facts to the record of the text in config.json.
  void keep(Json& record) const;
  // Reads the facts from such a record. A record of an earlier version contains no facts.
  static TextFacts kept(const Json& record);
};

// Reads the text that `data` names and writes its token files to `folder`, which is created; with
// data.format "tokens" there are token files already. Also writes the tokenizer's files to
// folder/tokenizer: a copy, or a tokenizer with at most `vocabulary` tokens that is learned from
// the training text. Only one rank calls this. Throws DS_ERROR_CONFIG if `use` needs a mask token
// and the tokenizer has none, or if the vocabulary is too small to learn; throws DS_ERROR_USER if
// *stop [nullable] becomes non-zero meanwhile.
TextFacts prepare_run_data(const DataKeys& data, int64_t vocabulary, TextUse use,
                           const std::string& folder, const volatile int32_t* stop,
                           bool pairs = false);

}  // namespace ds
