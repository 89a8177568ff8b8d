#include "run/device.h"

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/named_device.h"
#include "run/keys.h"

namespace ds {
namespace {

// Returns why this machine does not have the device, or "" if it has it.
std::string why_absent(const std::string& name, int local_rank) {
  try {
    make_device(name, false, local_rank);
    return "";
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_UNSUPPORTED) throw;
    return error.what();
  }
}

}  // namespace

void settle_device(Config& config, Communicator& comm) {
  if (!names_cuda(config.device)) return;
  // Opening a faulty device may block, so the timeout must be set before.
  if (config.comm_timeout_ms > 0) comm.set_timeout(config.comm_timeout_ms);
  std::string mine;
  agree(comm, "device", [&] { mine = why_absent(config.device, comm.local_rank()); });
  std::vector<std::string> all = gather_texts(comm, mine, "device");
  auto absent =
      std::ranges::find_if(all, [](const std::string& reason) { return !reason.empty(); });
  // All ranks see the same reasons, so from here on all take the same branch.
  if (absent == all.end()) return;
  std::string where;
  if (all.size() > 1) where = "rank " + std::to_string(absent - all.begin()) + ": ";
  if (!config.get<RunKeys>().device_fallback) raise(DS_ERROR_UNSUPPORTED, "{}{}", where, *absent);
  config.device = "cpu";
  if (comm.rank() == 0)
    log_line(LogLevel::warning, where + *absent + "; the run goes on with the CPU");
}

}  // namespace ds
