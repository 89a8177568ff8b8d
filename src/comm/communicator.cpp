#include "comm/communicator.h"

#include <utility>

#include "comm/exchange.h"
#include "core/base/error.h"

namespace ds {

Communicator::Communicator(std::unique_ptr<Exchange> exchange)
    : exchange_(std::move(exchange)),
      rank_(exchange_->rank()),
      size_(exchange_->size()),
      pairs_(static_cast<size_t>(size_)) {}

Communicator::~Communicator() = default;

int Communicator::local_rank() const { return exchange_->local_rank(); }
int Communicator::local_size() const { return exchange_->local_size(); }
void Communicator::abort(std::string_view reason) { exchange_->abort(reason); }
void Communicator::tick() { exchange_->tick(); }
void Communicator::set_timeout(int64_t ms) { exchange_->set_timeout(ms); }
int64_t Communicator::overhead_bytes() const { return exchange_->overhead_bytes(); }
bool Communicator::reads_directly() const { return exchange_->reads_directly(); }

std::map<std::string, CommCount> Communicator::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

void Communicator::begin(std::string_view operation, std::string_view detail, size_t bytes,
                         std::string_view label, uint64_t counts_hash) {
  Intent intent;
  intent.set(sequence_++, operation, detail, bytes, label);
  intent.counts_hash = counts_hash;
  exchange_->begin(intent);
}

void Communicator::count(std::string_view operation, size_t bytes) {
  std::lock_guard lock(mutex_);
  CommCount& c = counts_[std::string(operation)];
  ++c.calls;
  c.bytes += static_cast<int64_t>(bytes);
}

void Communicator::check_root(int root) const {
  require(root >= 0 && root < size_, "root must be 0 to {}, got {}", size_ - 1, root);
}

}  // namespace ds
