// This file implements the calls for the version, error messages, the log and the report about the
// machine.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "api/env_topology.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/device/plugin_device.h"
#include "data/text_plugin.h"
#include "engine/threads.h"
#include "kernels/cpu/kernel_facts.h"
#include "kernels/kernel.h"
#include "machine/host_topology.h"

namespace ds {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The facts that both forms of the report show.
struct EnvFacts {
  std::string system, cuda = describe_plugin_devices("cuda"), text = text_plugin_state();
  KernelFacts kernels = kernel_facts();
  HostTopology topology = host_topology(true);
  int64_t usable_cores = 0, cores = 0, memory = 0, free_memory = 0;
  // The lowest memory limit of the control groups that contain this process.
  std::optional<int64_t> memory_limit;
  // The implementations of each operation, in the order in which they are tried; `ref` supports
  // every type.
  std::map<std::string, std::vector<std::string>> implementations;
};

// Collects the facts on every call again, since memory and limits change.
EnvFacts env_facts() {
  EnvFacts out;
  utsname system{};
  uname(&system);
  int64_t page = sysconf(_SC_PAGESIZE);
  out.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  out.usable_cores = static_cast<int64_t>(usable_cpus().size());
  out.cores = sysconf(_SC_NPROCESSORS_ONLN);
  out.memory = sysconf(_SC_PHYS_PAGES) * page;
  out.free_memory = sysconf(_SC_AVPHYS_PAGES) * page;
  // Control groups are nested, and each of them limits this process.
  for (const GroupLimit& group : host_memory().groups)
    out.memory_limit = std::min(group.bytes, out.memory_limit.value_or(group.bytes));
  KernelRegistry registry = built_in_kernels();
  for (const KernelImpl& impl : registry.all()) out.implementations[impl.op].push_back(impl.name);
  return out;
}

std::string env_text(const EnvFacts& facts) {
  const KernelFacts& k = facts.kernels;
  std::string out = fmt::format("libds             {}\n", library_build());
  out += fmt::format("compiler          {}\n", __VERSION__);
  out += fmt::format("system            {}\n", facts.system);
  out += fmt::format("instruction sets  machine {}, in use {} (limit DS_MAX_ISA: {}; {})\n",
                     k.machine, k.in_use, k.limit.empty() ? "not set" : k.limit, k.choices);
  out += fmt::format("Highway           {}\noneDNN            {}, {}\n", k.highway, k.onednn,
                     k.onednn_isa);
  out += fmt::format("cores             {} of {} online, by the affinity mask\n",
                     facts.usable_cores, facts.cores);
  out += fmt::format("memory            {} MiB, {} MiB free, control group: {}\n",
                     facts.memory / kMiB, facts.free_memory / kMiB,
                     facts.memory_limit
                         ? fmt::format("at most {} MiB, swap included", *facts.memory_limit / kMiB)
                         : "no limit");
  out += topology_text(facts.topology);
  out += fmt::format("CUDA              {}\n", facts.cuda);
  out += fmt::format("text              {}\n", facts.text);
  out += "communicators\n";
  for (const auto& [url, description] : communicator_forms())
    out += fmt::format("  {:<18}{}\n", url, description);
  out += "kernels, in the order in which they are tried\n";
  size_t width = 0;
  for (const auto& [op, names] : facts.implementations) width = std::max(width, op.size());
  for (const auto& [op, names] : facts.implementations) {
    out += fmt::format("  {:<{}}  {}\n", op, width, fmt::join(names, ", "));
  }
  return out;
}

// Returns the report as JSON; docs/reference/reports.md describes the members.
Json env_json(const EnvFacts& facts) {
  const KernelFacts& k = facts.kernels;
  Json out, sets, communicators{Json::Object()}, kernels{Json::Object()};
  sets.set("machine", k.machine);
  sets.set("in_use", k.in_use);
  sets.set("limit", k.limit.empty() ? Json() : Json(k.limit));
  for (const auto& [url, description] : communicator_forms()) communicators.set(url, description);
  for (const auto& [op, names] : facts.implementations) {
    kernels.set(op, Json::Array(names.begin(), names.end()));
  }
  out.set("schema", 1);
  out.set("libds", library_build());
  out.set("compiler", __VERSION__);
  out.set("system", facts.system);
  out.set("instruction_sets", std::move(sets));
  out.set("highway", k.highway);
  out.set("onednn", k.onednn + ", " + k.onednn_isa);
  out.set("cores", facts.cores);
  out.set("usable_cores", facts.usable_cores);
  out.set("memory_bytes", facts.memory);
  out.set("free_memory_bytes", facts.free_memory);
  out.set("memory_limit_bytes", facts.memory_limit ? Json(*facts.memory_limit) : Json());
  out.set("topology", topology_json(facts.topology));
  out.set("cuda", facts.cuda);
  out.set("text", facts.text);
  out.set("communicators", std::move(communicators));
  out.set("kernels", std::move(kernels));
  return out;
}

}  // namespace
}  // namespace ds

// The texts that these functions return are static or belong to the thread. The functions cannot
// fail.
const char* ds_version(void) { return ds::library_version(); }

const char* ds_status_name(ds_status status) { return ds::status_name(status); }

const char* ds_last_error_message(void) { return ds::last_error(); }

// The texts belong to the thread and are valid as long as its error message.
void ds_last_error_details(const char** out_key, const char** out_tensor, int32_t* out_rank) {
  const ds::ErrorDetails& about = ds::last_details();
  if (out_key) *out_key = about.key.c_str();
  if (out_tensor) *out_tensor = about.tensor.c_str();
  if (out_rank) *out_rank = static_cast<int32_t>(about.rank);
}

// When this returns, the old callback has ended, so its user_data may be freed.
ds_status ds_log_set_fn(ds_log_fn* fn, void* user_data) {
  return ds::boundary([&] {
    if (!fn) return ds::set_log_sink({});
    ds::set_log_sink([fn, user_data](ds::LogLevel level, std::string_view line) {
      fn(static_cast<ds_log_level>(level), std::string(line).c_str(), user_data);
    });
  });
}

ds_status ds_env_report(ds_format format, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    bool json = ds::wants_json(format);
    ds::EnvFacts facts = ds::env_facts();
    ds::put_text(json ? ds::env_json(facts).dump(1) : ds::env_text(facts), out_text);
  });
}

// put_text() has allocated the text with malloc.
void ds_text_destroy(char* text) { std::free(text); }
