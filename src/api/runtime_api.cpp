#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "api/boundary.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "engine/threads.h"
#include "kernels/cpu/features.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

// Implementations of each operation, in the order in which they are asked; ref takes every type.
std::string kernel_lines() {
  KernelRegistry registry = built_in_kernels();
  std::map<std::string, std::string> by_op;
  for (const KernelImpl& impl : registry.all()) {
    std::string& names = by_op[impl.op];
    names += (names.empty() ? "" : ", ") + impl.name;
  }
  size_t width = 0;
  for (const auto& [op, names] : by_op) width = std::max(width, op.size());
  std::string out;
  for (const auto& [op, names] : by_op) out += fmt::format("  {:<{}}  {}\n", op, width, names);
  return out;
}

std::string env_report() {
  utsname system{};
  uname(&system);
  int64_t page = sysconf(_SC_PAGESIZE);
  constexpr int64_t kMiB = int64_t{1} << 20;
  std::string out = fmt::format("libds             {}\n", library_build());
  out += fmt::format("compiler          {}\n", __VERSION__);
  out += fmt::format("system            {} {} {}\n", system.sysname, system.release, system.machine);
  for (const std::string& line : kernel_report()) out += line + "\n";
  out += fmt::format("cores             {} of {} online, by the affinity mask\n", usable_cpus().size(),
                     sysconf(_SC_NPROCESSORS_ONLN));
  out += fmt::format("memory            {} MiB, {} MiB free\n", sysconf(_SC_PHYS_PAGES) * page / kMiB,
                     sysconf(_SC_AVPHYS_PAGES) * page / kMiB);
  out += "communicators\n" + communicator_report();
  out += "kernels, in the order in which they are asked\n" + kernel_lines();
  return out;
}

}  // namespace
}  // namespace ds

const char* ds_version(void) { return ds::library_version(); }

const char* ds_status_name(ds_status status) { return ds::status_name(status); }

const char* ds_last_error_message(void) { return ds::last_error(); }

ds_status ds_log_set_fn(ds_log_fn* fn, void* user_data) {
  return ds::boundary([&] {
    if (!fn) return ds::set_log_sink({});
    ds::set_log_sink([fn, user_data](ds::LogLevel level, std::string_view line) {
      fn(static_cast<ds_log_level>(level), std::string(line).c_str(), user_data);
    });
  });
}

ds_status ds_env_report(char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary([&] { ds::put_text(ds::env_report(), buffer, buffer_size, out_size); });
}
