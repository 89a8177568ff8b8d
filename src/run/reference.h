#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch_rows.h"
#include "io/file.h"

namespace ds {

// The losses of a reference model, the one that a run starts from: for each text of the training
// and of the held-out pairs, in the order of their rows, the sum over its completion.
struct ReferenceLosses {
  std::vector<double> train, heldout;
  // The hash of the file that holds them.
  std::string hash;
};

// Writes the sum of a text's losses to its row. The kernel adds up the rows of a text in f64, so
// the sum is given as that of two floats, in the first two places with a target.
void place_reference(double sum, const BatchRows& text);

// The owner of a file of reference losses.
struct ReferenceOwner {
  // Hashes of the token files of both texts, and of the model with its compute type.
  std::string train, heldout, model;
  // run.sequence, and the numbers of texts.
  int64_t sequence = 0, train_texts = 0, heldout_texts = 0;
  int64_t texts() const { return train_texts + heldout_texts; }
};

// The file `data/reference.losses` of a run folder. It has a header with its owner and records of
// losses, each with a checksum, so a computation that was killed continues after the last whole
// record. Rank 0 uses it.
class ReferenceFile {
 public:
  // Opens the file or creates it. Throws DS_ERROR_CONFIG, naming both hashes or numbers, if it
  // belongs to another model or other data.
  ReferenceFile(const std::string& path, const ReferenceOwner& owner);
  // Opens a file that must be complete. Throws DS_ERROR_NOT_FOUND or DS_ERROR_CORRUPT if it is not,
  // and as the constructor does.
  static ReferenceFile complete(const std::string& path, const ReferenceOwner& owner);

  // The losses that are in the file or were added.
  const std::vector<double>& values() const { return values_; }
  // Adds the losses of the next texts. Whole records are written at once; the last record may be
  // shorter.
  void add(std::span<const double> losses);

 private:
  ReferenceFile(const std::string& path, const ReferenceOwner& owner, bool fresh);
  void check_owner(const ReferenceOwner& owner) const;
  void read_records();
  void write_record(int64_t first, int64_t count);

  ReferenceOwner owner_;
  File file_;
  std::vector<double> values_;
  // The number of values that are in the file.
  int64_t written_ = 0;
};

// Returns the losses of a complete list of values, those of the training texts first.
ReferenceLosses reference_losses(const std::vector<double>& values, int64_t train_texts);

}  // namespace ds
