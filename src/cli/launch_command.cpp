// Implements `libds launch`, and `libds agent`, which launch starts on other hosts. This file only
// parses the options and chooses between ranks on this host and agents on several hosts; launch/
// does the work. The option names of DeepSpeed's launcher are accepted besides those of libds.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "cli/commands.h"
#include "core/base/path_kind.h"
#include "launch/agent.h"
#include "launch/binding.h"
#include "launch/cluster.h"
#include "launch/env_file.h"
#include "launch/hostfile.h"
#include "launch/local_launch.h"
#include "launch/restarts.h"
#include "launch/slurm.h"
#include "launch/ssh.h"
#include "launch/starter.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

struct LaunchArgs {
  LaunchOptions local;
  std::string hostfile, include, exclude, starter, starter_args;
  int host_count = -1, ranks_per_host = -1, ssh_port = 0, least_ranks = 0;
  bool no_ssh_check = false;
};

// Returns the words after the options, which are the command to run; throws if there is none.
std::vector<std::string> command_words(const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  if (words.empty()) throw CLI::RequiredError(app.get_name() + ": a command");
  return words;
}

// Throws if an option is given that has a meaning only with a hostfile.
void refuse_without_hosts(const CLI::App& command) {
  for (const char* option : {"--include", "--exclude", "--num-nodes", "--num-ranks", "--launcher",
                             "--launcher-args", "--ssh-port", "--no-ssh-check"}) {
    if (command.count(option) > 0) throw CLI::ValidationError(option, "works only with --hostfile");
  }
}

// Checks that exactly one of -n, --hostfile and a Slurm job determines where the ranks run, and
// that the other options agree with it.
void check_place(const CLI::App& command, const LaunchArgs& args) {
  const bool count = command.count("-n") > 0, file = command.count("--hostfile") > 0;
  const bool slurm = args.starter == "srun" && !count && !file;
  if (slurm && !in_slurm_job()) {
    throw CLI::ValidationError(
        "--launcher",
        "srun without --hostfile uses the hosts of a Slurm job (sbatch, salloc), but "
        "SLURM_JOB_ID is not set");
  }
  if (count == file && !slurm) throw CLI::RequiredError("launch: one of -n and --hostfile");
  if (count) refuse_without_hosts(command);
  if (command.count("--num-nodes") + command.count("--num-ranks") > 0 &&
      !(args.include + args.exclude).empty())
    throw CLI::ValidationError("--num-nodes, --num-ranks", "exclude --include and --exclude");
  if (const std::string hint = made_hint(args.local.job.log_dir); !hint.empty())
    throw CLI::ValidationError(
        "--log-dir", fmt::format("'{}' cannot be created{}", args.local.job.log_dir, hint));
  if (args.local.restarts.most == 0 && command.count("--min-ranks") > 0)
    throw CLI::ValidationError("--min-ranks", "works only with --restarts");
}

// Returns the hosts of the hostfile or of the Slurm job, filtered and reduced as the options say.
Hosts hosts_of(const LaunchArgs& args) {
  std::optional<Hosts> all = args.hostfile.empty() ? slurm_hosts() : read_hostfile(args.hostfile);
  if (!all) {
    throw Failure(fmt::format("hostfile '{}': No such file or directory{}", args.hostfile,
                              open_hint(args.hostfile)));
  }
  Hosts hosts = filter_hosts(*all, args.include, args.exclude);
  return trim_hosts(hosts, args.host_count, args.ranks_per_host);
}

// Reads the file .deepspeed_env of DeepSpeed, or the file that DS_ENV_FILE names, first from the
// home folder and then from the current folder.
Variables file_variables() {
  const char* name = std::getenv("DS_ENV_FILE");
  const char* home = std::getenv("HOME");
  return read_env_files(name ? name : ".deepspeed_env", home ? home : "", ".");
}

// Returns the restart options for a job of `ranks` ranks. A job that Slurm restarted continues the
// count of its restarts.
RestartOptions restarts_of(const LaunchArgs& args, int ranks) {
  if (args.least_ranks > ranks) {
    throw CLI::ValidationError(
        "--min-ranks",
        fmt::format("must be at most the {} ranks of the job, got {}", ranks, args.least_ranks));
  }
  RestartOptions restarts = args.local.restarts;
  restarts.least_ranks = args.least_ranks > 0 ? args.least_ranks : ranks;
  if (args.starter != "srun" || !in_slurm_job()) return restarts;
  restarts.made = slurm_restarts();
  restarts.name = "slurm-" + slurm_job();
  return restarts;
}

int launch_here(const LaunchArgs& args, const std::vector<std::string>& words, int ranks) {
  LaunchOptions local = args.local;
  local.ranks = ranks;
  local.restarts = restarts_of(args, ranks);
  return launch(local, words);
}

// Starts agents, which start the ranks on their hosts: one agent for each rank or, with --launcher
// ssh, for each host. If this is the only host and no launcher is named, starts the ranks directly.
int launch_hosts(const LaunchArgs& args, const std::vector<std::string>& words) {
  Hosts hosts = hosts_of(args);
  bool here = hosts.size() == 1 && args.starter.empty() && is_this_host(hosts[0].name);
  if (here && !hosts[0].slots.empty()) return launch_here(args, words, rank_count(hosts));
  ClusterOptions options;
  options.restarts = restarts_of(args, rank_count(hosts));
  options.hosts = std::move(hosts);
  options.starter = args.starter == "srun"  ? Starter::srun
                    : args.starter == "ssh" ? Starter::ssh
                                            : Starter::mpirun;
  options.extra = args.starter_args;
  // The agents run this executable in this folder, so all hosts must share both paths.
  options.program = fs::read_symlink("/proc/self/exe").string();
  options.folder = fs::current_path().string();
  if (!args.local.job.log_dir.empty())
    options.log_dir = fs::absolute(args.local.job.log_dir).string();
  if (args.local.master_port != 0) options.master_port = args.local.master_port;
  options.variables = file_variables();
  options.binding = args.local.job.binding;
  options.ssh.port = args.ssh_port;
  options.ssh_check = !args.no_ssh_check;
  return launch_on_hosts(options, words);
}

// Adds the option --bind.
void add_bind(CLI::App& command, Binding& binding) {
  auto read = [&binding](const std::string& name) {
    try {
      binding = binding_of(name);
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError("--bind", error.what());
    }
  };
  command.add_option_function<std::string>(
      "--bind", read,
      "CPUs of a rank: none (all), cores (a part of them), numa (those of memory nodes)");
}

// Throws unless this is a starter of libds, by its own name or by DeepSpeed's (openmpi, slurm), or
// "".
void check_starter(const std::string& name) {
  for (const char* known : {"", "mpirun", "openmpi", "srun", "slurm", "ssh"}) {
    if (name == known) return;
  }
  throw CLI::ValidationError("--launcher",
                             fmt::format("must be mpirun, srun or ssh, got {}", name));
}

}  // namespace

void add_launch(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("launch", "Run a command once per rank, on this host or several");
  auto args = std::make_shared<LaunchArgs>();
  // Adds an integer option whose default is not shown.
  auto number = [&](const char* names, int& value, const char* text, int64_t low, int64_t high) {
    return command->add_option(names, value, text)
        ->check(integer_range(low, high))
        ->default_str("");
  };
  number("-n", args->local.ranks, "Ranks on this host", 1, 4096);
  command->add_option("-H,--hostfile", args->hostfile,
                      "File of lines HOST slots=N: a rank per slot");
  command->add_option("-i,--include", args->include, "Only these: HOST[:SLOT,...][@HOST...]");
  command->add_option("-e,--exclude", args->exclude, "All except these, in the same form");
  number("--num-nodes,--num_nodes", args->host_count, "Only the first hosts", 1, 4096);
  number("--num-ranks,--num_gpus,--num_accelerators", args->ranks_per_host,
         "Ranks of each host, instead of its slots", 1, 4096);
  command->add_option("--launcher", args->starter,
                      "The launcher that reaches the hosts: mpirun (over ssh), srun, or ssh alone");
  command->add_option("--launcher-args,--launcher_args", args->starter_args,
                      "More options for the launcher");
  number("--ssh-port,--ssh_port", args->ssh_port, "Port of ssh on the hosts", 1, 65535);
  command->add_flag("--no-ssh-check,--no_ssh_check", args->no_ssh_check,
                    "Do not log in to each host first");
  number("--restarts", args->local.restarts.most, "How often a job that fails is started again", 0,
         1000000);
  number("--min-ranks", args->least_ranks,
         "Restart on at least this many ranks; without it, on all", 1, 4096 * 4096);
  add_bind(*command, args->local.job.binding);
  number("--master-port,--master_port", args->local.master_port, "MASTER_PORT of the ranks", 1,
         65535);
  command->add_option("--log-dir,--enable_each_rank_log", args->local.job.log_dir,
                      "Folder for rank_N.log: output and errors of each rank");
  command->footer(
      "Examples:\n"
      "  libds launch -n 2 libds train --config examples/train.json --data FOLDER\n"
      "  libds launch -n 2 --restarts 3 libds train --config examples/train.json --data FOLDER "
      "--dir RUN\n"
      "  libds launch --hostfile HOSTS libds train --config examples/train.json --data FOLDER");
  // Parsing ends at the first word that is not an option, where the command to run begins.
  command->prefix_command();
  command->callback([=, &code] {
    check_starter(args->starter);
    if (args->starter == "slurm") args->starter = "srun";
    check_place(*command, *args);
    std::vector<std::string> words = command_words(*command);
    code = command->count("-n") > 0 ? launch_here(*args, words, args->local.ranks)
                                    : launch_hosts(*args, words);
  });
}

void add_agent(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("agent", "One rank of a job over several hosts: what launch starts there");
  // A command without a group is not shown in the help.
  command->group("");
  auto options = std::make_shared<AgentOptions>();
  command->add_option("--world", options->world)->required();
  command->add_option("--folder", options->folder)->required();
  command->add_option("--master-port", options->master_port)->check(integer_range(1, 65535));
  command->add_option("--log-dir", options->log_dir);
  command->add_option("--host", options->host);
  command->add_option("--url", options->url);
  add_bind(*command, options->binding);
  command->prefix_command();
  command->callback([=, &code] { code = run_agent(*options, command_words(*command)); });
}

}  // namespace ds::cli
