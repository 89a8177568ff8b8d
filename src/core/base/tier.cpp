#include "core/base/tier.h"

namespace ds {

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::nvme:
      return "nvme";
  }
  return "unknown";
}

}  // namespace ds
