#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/key.h"

namespace ds {

// The value of data.tokenizer for a tokenizer that is learned from the training text. It has at
// most model.vocab tokens.
inline constexpr const char* kLearnTokenizer = "learn";

// The section `data` of the configuration.
struct DataKeys {
  // Files or folders of `format`.
  std::vector<std::string> paths;
  // The text itself, in place of files; "" if there are paths.
  std::string text;
  // "text"; "jsonl", lines of conversations or texts; or "tokens", files of `libds tokenize`.
  std::string format = "text";
  // "bytes", kLearnTokenizer, or a tokenizer's file or folder.
  std::string tokenizer = "bytes";
  // The targets of conversations: the tokens of "answers", or "all".
  std::string loss_on = "answers";
  // How documents share a sample: "none" (one document in each), "joined" (attention sees the
  // earlier ones) or "isolated" (each sees only itself).
  std::string packing = "none";
  // A template file, or the name of a template in the tokenizer's folder; "" means the folder's
  // default.
  std::string chat_template;
  // The share that is held out: files of text or lines of jsonl, chosen by the hash of their
  // content, or the last part of token files.
  double heldout = 0.05;
  // The largest number of bytes to read in the format "text".
  int64_t max_bytes = 16 << 20;
  // Whether leading licence comments of files are removed in the format "text".
  bool strip_licences = true;

  // The following fields are for masked language models and have the names of Transformers'
  // DataCollatorForLanguageModeling.

  // The probability that a token of the text, other than a special token, becomes a target.
  double mlm_probability = 0.15;
  // The probabilities that a target becomes the mask token and a random token. Otherwise it stays
  // as it is.
  double mask_replace_prob = 0.8;
  double random_replace_prob = 0.1;
  // The id of the mask token; -1 means the mask token of the tokenizer.
  int64_t mask_token = -1;

  // Whether files or a text are given.
  bool given() const { return !paths.empty() || !text.empty(); }
};

// The paths of the keys of masked language models.
inline constexpr const char* kMaskingKeys[] = {"data.mlm_probability", "data.mask_replace_prob",
                                               "data.random_replace_prob", "data.mask_token"};

// Appends the keys of data.
void data_keys(KeyList& keys);

// Uses the tokenizer of the model folder if the run has a folder and names no other tokenizer.
void take_folder_tokenizer(Config& config);
// These functions throw DS_ERROR_CONFIG for keys of data that contradict each other or the model.
void check_masking(const Config& config);
void check_data(const Config& config);
// Throws DS_ERROR_CONFIG if neither files nor a text are given.
void check_data_given(const DataKeys& data);

}  // namespace ds
