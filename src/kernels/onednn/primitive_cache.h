#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/matrix_product.h"
#include "kernels/onednn/adapter.h"

namespace ds::onednn {

// The least recently used primitives beyond `capacity` are dropped; a dropped one lives on until
// its last user is done. Thread-safe: ranks of one process share it. Primitives are made outside
// the lock, so two threads that miss at the same time may both make one; the first to come back is
// kept.
class PrimitiveCache {
 public:
  explicit PrimitiveCache(size_t capacity) : capacity_(capacity) {}
  std::shared_ptr<const Matmul> get(const MatrixShape& key);
  int64_t size() const;

 private:
  using Entry = std::pair<MatrixShape, std::shared_ptr<const Matmul>>;
  std::shared_ptr<const Matmul> find(const MatrixShape& key);  // with the lock held

  size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> order_;  // most recently used first
  std::map<MatrixShape, std::list<Entry>::iterator> index_;
};

}  // namespace ds::onednn
