#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "comm/build_name.h"
#include "comm/exchange.h"

namespace ds {

// The first message between ranks without shared memory. As with BuildName, its layout never
// changes.
struct Greeting {
  BuildName build;
  // Identifies the running host: equal in all of its processes and different on every other host.
  uint64_t host;

  static Greeting own();
};

// The index of a rank among the ranks of its host, and the number of these ranks.
struct Neighbours {
  int rank = 0, size = 1;
};

// Returns this rank's place on its host; all[r] is the greeting of rank r. If another rank runs a
// different build, sets *reason, which must be empty, to a line that names both builds.
Neighbours meet_neighbours(const Membership& place, std::span<const Greeting> all,
                           std::string* reason);

}  // namespace ds
