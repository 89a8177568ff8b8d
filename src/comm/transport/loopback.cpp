#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"

namespace ds {
namespace {

// The exchange of a group of one rank, which sends only to itself.
class Loopback final : public Exchange {
 public:
  Loopback() : Exchange(Membership{}) {}
  void begin(const Intent&) override { check(); }
  size_t prepare(Round, size_t) override { return SIZE_MAX; }
  void round(const Part* sends, const Part* receives) override { take_own(sends, receives, 0); }
  const std::byte* see(int r, size_t, size_t) override {
    raise(DS_ERROR_INTERNAL, "no rank {} to see", RankNumber(r));
  }
  void end() override {}
  void pair(const Intent&, int peer, Part, Part) override {
    raise(DS_ERROR_INTERNAL, "no rank {} to meet", RankNumber(peer));
  }
  void drop(std::string_view reason) override { abort(reason); }
  // In a group of one rank, the error that ends the group is always this rank's.
  void fail(const std::string& reason, int about) override {
    abort(reason);
    throw Error(DS_ERROR_COMM, reason, {.rank = about});
  }
  void abort(std::string_view reason) override {
    std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "no reason given" : std::string(reason);
  }
  void tick() override {}
  void set_timeout(int64_t) override {}
  int64_t timeout_ms() const override { return 0; }
  int64_t overhead_bytes() const override { return 0; }
  bool one_process() const override { return true; }
  std::unique_ptr<Exchange> split(const std::string&, const std::vector<int>&,
                                  const std::string&) override {
    return std::make_unique<Loopback>();
  }

 private:
  void check() {
    std::lock_guard lock(mutex_);
    if (!reason_.empty())
      raise(DS_ERROR_COMM, "rank 0: the group was ended by rank 0: {}", reason_);
  }

  std::mutex mutex_;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Communicator> make_loopback() {
  return std::make_unique<Communicator>(std::make_unique<Loopback>());
}

}  // namespace ds
