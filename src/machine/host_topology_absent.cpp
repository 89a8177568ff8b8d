// Replaces host_topology.cpp in a build without the header of hwloc.
#include "machine/host_topology.h"

namespace ds {

HostTopology host_topology(bool) {
  HostTopology none;
  none.absent = "this build has no hwloc (package libhwloc-dev)";
  return none;
}

}  // namespace ds
