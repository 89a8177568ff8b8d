#include "support/train_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"

namespace ds::test {

RunReport train_on(int ranks, const Json& config, const TrainOptions& options) {
  static std::atomic<int> serial{0};
  std::string url = "threads://train-" + std::to_string(serial++);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  RunReport report;
  auto body = [&](int rank) {
    try {
      auto comm = create_communicator(url, {rank, ranks, 20000, 20000});
      RunReport mine = train(config, *comm, options);
      if (rank == 0) report = mine;
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int r = 1; r < ranks; ++r) others.emplace_back(body, r);
  body(0);
  for (std::thread& t : others) t.join();
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
  return report;
}

RunReport train_quietly(int ranks, const Json& config, const std::string& resume) {
  TrainOptions options;
  options.quiet = 2;
  options.resume = resume;
  return train_on(ranks, config, options);
}

std::string train_error(const Json& config, ds_status status, const TrainOptions& options) {
  try {
    train_on(1, config, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace ds::test
