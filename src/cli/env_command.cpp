#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cli/commands.h"

namespace ds::cli {
namespace {

// Whether scratch files with O_DIRECT work on a folder's file system.
std::string direct_io(const std::string& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) return std::string("no: ") + std::strerror(errno);
  ::close(fd);
  return "yes";
}

void env(const std::string& folder) {
  std::string report = text_of(ds_env_report);
  while (!report.empty() && report.back() == '\n') report.pop_back();
  write_out(fmt::format("{}\nO_DIRECT in '{}': {}\n", report, folder, direct_io(folder)));
}

}  // namespace

void add_env(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("env", "Say what libds finds on this machine");
  auto folder = std::make_shared<std::string>(".");
  command->add_option("folder", *folder, "Where offload to files would go");
  command->footer("Example: libds env /mnt/nvme");
  command->callback([folder] { env(*folder); });
}

}  // namespace ds::cli
