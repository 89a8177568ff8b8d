#include "kernels/onednn/primitive_cache.h"

#include "kernels/matrix_product.h"

namespace ds::onednn {

std::shared_ptr<const Matmul> PrimitiveCache::find(const MatrixShape& key) {
  auto at = index_.find(key);
  if (at == index_.end()) return nullptr;
  order_.splice(order_.begin(), order_, at->second);
  return order_.front().second;
}

// Looks up the key again after creating a primitive, because another thread may have added it in
// the meantime.
std::shared_ptr<const Matmul> PrimitiveCache::get(const MatrixShape& key) {
  {
    std::lock_guard lock(mutex_);
    if (auto found = find(key)) return found;
  }
  auto made = std::make_shared<const Matmul>(key);
  std::lock_guard lock(mutex_);
  if (auto found = find(key)) return found;
  order_.emplace_front(key, made);
  index_[key] = order_.begin();
  if (order_.size() > capacity_) {
    index_.erase(order_.back().first);
    order_.pop_back();
  }
  return made;
}

int64_t PrimitiveCache::size() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(order_.size());
}

}  // namespace ds::onednn
