#include "comm/greeting.h"

#include <unistd.h>

#include <cstddef>

#include "core/base/hash.h"
#include "core/base/host_memory.h"

namespace ds {

// The host name is part of the hash, because containers of one machine may share its identity.
Greeting Greeting::own() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return {BuildName::own(), hash64(machine_identity() + "/" + name)};
}

// Only the first difference is reported, since one is enough to refuse the group.
Neighbours meet_neighbours(const Membership& place, std::span<const Greeting> all,
                           std::string* reason) {
  Neighbours out;
  const auto own = static_cast<size_t>(place.rank);
  for (size_t r = 0; r < all.size(); ++r) {
    std::string difference =
        builds_differ(place.world[own], all[own].build, place.world[r], all[r].build);
    if (reason->empty()) *reason = difference;
    const bool near = r != own && all[r].host == all[own].host;
    out.size += near ? 1 : 0;
    out.rank += near && r < own ? 1 : 0;
  }
  return out;
}

}  // namespace ds
