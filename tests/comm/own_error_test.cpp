#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <string>
#include <vector>

#include "comm/shared_exchange.h"
#include "support/errors.h"
#include "support/spawn.h"

// Tests a collective in the middle of which only one rank fails.
namespace ds {
namespace {

// An exchange that runs out of memory in a given round.
class Short final : public Exchange {
 public:
  Short(std::unique_ptr<Exchange> inner, int good)
      : Exchange(inner->place()), inner_(std::move(inner)), left_(good) {}
  void begin(const Intent& intent) override { inner_->begin(intent); }
  size_t prepare(Round kind, size_t bytes) override { return inner_->prepare(kind, bytes); }
  void round(const Part* sends, const Part* receives) override {
    if (left_-- == 0) throw std::bad_alloc();
    inner_->round(sends, receives);
  }
  const std::byte* see(int r, size_t offset, size_t bytes) override {
    return inner_->see(r, offset, bytes);
  }
  size_t piece_bytes() const override { return inner_->piece_bytes(); }
  void end() override { inner_->end(); }
  void pair(const Intent& intent, int peer, Part send, Part receive) override {
    inner_->pair(intent, peer, send, receive);
  }
  void drop(std::string_view reason) override { inner_->drop(reason); }
  void fail(const std::string& reason, int about) override { inner_->fail(reason, about); }
  void abort(std::string_view reason) override { inner_->abort(reason); }
  void tick() override { inner_->tick(); }
  void set_timeout(int64_t ms) override { inner_->set_timeout(ms); }
  int64_t timeout_ms() const override { return inner_->timeout_ms(); }
  int64_t overhead_bytes() const override { return inner_->overhead_bytes(); }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                  const std::string& group) override {
    return inner_->split(name, members, group);
  }

 private:
  std::unique_ptr<Exchange> inner_;
  int left_;
};

TEST(OwnError, EndsTheGroupAndTheReadsOfOtherRanks) {
  std::string name = fmt::format("own-error-{}", getpid());
  // The smaller payload is staged, and the larger one is read in place.
  for (size_t count : {size_t{100}, size_t{5} << 20}) {
    for (int good : {0, 1}) {
      test::spawn_threads(3, [&](int rank) {
        CommOptions options{.rank = rank, .size = 3};
        std::unique_ptr<Exchange> exchange = std::make_unique<SharedExchange>(
            share_threads(name, options), Membership::whole(rank, 3), options);
        if (rank == 1) exchange = std::make_unique<Short>(std::move(exchange), good);
        Communicator comm(std::move(exchange));
        auto data = std::make_unique<std::vector<float>>(count);
        auto sum = [&] {
          comm.all_reduce(data->data(), data->data(), count, DS_DTYPE_F32, "loss");
        };
        if (rank == 1) {
          EXPECT_THROW(sum(), std::bad_alloc);
          // A sanitizer reports any rank that still reads this memory.
          data.reset();
          test::message_of([&] { comm.barrier("later"); });
        } else {
          test::expect_names(test::message_of(sum),
                             {"rank 1 in all_reduce f32 'loss'", "bad_alloc"});
        }
      });
    }
  }
}

}  // namespace
}  // namespace ds
