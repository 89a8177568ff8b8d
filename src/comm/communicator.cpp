#include "comm/communicator.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "comm/plugin.h"
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

constexpr std::string_view kPlugins[] = {"mpi"};
constexpr std::string_view kNotBuilt[] = {"gloo", "nccl", "ccl", "hccl"};
// Rank and size as Open MPI, and as MPICH, Intel MPI and Slurm (PMI) tell a process they start.
constexpr std::array<std::pair<const char*, const char*>, 2> kMpiVariables = {
    {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}};

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

std::unique_ptr<Communicator> from_plugin(std::string_view name, const CommOptions& options) {
  const ds_plugin_transport_table* transport = load_transport(name);
  if (!transport) {
    raise(DS_ERROR_UNSUPPORTED,
          "comm url '{}' needs the plugin libds_{}.so: none beside libds or in DS_PLUGIN_PATH", name, name);
  }
  return make_linked(*transport, options);
}

std::unique_ptr<Communicator> from_mpi_environment(const CommOptions& options) {
  for (auto [rank, size] : kMpiVariables) {
    const char* world = std::getenv(size);
    if (!world || std::string_view(world) == "1") continue;
    CommOptions own = options;
    own.rank = environment_number(rank);
    own.size = environment_number(size);
    return create_communicator("mpi", own);
  }
  return make_loopback();
}

std::unique_ptr<Communicator> from_environment(const CommOptions& options) {
  const char* world = std::getenv("WORLD_SIZE");
  if (!world) return from_mpi_environment(options);
  if (std::string_view(world) == "1") return make_loopback();
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

// Whether a plugin is there and fits.
std::string plugin_state(std::string_view name) {
  try {
    return load_transport(name) ? "here" : "no plugin";
  } catch (const Error& error) {
    return error.what();
  }
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
  for (std::string_view name : kPlugins) {
    line(name, fmt::format("ranks that mpirun or srun started, on any hosts: {}", plugin_state(name)));
  }
  line("env", "what RANK, WORLD_SIZE and DS_COMM_URL (`libds launch`) or mpirun's variables say");
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
  for (std::string_view name : kPlugins) {
    if (url == name) return from_plugin(name, options);
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
  raise(DS_ERROR_INVALID_ARGUMENT, "comm url must be self, env, mpi, threads://NAME or shm://NAME, got '{}'",
        url);
}

}  // namespace ds
