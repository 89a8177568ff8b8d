// This file queries Slurm through its command-line programs: scontrol expands lists of hosts and
// requeues the job, sinfo reports the states of hosts, and squeue the hosts that the job still has.
// Launchers write the number of restarts to a file in the working folder, because a requeued job
// begins with a new launcher.

#include "launch/slurm.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "launch/capture.h"
#include "launch/strings.h"

namespace ds {
namespace {

using Words = std::vector<std::string>;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

// Removes the number at the beginning of the text and returns it; returns -1 if the text begins
// with something else.
int take_number(std::string_view& text) {
  int number = -1;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{}) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// Runs one of Slurm's programs and returns its output.
Capture answer_of(const Words& words) {
  Capture answer(words, fmt::format("a job of Slurm needs {}", words[0]));
  answer.finish();
  return answer;
}

// Returns the host names in a list such as "n[1-3,7]".
Words names_of(const std::string& list) {
  const Capture answer = answer_of({"scontrol", "show", "hostnames", list});
  if (answer.code != 0)
    throw std::invalid_argument(
        fmt::format("SLURM_JOB_NODELIST={}: scontrol says: {}", list, last_line(answer.text)));
  return lines_of(answer.text);
}

// Returns whether a state says that the host is down, unknown or in error, or that Slurm has lost
// contact with it, which Slurm marks by a star.
bool is_down(std::string_view state) {
  return state.find('*') != state.npos || state.find("down") != state.npos || state == "unknown" ||
         state == "error";
}

std::map<std::string, std::string> states_of(const std::string& list) {
  std::map<std::string, std::string> states;
  const Capture answer = answer_of({"sinfo", "-h", "-N", "-n", list, "-o", "%N %T"});
  for (const std::string& line : lines_of(answer.code == 0 ? answer.text : "")) {
    const size_t blank = line.find(' ');
    if (blank != line.npos) states[line.substr(0, blank)] = line.substr(blank + 1);
  }
  return states;
}

std::string_view without_domain(std::string_view name) { return name.substr(0, name.find('.')); }

bool has(const Words& names, std::string_view host) {
  return std::ranges::any_of(
      names, [&](const std::string& name) { return without_domain(name) == without_domain(host); });
}

// Returns the hosts that the job no longer has, because Slurm removes hosts that fail from a job.
Words lost_hosts() {
  if (slurm_job().empty()) return {};
  const Capture answer = answer_of({"squeue", "-h", "-j", slurm_job(), "-o", "%N"});
  const std::string list(trimmed(answer.text));
  if (answer.code != 0 || list.empty()) return {};
  const Words present = names_of(list);
  Words lost;
  for (const std::string& name : names_of(variable("SLURM_JOB_NODELIST"))) {
    if (!has(present, name)) lost.push_back(name);
  }
  return lost;
}

}  // namespace

std::string slurm_job() { return variable("SLURM_JOB_ID"); }

bool in_slurm_job() { return !slurm_job().empty(); }

std::vector<int> parse_tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  for (std::string_view part : split(text, ',')) {
    int count = take_number(part), times = 1;
    if (part.starts_with("(x")) {
      part.remove_prefix(2);
      times = take_number(part);
      if (part == ")") part = {};
    }
    if (count < 0 || count > kMaxSlots || times < 1 || times > kMaxSlots || !part.empty()) {
      throw std::invalid_argument(
          fmt::format("SLURM_TASKS_PER_NODE must be like 2(x3),1 with numbers up to {}, got '{}'",
                      kMaxSlots, text));
    }
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
  }
  return tasks;
}

Hosts slurm_hosts() {
  if (!in_slurm_job())
    throw std::invalid_argument("there is no job of Slurm: SLURM_JOB_ID is not set");
  const Words names = names_of(variable("SLURM_JOB_NODELIST"));
  const bool counted =
      !variable("SLURM_NTASKS").empty() || !variable("SLURM_NTASKS_PER_NODE").empty();
  const std::vector<int> tasks = counted ? parse_tasks_per_node(variable("SLURM_TASKS_PER_NODE"))
                                         : std::vector<int>(names.size(), 1);
  if (tasks.size() != names.size()) {
    throw std::invalid_argument(
        fmt::format("SLURM_TASKS_PER_NODE='{}' is for {} hosts, but the job has {} ({})",
                    variable("SLURM_TASKS_PER_NODE"), tasks.size(), names.size(),
                    variable("SLURM_JOB_NODELIST")));
  }
  Hosts hosts;
  for (size_t i = 0; i < names.size(); ++i) {
    hosts.push_back({names[i], std::vector<int>(static_cast<size_t>(tasks[i]))});
    std::iota(hosts.back().slots.begin(), hosts.back().slots.end(), 0);
  }
  return hosts;
}

// The state of a host in Slurm is preferred to the message that the job has lost the host.
std::vector<std::string> slurm_troubles(const std::vector<std::string>& hosts) {
  std::string list;
  for (const std::string& host : hosts) list.append(without_domain(host)).append(",");
  const std::map<std::string, std::string> states = states_of(list);
  const Words lost = lost_hosts();
  std::vector<std::string> troubles;
  for (const std::string& host : hosts) {
    const auto state = states.find(std::string(without_domain(host)));
    std::string trouble;
    if (has(lost, host))
      trouble = fmt::format("job {} of Slurm has lost host '{}'", slurm_job(), host);
    if (state != states.end() && is_down(state->second))
      trouble = fmt::format("host '{}' is {} in Slurm", host, state->second);
    troubles.push_back(trouble);
  }
  return troubles;
}

namespace {

// Returns how often Slurm has requeued the job.
int requeues() {
  const std::string text = variable("SLURM_RESTART_COUNT");
  std::string_view rest = text;
  const int count = take_number(rest);
  return count > 0 && rest.empty() ? count : 0;
}

std::string note_path() { return fmt::format(".libds-restarts-{}", slurm_job()); }

}  // namespace

// The file of note_slurm_restarts() contains the number of restarts and how many of them were
// requeues. Requeues since the file was written are added.
int slurm_restarts() {
  std::string line;
  std::getline(std::ifstream(note_path()), line);
  std::string_view rest = line;
  const int made = take_number(rest);
  rest = trimmed(rest);
  const int of_slurm = take_number(rest);
  if (of_slurm < 0 || made < of_slurm || of_slurm > requeues()) return requeues();
  return made + requeues() - of_slurm;
}

void note_slurm_restarts(int made) {
  std::ofstream(note_path()) << fmt::format("{} {}\n", made, requeues());
}

void forget_slurm_restarts() { std::remove(note_path().c_str()); }

std::string slurm_requeue() {
  const Capture answer = answer_of({"scontrol", "requeue", slurm_job()});
  if (answer.code == 0) return "";
  const std::string reason = last_line(answer.text);
  return reason.empty() ? fmt::format("code {}", answer.code) : reason;
}

}  // namespace ds
