#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "comm/build_name.h"
#include "comm/exchange.h"

namespace ds {

// The first thing that ranks without shared memory tell each other. As in BuildName, the layout
// never changes.
struct Greeting {
  BuildName build;
  uint64_t host;  // the same for all processes of a running host, and for no other host

  static Greeting own();
};

// This rank among those of its host, and how many they are.
struct Neighbours {
  int rank = 0, size = 1;
};

// all[r] is what rank r has told. Where two ranks run different builds, *reason is the line that
// names both.
Neighbours meet_neighbours(const Membership& place, std::span<const Greeting> all,
                           std::string* reason);

}  // namespace ds
