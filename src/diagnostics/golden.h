#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_read.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ds {

// Rows of tokens, each [rows, tokens] row-major. mask (1: a token, 0: padding) and kinds (token
// types) are empty where the model was not given them. Labels are unshifted, -100 is none.
struct GoldenBatch {
  int64_t rows = 0, tokens = 0;
  std::vector<int32_t> ids, labels, mask, kinds;

  bool hides_tokens() const;  // the mask has a 0
};

// A recorded training run. loss[i] and grad_norm[i] (before clipping) precede update i.
struct GoldenRun {
  std::string name;  // "adamw", "accum", "sgd", "bf16", "bf16_accum"
  bool bf16 = false;
  bool accum = false;  // on the micro-batches instead of the batch
  Json optimizer;      // the section of that name
  double clip = 0;     // 0: none
  std::vector<double> loss, grad_norm;
  std::optional<double> final_loss;
  double loss_abs = 0, grad_norm_rel = 0;  // tolerances
};

struct GoldenText {
  std::vector<int32_t> prompt, tokens;
  std::vector<double> margin;  // gap between the two best logits behind each token
};

struct GoldenParam {
  std::string name;
  double sum = 0, l2 = 0, sum_tol = 0, l2_tol = 0;
};

// The numbers recorded beside a model, docs/reference/verify.md: golden.json, and
// golden.safetensors of which tensors are read when asked for.
class Golden {
 public:
  // Reads and checks folder/golden.*: DS_ERROR_NOT_FOUND without them, DS_ERROR_CORRUPT naming file
  // and member when they are not as docs/reference/verify.md has them.
  explicit Golden(const std::string& folder);

  GoldenBatch batch;
  std::vector<GoldenBatch> micro;
  double loss = 0, loss_abs = 0;
  double logits_abs = 0;
  double grad_abs = 0, grad_rel = 0;
  std::vector<std::string> grad_zero;   // tensors whose true gradient is zero
  std::vector<std::string> grad_names;  // of all parameters
  std::vector<GoldenRun> runs;
  std::vector<GoldenParam> final_params;  // after run "adamw"
  std::vector<GoldenText> greedy;

  bool hides_tokens() const;                            // some batch does
  const GoldenRun* run(const std::string& name) const;  // nullptr when not recorded
  std::vector<float> logits() const;                    // [rows, tokens, vocabulary]
  std::vector<float> grad(const std::string& name) const;

 private:
  void read_document(const JsonReader& document);
  GoldenBatch read_batch(const std::string& prefix) const;
  std::vector<int32_t> read_ints(const std::string& name, const GoldenBatch& like) const;
  std::vector<float> read_floats(const std::string& name) const;
  const SafetensorEntry& entry(const std::string& name, DType dtype) const;

  SafetensorHeader header_;
  File file_;
};

}  // namespace ds
