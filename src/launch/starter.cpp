// This file builds the command lines of mpirun, srun and ssh.
#include "launch/starter.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "launch/agent.h"
#include "launch/strings.h"

namespace ds {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Returns the words, joined by blanks.
std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The command line has one part per host, because mpirun would otherwise number the ranks of its
// own host first.
Words mpirun_words(const ClusterOptions& options, const Words& names, const Words& agent) {
  Words words = {"mpirun", "-q", "--bind-to", "none", "--stdin", "none"};
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  append(words, {"--mca", "orte_keep_fqdn_hostnames", "1"});
  append(words, {"--mca", "plm_rsh_args", joined(ssh_words(options.ssh))});
  // After a failure, mpirun sends SIGCONT, waits this many seconds, sends SIGTERM, waits as many
  // again, and sends SIGKILL.
  append(words, {"--mca", "odls_base_sigkill_timeout", "2"});
  // With these options, mpirun and its daemons notice within half a minute, not ten minutes, that
  // the connection between them is cut.
  append(words, {"--mca", "oob_tcp_keepalive_time", "10"});
  append(words, {"--mca", "oob_tcp_keepalive_intvl", "5"});
  append(words, {"--mca", "oob_tcp_keepalive_probes", "4"});
  append(words, words_of(options.extra));
  for (const Host& host : options.hosts) {
    std::string ranks = std::to_string(host.slots.size());
    if (&host != &options.hosts[0]) words.push_back(":");
    append(words, {"--host", host.name + ":" + ranks, "-n", ranks});
    for (const std::string& name : names) append(words, {"-x", name});
    append(words, agent);
  }
  return words;
}

// srun runs the same number of ranks on each host, in blocks, so that ranks have the order of the
// hosts.
Words srun_words(const ClusterOptions& options) {
  size_t each = options.hosts[0].slots.size();
  std::string list;
  for (const Host& host : options.hosts) {
    if (host.slots.size() != each) {
      throw std::invalid_argument(
          fmt::format("srun starts the same number of ranks on each host, but '{}' has {} slots "
                      "and '{}' has {}; use --launcher mpirun or --num-ranks",
                      options.hosts[0].name, each, host.name, host.slots.size()));
    }
    list += (list.empty() ? "" : ",") + host.name;
  }
  return {"srun",
          "--mpi=pmix",
          fmt::format("--nodes={}", options.hosts.size()),
          fmt::format("--ntasks={}", rank_count(options.hosts)),
          fmt::format("--ntasks-per-node={}", each),
          fmt::format("--nodelist={}", list),
          "--distribution=block",
          "--cpu-bind=none",
          "--input=none",
          "--kill-on-bad-exit=1",
          "--export=ALL",
          "--quiet"};
}

// Returns the words for the agent and its options; the command must follow.
Words agent_words(const ClusterOptions& options) {
  Words words = {
      options.program, "agent",        "--world",       world_text(options.hosts),
      "--folder",      options.folder, "--master-port", std::to_string(options.master_port)};
  if (!options.log_dir.empty()) append(words, {"--log-dir", options.log_dir});
  if (options.binding != Binding::none) append(words, {"--bind", binding_name(options.binding)});
  return words;
}

}  // namespace

bool forwarded(std::string_view name) {
  constexpr std::array<std::string_view, 6> kBeginnings = {"DS_", "MLFLOW", "PYTHON",
                                                           "UCX", "NCCL",   "OMP_"};
  constexpr std::array<std::string_view, 2> kNames = {"PATH", "LD_LIBRARY_PATH"};
  // These variables are valid only for this process.
  for (std::string_view own : {"DS_COMM_URL", "DS_LAUNCHER_PIPE", "DS_CPU_RANK", "DS_CPU_RANKS"}) {
    if (name == own) return false;
  }
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view begin) { return name.substr(0, begin.size()) == begin; });
}

Words ssh_agent_words(const ClusterOptions& options, size_t host, const std::string& url,
                      const Words& command) {
  Words agent = agent_words(options);
  append(agent, {"--host", std::to_string(host), "--url", url, "--"});
  append(agent, command);
  const std::string& name = options.hosts[host].name;
  if (is_this_host(name)) return agent;
  std::string line = "exec";
  for (const std::string& word : agent) line += " " + shell_word(word);
  Words words = {"ssh", "-T"};
  append(words, ssh_words(options.ssh));
  append(words, words_of(options.extra));
  append(words, {name, line});
  return words;
}

Words starter_words(const ClusterOptions& options, const Words& names, const Words& command) {
  if (std::find(command.begin(), command.end(), ":") != command.end())
    throw std::invalid_argument(
        "command: mpirun does not accept the word ':'; put the command into a script");
  Words agent = agent_words(options);
  append(agent, command);
  if (options.starter == Starter::mpirun) return mpirun_words(options, names, agent);
  Words words = srun_words(options);
  append(words, words_of(options.extra));
  append(words, agent);
  return words;
}

}  // namespace ds
