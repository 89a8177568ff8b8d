#include "support/ranks.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/caller.h"
#include "support/post_office.h"

namespace ds::test {

void run_ranks(int world, const std::function<void(Communicator&)>& body, const char* transport) {
  static std::atomic<int> serial{0};
  std::string url = fmt::format("{}://ranks-{}-{}", transport, getpid(), serial++);
  const bool called = std::string_view(transport) == "caller";
  Office office;
  if (called) open_office(&office);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  std::vector<std::thread> ranks;
  for (int r = 0; r < world; ++r) {
    ranks.emplace_back([&, r] {
      try {
        CommOptions options;
        options.rank = r;
        options.size = world;
        std::unique_ptr<Communicator> comm = called ? make_caller_group(r, world, world % 2 == 0)
                                                    : create_communicator(url, options);
        try {
          body(*comm);
        } catch (const std::exception& error) {
          comm->abort(error.what());
          throw;
        }
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  if (called) open_office(nullptr);
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace ds::test
