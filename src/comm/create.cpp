#include <fmt/core.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/environment.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "core/base/plugin.h"

namespace ds {

namespace {

struct KnownPlugin {
  std::string_view name, description;
};
// Those that this tree builds; any other NAME is looked for, too.
constexpr KnownPlugin kPlugins[] = {
    {"mpi", "ranks that mpirun or srun started, on any hosts"},
    {"tcp", "ranks that meet at tcp://HOST:PORT, on any hosts"},
};

// NAME of a file libds_NAME.so.
bool is_plugin_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::unique_ptr<Communicator> from_plugin(std::string_view name, const std::string& address,
                                          const CommOptions& options) {
  const ds_plugin_transport_table* transport = load_transport(name);
  if (!transport) {
    raise(DS_ERROR_UNSUPPORTED,
          "comm url '{0}' needs a plugin: a libds_{0}.so that exports ds_plugin_transport() as "
          "ds_plugin.h "
          "has it, beside libds or in a folder of DS_PLUGIN_PATH; there is none",
          name);
  }
  return make_linked(*transport, address, options);
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

std::vector<std::pair<std::string, std::string>> communicator_forms() {
  std::vector<std::pair<std::string, std::string>> out{
      {"self", "one rank"},
      {"threads://NAME", fmt::format("ranks are threads of one process, 1 to {}", kMostSharing)},
      {"shm://NAME", fmt::format("ranks are processes of one host, 1 to {}", kMostSharing)}};
  for (const auto& [name, description] : kPlugins)
    out.emplace_back(name, fmt::format("{}: {}", description, plugin_state(name)));
  out.emplace_back("env", "what the variables of libds launch, torchrun, mpirun or srun say");
  out.emplace_back("env:URL", "their rank and size, over URL");
  out.emplace_back("ccl, hccl, NAME",
                   "any other transport: a plugin libds_NAME.so of yours, made with ds_plugin.h");
  return out;
}

namespace {

std::unique_ptr<Communicator> join(std::string_view url, const CommOptions& options) {
  require(options.size >= 1 && options.size <= kMostLinked, "size must be 1 to {}, got {}",
          kMostLinked, options.size);
  require(options.rank >= 0 && options.rank < options.size, "rank must be 0 to {}, got {}",
          options.size - 1, options.rank);
  if (url == "self") {
    require(options.size == 1, "comm url 'self' has one rank, got size {}", options.size);
    return make_loopback();
  }
  size_t colon = url.find("://");
  std::string_view scheme = url.substr(0, colon);
  if (scheme == "gloo") scheme = "tcp";  // what torchrun's users call it
  std::string name(colon == std::string_view::npos ? std::string_view() : url.substr(colon + 3));
  if (scheme == "threads" || scheme == "shm") {
    require(!name.empty() && name.size() <= 80,
            "comm url must be {}://NAME with 1 to 80 characters, got '{}'", scheme, url);
    require(options.size <= kMostSharing, "size must be 1 to {} over {}, got {}", kMostSharing,
            scheme, options.size);
    return make_shared(
        scheme == "threads" ? share_threads(name, options) : share_processes(name, options),
        options);
  }
  if (is_plugin_name(scheme)) return from_plugin(scheme, name, options);
  raise(DS_ERROR_INVALID_ARGUMENT,
        "comm url must be self, env, threads://NAME, shm://NAME or the name of a plugin, with or "
        "without "
        "://ADDRESS; got '{}'",
        url);
}

}  // namespace

std::unique_ptr<Communicator> create_communicator(std::string_view url,
                                                  const CommOptions& options) {
  CommOptions own = options;
  Place place{.url = std::string(url)};
  if (url == "env" || url.starts_with("env:")) {
    place = place_of_environment([](const char* name) { return std::getenv(name); });
    own.rank = place.rank;
    own.size = place.size;
    if (url.size() > 4 && place.size > 1) place.url = url.substr(4);
  }
  return join(place.url, own);
}

}  // namespace ds
