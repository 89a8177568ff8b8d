#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/config/config.h"
#include "data/baselines.h"
#include "data/batch_rows.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/dynamic_batches.h"
#include "data/masking.h"
#include "data/tokenizer.h"
#include "run/train_options.h"

namespace ds {

// Where a run's batches come from: token files, or the caller; and how far in them the run is. A
// batch is micro_batch * sequence token ids and the id that follows each; of a masked language
// model, rows of Masking; of files of documents, rows of DocumentSampler. With a curriculum,
// targets behind its length of the step are none; of a model that tells documents apart, rows are
// cut there, and lie one behind the other.
//
// A step takes the next micro_batch * accumulation * ranks samples of the order, leaf by leaf. How
// many a run has taken is kept by its checkpoints, so what a resume may change, the size of a batch
// and the number of ranks, leaves none out and takes none twice.
class RunData {
 public:
  // Opens the token files in `folder`, unless `batch` replaces them; batch is copied. vocabulary:
  // ids that the model knows. DS_ERROR_CONFIG when there are not enough tokens for a batch, or one
  // that it does not know, or no mask token where one is needed.
  RunData(const Config& config, int64_t vocabulary, TextUse use, int rank, int world,
          const std::string& folder, BatchCallback batch);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  // The micro-batch of this rank, of the samples that come next; false when the caller's batch
  // function ends the run. step: of the caller's function and of the curriculum.
  bool fill(int64_t step, int32_t micro, const BatchRows& to) const;
  // A step has been made: its samples are used up, also where it was skipped.
  void end_step();
  // Samples that steps have taken: rows, or groups of documents.
  int64_t samples() const { return samples_; }
  // Goes on where a checkpoint of this run was saved. One of an earlier version does not say where:
  // it is at its steps times its batch. DS_ERROR_CORRUPT for a place that is none.
  void go_on(const CheckpointInfo& saved);

  // Tokens of each micro-batch of this step, which fill() leaves at the beginning of its spans.
  int64_t tokens_of(int64_t step) const;
  // Tokens of all ranks in this step that are no padding.
  int64_t real_tokens(int64_t step) const;
  // What the step's learning rates are multiplied by.
  double lr_factor() const;

  int64_t heldout_rows()
      const;  // that have each held-out target once; 0: there is no held-out text
  // Rows first to first + micro_batch - 1 of `total` that are spread evenly over all; those from
  // `total` on are padding.
  void fill_heldout(int64_t first, int64_t total, const BatchRows& to) const;
  int64_t heldout_targets() const;  // of all rows of a stream of text

  const std::string& hash() const { return hash_; }  // of the text; "caller" with a batch function
  // What a run keeps of its text: the hash above and that of each token file.
  Json record() const;
  // What its checkpoints keep: the same, and where it is.
  Json place() const;
  // The record of a resumed run must be this one. DS_ERROR_CORRUPT naming file and both hashes.
  // `where` holds `saved`, which may be null (of an earlier version).
  void check_record(const Json& saved, const std::string& where) const;
  // DS_ERROR_CORRUPT or _NOT_FOUND when a token file was changed or removed since it was opened.
  void check_files();
  const Baselines& baselines() const {
    return baselines_;
  }  // NaN without held-out text, of a large vocabulary or of masked text
  // One line about masking; "" for a model that predicts the next token, and with a batch function.
  std::string masking() const { return masking_ ? masking_->describe() : ""; }
  std::string rows() const;  // one line about rows of documents; "" without
  // First tokens of the held-out (else the training) text, the prompt of the run's sample; none
  // without text or of a masked language model, which continues none.
  std::vector<int32_t> prompt(int64_t tokens) const;
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // nullptr with a batch function

 private:
  void open_samplers(const Config& config, int64_t vocabulary, TextUse use);
  void open_dynamic(const DynamicBatchingConfig& dynamic);
  // Number of the first sample of the next step, and of the first one of a leaf of it.
  int64_t first_sample() const;
  int64_t first_of(int64_t leaf) const { return first_sample() + leaf * micro_batch_; }
  void fill_dynamic(int64_t step, int64_t leaf, const BatchRows& to) const;
  // Whether rows are cut to the curriculum's length, and not only their targets.
  bool shortens() const { return documents_ && !batch_; }
  void shorten(int64_t length, const BatchRows& rows) const;
  void cut_targets(int64_t length, const BatchRows& rows) const;

  const int rank_, world_;
  const int64_t micro_batch_, accumulation_, sequence_;
  const int64_t batch_samples_;  // of a step
  const CurriculumConfig curriculum_;
  const bool documents_;    // the model tells documents apart
  const Packing packing_;   // of documents
  int32_t separator_ = -1;  // of a stream whose documents are isolated: what ends each
  const std::string folder_;
  BatchCallback batch_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Dataset dataset_;
  std::optional<Masking> masking_;  // the samplers read it
  std::optional<TrainSampler> train_;
  std::optional<HeldoutSampler> heldout_;
  std::optional<DocumentSampler> train_documents_, heldout_documents_;  // in place of these
  std::optional<DynamicBatches> dynamic_;  // of rows of train_documents_
  std::string lr_scaling_;
  int64_t samples_ = 0;  // taken
  int64_t next_ = 0;     // number of the next one in the order: dynamic_ leaves out ends of it
  std::string hash_ = "caller";
  Baselines baselines_;
};

// What token files do not say of a run's text. config.json keeps it for a resumed run.
struct TextFacts {
  std::string lines;              // for the log; "" in a resumed run
  int64_t heldout_bytes = 0;      // 0: not known
  int64_t gzip_bytes = 0;         // of the held-out text after gzip -9; 0: not known
  void keep(Json& record) const;  // adds its members to what config.json says of the text
  static TextFacts kept(const Json& record);  // of an earlier version: nothing is known
};

// Gathers config.data's text and writes its token files into `folder`, which it makes, and the
// tokenizer's own files into folder/tokenizer: a copy, or one that is learned from the training
// text, of `vocabulary` tokens. One rank does this. DS_ERROR_CONFIG when `use` needs a mask token
// and there is none, or the vocabulary is too small to be learned. DS_ERROR_USER when *stop
// [nullable] becomes non-zero meanwhile.
TextFacts prepare_run_data(const Config& config, int64_t vocabulary, TextUse use,
                           const std::string& folder, const volatile int32_t* stop);

}  // namespace ds
