#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
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
// The plugins that this repository builds. Any other libds_NAME.so that is found works, too.
constexpr KnownPlugin kPlugins[] = {
    {"mpi", "ranks that mpirun or srun started, on any hosts"},
    {"tcp", "ranks that meet at tcp://HOST:PORT, on any hosts"},
};

// Returns whether the text can be the NAME of a file libds_NAME.so.
bool is_plugin_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// Loads a plugin and returns its functions. Throws DS_ERROR_UNSUPPORTED if the plugin is not found.
const ds_plugin_transport_table& transport_of(std::string_view name) {
  const ds_plugin_transport_table* transport = load_transport(name);
  if (!transport) {
    raise(DS_ERROR_UNSUPPORTED,
          "comm url '{0}' needs the plugin libds_{0}.so, which was not found: put one that exports "
          "ds_plugin_transport() (ds_plugin.h) beside libds or into a folder of DS_PLUGIN_PATH",
          name);
  }
  return *transport;
}

// Returns "here", "no plugin" or why the plugin that was found cannot be used, for
// communicator_forms().
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
  out.emplace_back(
      "env", "the group that libds launch, torchrun, mpirun or srun describes in its variables");
  out.emplace_back("env:URL", "their rank and size, over URL");
  out.emplace_back("ccl, hccl, NAME",
                   "any other transport: your own plugin libds_NAME.so, built with ds_plugin.h");
  return out;
}

namespace {

struct Address {
  std::string_view scheme;
  std::string name;
  bool shares_memory() const { return scheme == "threads" || scheme == "shm"; }
};

// Splits a url other than "env" and "self" into scheme and name. Checks the scheme and, if it
// shares memory, the length of the name.
Address address_of(std::string_view url) {
  const size_t colon = url.find("://");
  Address address{url.substr(0, colon), {}};
  if (colon != std::string_view::npos) address.name = url.substr(colon + 3);
  // torchrun's users call this transport "gloo".
  if (address.scheme == "gloo") address.scheme = "tcp";
  if (address.shares_memory()) {
    require(!address.name.empty() && address.name.size() <= 80,
            "comm url must be {}://NAME with 1 to 80 characters, got '{}'", address.scheme, url);
  } else if (!is_plugin_name(address.scheme)) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "comm url must be self, env, threads://NAME, shm://NAME or the name of a plugin, with or "
          "without ://ADDRESS; got '{}'",
          url);
  }
  return address;
}

// Checks that DS_COMM_URL, if it is set, names a known form of url or a plugin that is found. A
// single rank does not use it, but an invalid url is still an error.
void check_given_url() {
  const char* given = std::getenv("DS_COMM_URL");
  if (given == nullptr || *given == '\0' || std::string_view(given) == "self") return;
  try {
    const Address address = address_of(given);
    const bool known = std::ranges::any_of(
        kPlugins, [&](const KnownPlugin& plugin) { return plugin.name == address.scheme; });
    if (!known && !address.shares_memory()) transport_of(address.scheme);
  } catch (const Error& error) {
    throw Error(error.status(), fmt::format("DS_COMM_URL: {}", error.what()));
  }
}

// Creates the group that a url names. The url is not "env", and `options` has the final rank and
// size.
std::unique_ptr<Communicator> join(std::string_view url, const CommOptions& options) {
  require(options.size >= 1 && options.size <= kMostLinked, "size must be 1 to {}, got {}",
          kMostLinked, options.size);
  require(options.rank >= 0 && options.rank < options.size, "rank must be 0 to {}, got {}",
          options.size - 1, options.rank);
  if (url == "self") {
    require(options.size == 1, "comm url 'self' has one rank, got size {}", options.size);
    return make_loopback();
  }
  const Address address = address_of(url);
  const std::string& name = address.name;
  if (!address.shares_memory()) return make_linked(transport_of(address.scheme), name, options);
  require(options.size <= kMostSharing, "size must be 1 to {} over {}, got {}", kMostSharing,
          address.scheme, options.size);
  return make_shared(
      address.scheme == "threads" ? share_threads(name, options) : share_processes(name, options),
      options);
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
    if (url == "env") check_given_url();
    if (url.size() > 4 && place.size > 1) place.url = url.substr(4);
  }
  return join(place.url, own);
}

}  // namespace ds
