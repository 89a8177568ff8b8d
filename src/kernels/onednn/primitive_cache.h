#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/matrix_product.h"
#include "kernels/onednn/adapter.h"

namespace ds::onednn {

// A cache of the `capacity` most recently used primitives. An evicted primitive is destroyed when
// its last user is done. The cache is thread-safe, because the ranks of one process share it.
// Primitives are created outside the lock, because that takes milliseconds. Two threads that miss
// the same key may both create a primitive; the cache keeps the first.
class PrimitiveCache {
 public:
  explicit PrimitiveCache(size_t capacity) : capacity_(capacity) {}
  // Returns the primitive of `key`; creates it if it is not in the cache.
  std::shared_ptr<const Matmul> get(const MatrixShape& key);
  int64_t size() const;

 private:
  using Entry = std::pair<MatrixShape, std::shared_ptr<const Matmul>>;
  // Returns the primitive of `key` and marks it as used, or returns null. The caller must hold the
  // lock.
  std::shared_ptr<const Matmul> find(const MatrixShape& key);

  size_t capacity_;
  mutable std::mutex mutex_;
  // The most recently used entry comes first.
  std::list<Entry> order_;
  std::map<MatrixShape, std::list<Entry>::iterator> index_;
};

}  // namespace ds::onednn
