#include "checkpoint/agree.h"

#include <gtest/gtest.h>

#include <array>
#include <new>
#include <stdexcept>

#include "core/base/error.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

// Returns the result of on_root() on each of two ranks when rank 0 calls `make`: the text, or the
// status and message of the error.
std::array<std::string, 2> seen(const std::function<std::string()>& make) {
  std::array<std::string, 2> out;
  run_ranks(2, [&](Communicator& comm) {
    std::string& mine = out[static_cast<size_t>(comm.rank())];
    try {
      mine = on_root(comm, "test", [&] {
        if (comm.rank() != 0) throw std::logic_error("only rank 0 makes");
        return make();
      });
    } catch (const Error& error) {
      mine = fmt::format("{}: {}", static_cast<int>(error.status()), error.what());
    }
  });
  return out;
}

TEST(Agree, OnRootGivesEveryRankTheResultOrTheError) {
  const std::string memory =
      fmt::format("{}: out of memory", static_cast<int>(DS_ERROR_OUT_OF_MEMORY));
  const std::string other = fmt::format("{}: odd", static_cast<int>(DS_ERROR_INTERNAL));
  const std::string own = fmt::format("{}: key x is 3", static_cast<int>(DS_ERROR_CONFIG));
  for (const auto& [got, want] :
       {std::pair{seen([] { return std::string(100000, 'x'); }), std::string(100000, 'x')},
        {seen([] { return std::string(); }), ""},
        {seen([]() -> std::string { throw std::bad_alloc(); }), memory},
        {seen([]() -> std::string { throw std::runtime_error("odd"); }), other},
        {seen([]() -> std::string { throw Error(DS_ERROR_CONFIG, "key x is 3"); }), own}}) {
    EXPECT_EQ(got[0], want);
    EXPECT_EQ(got[1], want);
  }
}

TEST(Agree, EveryRankThrowsTheErrorOfTheLowestFailedRank) {
  std::array<std::string, 3> messages;
  run_ranks(3, [&](Communicator& comm) {
    try {
      agree(comm, "test", [&] {
        if (comm.rank() > 0) throw Error(DS_ERROR_IO, fmt::format("disk of rank {}", comm.rank()));
      });
    } catch (const Error& error) {
      messages[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& line : messages) EXPECT_EQ(line, "rank 1: disk of rank 1");
}

}  // namespace
}  // namespace ds::test
