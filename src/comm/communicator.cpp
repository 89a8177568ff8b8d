#include "comm/communicator.h"

#include <charconv>
#include <cstdlib>

#include "comm/transport/transport.h"
#include "core/base/error.h"

namespace ds {

std::map<std::string, CommCount> Communicator::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

void Communicator::count(std::string_view operation, int64_t bytes) {
  std::lock_guard lock(mutex_);
  CommCount& c = counts_[std::string(operation)];
  ++c.calls;
  c.bytes += bytes;
}

namespace {

constexpr std::string_view kNotBuilt[] = {"mpi", "gloo", "nccl", "ccl", "hccl"};

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  if (!text) raise(DS_ERROR_INVALID_ARGUMENT, "comm url 'env' needs {} in the environment, got none", name);
  int value = 0;
  std::string_view word(text);
  auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  require(code == std::errc() && end == word.data() + word.size(), "{} must be an integer, got '{}'", name,
          word);
  return value;
}

std::unique_ptr<Communicator> from_environment(const CommOptions& options) {
  const char* world = std::getenv("WORLD_SIZE");
  if (!world || std::string_view(world) == "1") return make_loopback();
  const char* url = std::getenv("DS_COMM_URL");
  if (!url) {
    raise(DS_ERROR_UNSUPPORTED,
          "WORLD_SIZE is {}, but DS_COMM_URL is not set: start the ranks with `libds launch -n {}`", world,
          world);
  }
  require(std::string_view(url) != "env", "DS_COMM_URL must name a group, got 'env'");
  CommOptions own = options;
  own.rank = environment_number("RANK");
  own.size = environment_number("WORLD_SIZE");
  return create_communicator(url, own);
}

}  // namespace

std::string communicator_report() {
  std::string out;
  auto line = [&](std::string_view url, std::string_view what) {
    out += fmt::format("  {:<18}{}\n", url, what);
  };
  line("self", "one rank");
  line("threads://NAME", fmt::format("ranks are threads of one process, 1 to {}", kMaxRanks));
  line("shm://NAME", fmt::format("ranks are processes of one host, 1 to {}", kMaxRanks));
  line("env", "what RANK, WORLD_SIZE and DS_COMM_URL say (set by `libds launch`)");
  for (std::string_view known : kNotBuilt) line(fmt::format("{}://NAME", known), "not in this build");
  return out;
}

std::unique_ptr<Communicator> create_communicator(std::string_view url, const CommOptions& options) {
  if (url == "env") return from_environment(options);
  require(options.size >= 1 && options.size <= kMaxRanks, "size must be 1 to {}, got {}", kMaxRanks,
          options.size);
  require(options.rank >= 0 && options.rank < options.size, "rank must be 0 to {}, got {}", options.size - 1,
          options.rank);
  if (url == "self") {
    require(options.size == 1, "comm url 'self' has one rank, got size {}", options.size);
    return make_loopback();
  }
  size_t colon = url.find("://");
  std::string_view scheme = url.substr(0, colon);
  std::string name(colon == std::string_view::npos ? std::string_view() : url.substr(colon + 3));
  if (scheme == "threads" || scheme == "shm") {
    require(!name.empty() && name.size() <= 80,
            "comm url must be {}://NAME with 1 to 80 characters, got '{}'", scheme, url);
    return scheme == "threads" ? make_threads(name, options) : make_shm(name, options);
  }
  for (std::string_view known : kNotBuilt) {
    if (scheme == known)
      raise(DS_ERROR_UNSUPPORTED, "comm url '{}': the {} backend is not in this build", url, known);
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "comm url must be self, env, threads://NAME or shm://NAME, got '{}'", url);
}

}  // namespace ds
