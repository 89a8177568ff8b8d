#pragma once
#include <cstdint>
#include <string>

#include "core/base/dtype.h"
#include "core/graph/graph.h"

namespace ds {

// The weights that files store for the parameters of a model: a model folder, the folder of an
// adapter, or a GGUF file.
class StoredWeights {
 public:
  virtual ~StoredWeights() = default;

  // Returns whether a parameter is stored. Parameters of a head that a folder lacks, and those that
  // the kind of files does not hold, are not.
  virtual bool has(ParamId param) const = 0;
  // Returns the type of a stored parameter; bf16 for one that is stored in codes.
  virtual DType dtype(ParamId param) const = 0;
  // Reads elements [begin, begin + count) of a stored parameter.
  virtual void read(ParamId param, int64_t begin, int64_t count, float* out) = 0;
  // Throws DS_ERROR_CONFIG unless both stored tensors of each tied parameter have the same bytes.
  virtual void check_copies() const {}
  // Returns a warning about names that only the files or only the model has, or "".
  virtual std::string warning() const { return ""; }
};

}  // namespace ds
