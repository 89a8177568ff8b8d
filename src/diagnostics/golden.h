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

// A recorded batch. All tensors are [rows, tokens], row-major. mask (1: a token, 0: padding) and
// kinds (token types) are empty if they were not passed to the model. Labels are not shifted; -100
// means no label.
struct GoldenBatch {
  int64_t rows = 0, tokens = 0;
  std::vector<int32_t> ids, labels, mask, kinds;

  // Returns whether the mask has a 0.
  bool hides_tokens() const;
};

// A recorded training run. loss[i] and grad_norm[i] (before clipping) are computed before update i.
struct GoldenRun {
  // "adamw", "accum", "sgd", "bf16" or "bf16_accum".
  std::string name;
  bool bf16 = false;
  // Whether the run trains on Golden::micro instead of Golden::batch.
  bool accum = false;
  // The section `optimizer` of the configuration.
  Json optimizer;
  // The norm to which gradients are clipped; 0: they are not clipped.
  double clip = 0;
  std::vector<double> loss, grad_norm;
  std::optional<double> final_loss;
  // The tolerances of the losses and the gradient norms.
  double loss_abs = 0, grad_norm_rel = 0;
};

// A recorded continuation of a prompt.
struct GoldenText {
  std::vector<int32_t> prompt, tokens;
  // For each token, the difference of the two best logits from which it was chosen.
  std::vector<double> margin;
};

// The recorded sum and l2 norm of a parameter, with their tolerances.
struct GoldenParam {
  std::string name;
  double sum = 0, l2 = 0, sum_tol = 0, l2_tol = 0;
};

// The numbers that are recorded beside a model (docs/reference/verify.md): golden.json, and
// golden.safetensors, from which logits() and grad() read when they are called.
class Golden {
 public:
  // Reads and checks golden.* in a model folder, or beside a GGUF file. Throws DS_ERROR_NOT_FOUND
  // if the files do not exist, and DS_ERROR_UNSUPPORTED if a run has another optimizer than AdamW
  // or SGD, and DS_ERROR_CORRUPT, with the member, if they are not as docs/reference/verify.md
  // describes.
  explicit Golden(const std::string& model);

  GoldenBatch batch;
  std::vector<GoldenBatch> micro;
  double loss = 0, loss_abs = 0;
  double logits_abs = 0;
  double grad_abs = 0, grad_rel = 0;
  // Tensors whose exact gradient is zero.
  std::vector<std::string> grad_zero;
  // The names of the parameters whose gradients are recorded.
  std::vector<std::string> grad_names;
  std::vector<GoldenRun> runs;
  // The parameters after the run "adamw".
  std::vector<GoldenParam> final_params;
  std::vector<GoldenText> greedy;

  // Returns whether some batch hides tokens.
  bool hides_tokens() const;
  // Returns the run with this name, or nullptr if it was not recorded.
  const GoldenRun* run(const std::string& name) const;
  // Returns the recorded logits [rows, tokens, vocabulary].
  std::vector<float> logits() const;
  // Returns the recorded gradient of a parameter.
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
