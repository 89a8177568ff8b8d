#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "core/base/path_kind.h"

namespace ds::cli {
namespace {

// Returns "yes" if the file system of the folder supports scratch files with O_DIRECT, otherwise
// "no" with the reason.
std::string direct_io(const std::string& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) return std::string("no: ") + std::strerror(errno) + open_hint(folder);
  ::close(fd);
  return "yes";
}

// Prints the library's report on the machine and, unless it is JSON, a line about O_DIRECT in
// `folder`.
void env(const std::string& folder, bool json) {
  if (json)
    return write_out(
        text_of([](char** out_text) { return ds_env_report(DS_FORMAT_JSON, out_text); }) + "\n");
  std::string report =
      text_of([](char** out_text) { return ds_env_report(DS_FORMAT_TEXT, out_text); });
  while (!report.empty() && report.back() == '\n') report.pop_back();
  write_out(fmt::format("{}\nO_DIRECT in '{}': {}\n", report, folder, direct_io(folder)));
}

}  // namespace

void add_env(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("env", "Say what libds finds on this machine");
  auto folder = std::make_shared<std::string>(".");
  command->add_option("folder", *folder, "Where offload to files would go");
  command->footer("Example: libds env /mnt/nvme");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON, without the folder");
  command->callback([folder, json] { env(*folder, *json); });
}

}  // namespace ds::cli
