#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "data/baselines.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/dynamic_batches.h"
#include "data/masking.h"
#include "data/tokenizer.h"
#include "run/train_options.h"

namespace ds {

// Where a run's batches come from: token files, or the caller. A batch is micro_batch * sequence token ids
// and the id that follows each; of a masked language model, rows of Masking; of files of documents, rows of
// DocumentSampler. With a curriculum, targets behind its length of the step are none; of a model that tells
// documents apart, rows are cut there, and lie one behind the other.
class RunData {
 public:
  // Opens the token files in `folder`, unless `batch` replaces them; batch is copied. vocabulary: ids that
  // the model knows. DS_ERROR_CONFIG when there are not enough tokens for a batch, or one that it does not
  // know, or no mask token where one is needed.
  RunData(const Config& config, int64_t vocabulary, TextUse use, int rank, int world,
          const std::string& folder, BatchCallback batch);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  // The micro-batch of this rank; false when the caller's batch function ends the run.
  // begins: where each token's document begins in the micro-batch; of a model that does not ask, empty.
  bool fill(int64_t step, int32_t micro, std::span<int32_t> tokens, std::span<int32_t> targets,
            std::span<int32_t> begins = {}) const;
  // Batch `index` of `batches` of this rank of the held-out text; the same at every evaluation.
  void fill_heldout(int64_t index, int64_t batches, std::span<int32_t> tokens, std::span<int32_t> targets,
                    std::span<int32_t> begins = {}) const;
  // Tokens of each micro-batch of this step, which fill() leaves at the beginning of its spans.
  int64_t tokens_of(int64_t step) const;
  // What the step's learning rates are multiplied by.
  double lr_factor(int64_t step) const;
  bool has_heldout() const { return heldout_ || heldout_documents_; }
  int64_t heldout_tokens() const { return dataset_.heldout.size(); }

  const std::string& hash() const { return hash_; }  // of the text; "caller" with a batch function
  // What a run and its checkpoints keep of their text: the hash above and that of each token file.
  Json record() const;
  // The record of a resumed run must be this one. DS_ERROR_CORRUPT naming file and both hashes. `where` holds
  // `saved`, which may be null (of an earlier version).
  void check_record(const Json& saved, const std::string& where) const;
  // DS_ERROR_CORRUPT or _NOT_FOUND when a token file was changed or removed since it was opened.
  void check_files();
  const Baselines& baselines() const {
    return baselines_;
  }  // NaN without held-out text, of a large vocabulary or of masked text
  // One line about masking; "" for a model that predicts the next token, and with a batch function.
  std::string masking() const { return masking_ ? masking_->describe() : ""; }
  std::string rows() const;  // one line about rows of documents; "" without
  // First tokens of the held-out (else the training) text, the prompt of the run's sample; none without text
  // or of a masked language model, which continues none.
  std::vector<int32_t> prompt(int64_t tokens) const;
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // nullptr with a batch function

 private:
  void open_samplers(const Config& config, int64_t vocabulary, TextUse use);
  void open_dynamic(const DynamicBatchingConfig& dynamic, int64_t batch);
  void fill_dynamic(int64_t step, int64_t leaf, std::span<int32_t> tokens, std::span<int32_t> targets,
                    std::span<int32_t> begins) const;
  void shorten(int64_t length, std::span<int32_t> tokens, std::span<int32_t> targets,
               std::span<int32_t> begins) const;

  const int rank_, world_;
  const int64_t micro_batch_, accumulation_, sequence_;
  const CurriculumConfig curriculum_;
  const bool documents_;    // the model tells documents apart
  const bool isolated_;     // data.packing
  int32_t separator_ = -1;  // of a stream whose documents are isolated: what ends each
  const std::string folder_;
  BatchCallback batch_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Dataset dataset_;
  std::optional<Masking> masking_;  // the samplers read it
  std::optional<TrainSampler> train_;
  std::optional<HeldoutSampler> heldout_;
  std::optional<DocumentSampler> train_documents_, heldout_documents_;  // in place of these
  std::optional<DynamicBatches> dynamic_;                               // of rows of train_documents_
  std::string lr_scaling_;
  std::string hash_ = "caller";
  Baselines baselines_;
};

// What token files do not say of a run's text. config.json keeps it for a resumed run.
struct TextFacts {
  std::string lines;                          // for the log; "" in a resumed run
  int64_t heldout_bytes = 0;                  // 0: not known
  int64_t gzip_bytes = 0;                     // of the held-out text after gzip -9; 0: not known
  void keep(Json& record) const;              // adds its members to what config.json says of the text
  static TextFacts kept(const Json& record);  // of an earlier version: nothing is known
};

// Gathers config.data's text and writes its token files into `folder`, which it makes, and the tokenizer's
// own files into folder/tokenizer: a copy, or one that is learned from the training text, of `vocabulary`
// tokens. One rank does this. DS_ERROR_CONFIG when `use` needs a mask token and there is none, or the
// vocabulary is too small to be learned. DS_ERROR_USER when *stop [nullable] becomes non-zero meanwhile.
TextFacts prepare_run_data(const Config& config, int64_t vocabulary, TextUse use, const std::string& folder,
                           const volatile int32_t* stop);

}  // namespace ds
