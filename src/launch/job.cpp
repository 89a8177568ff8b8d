// Problem. The ranks of a job on one host must end together: after one failure every rank ends,
// with all processes that it has started, and the launcher names the rank that failed first,
// although that failure soon makes the others fail, too.
//
// Invariant. waitpid() is called for a rank only after its process group was killed (collect()), so
// no signal is ever sent to a process that got a rank's process id later. Once the ranks were sent
// signals because of a failure, or this launcher has reported a failure to its user, later failures
// are not the cause (fail()).
//
// Algorithm. One thread runs a loop, every 200 ms and at each signal (look()). It handles signals
// and orders, checks whether the launcher of a larger job can still be reached, collects ranks that
// have ended, and after a failure ends the remaining ones: they have grace_ms to end by themselves,
// then get SIGTERM, and SIGKILL term_ms later (press()). Blame decides which failure to name, by
// exit codes, signals and the ranks that others have reported as lost; the decision is final at
// most a second after the first failure (certain()).

#include "launch/job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "launch/reach.h"
#include "launch/strings.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kLookMs = 200;
// After this time, all failures that the first one caused are assumed to have occurred.
constexpr std::chrono::milliseconds kCertainMs{1000};

// Opens a rank's log and truncates it unless `append` is true. Returns -1 if the path is empty. The
// log must be a regular file without further hard links; a FIFO in its place does not block the
// launcher.
int open_log(const std::string& path, bool append) {
  if (path.empty()) return -1;
  int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  struct stat status {};
  bool good = fd >= 0 && fstat(fd, &status) == 0;
  int code = good && (!S_ISREG(status.st_mode) || status.st_nlink > 1) ? EINVAL : errno;
  good = good && code != EINVAL && (append || ftruncate(fd, 0) == 0) &&
         fcntl(fd, F_SETFL, O_APPEND) == 0;
  if (good) return fd;
  if (fd >= 0) close(fd);
  if (code == EINVAL)
    throw std::invalid_argument(fmt::format("log '{}' must be a regular file with one name", path));
  throw std::system_error(code, std::generic_category(), fmt::format("log '{}'", path));
}

// Returns how many processes of this machine the kernel has killed because the memory of the
// machine or of a control group ran out.
int64_t memory_kills() {
  const std::string text = "\n" + read_small_file("/proc/vmstat", "counters").value_or("");
  constexpr std::string_view kName = "\noom_kill ";
  const size_t at = text.find(kName);
  return at == text.npos ? 0 : std::strtoll(text.c_str() + at + kName.size(), nullptr, 10);
}

std::string on_host(const RankPlace& place) {
  return place.host.empty() ? "" : fmt::format(" on host '{}'", place.host);
}

}  // namespace

Job::Job(JobOptions options, std::vector<RankPlace> places, std::vector<std::string> command)
    : options_(std::move(options)),
      host_(options_.binding == Binding::none ? HostTopology{} : host_topology(false)),
      places_(std::move(places)),
      command_(std::move(command)),
      parent_(getppid()),
      signals_{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2},
      memory_kills_before_(memory_kills()) {}

Job::~Job() {
  stop(SIGKILL);
  for (pid_t pid : ranks_) {
    if (pid > 0) waitpid(pid, nullptr, 0);
  }
}

// If a rank cannot be started, the ranks after it are not started either.
void Job::start_all() {
  if (!options_.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options_.log_dir, error);
    if (error) throw std::system_error(error, fmt::format("log folder '{}'", options_.log_dir));
  }
  for (const RankPlace& place : places_) {
    if (!failed()) start(place);
  }
}

// Starts one rank. If the command cannot be run, it cannot be run for the other ranks either, so
// ranks that are running are killed and do not count as failed.
void Job::start(const RankPlace& place) {
  std::vector<std::string> variables = variables_of(place);
  variables.push_back(pipe_.variable());
  const BoundCpus bound = bound_cpus(host_, options_.binding, place.local_rank, place.local_size);
  for (std::string& variable : variables_of(bound)) variables.push_back(std::move(variable));
  int log = open_log(log_of(place.rank), options_.append);
  Started started = start_process(
      command_, variables,
      {.pipe = &pipe_, .mask = signals_.mask(), .output = log, .errors = log, .cpus = bound.cpus});
  if (log >= 0) close(log);
  if (started.error == 0) {
    ranks_.push_back(started.pid);
    ++running_;
    return;
  }
  fail({place.rank, started.error == ENOENT ? 127 : 126, false,
        fmt::format("'{}' cannot be run{}: {}", command_[0], on_host(place),
                    std::generic_category().message(started.error))});
  // The ranks that are killed here are not the cause.
  pressure_ = 2;
  stop(SIGKILL);
}

// A part of a larger job ends at once if its parent has changed, because the process that started
// it has died.
void Job::look() {
  obey(signals_.next(kLookMs));
  take_orders();
  look_at_daemon();
  if (options_.part && getppid() != parent_) {
    end_with_the_larger_job();
    stop(SIGKILL);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) collect(i);
  doubt_stop();
  if (failed() || ending_) press();
}

// Signals have other meanings in a part of a larger job: its launcher sends SIGUSR1 and SIGUSR2,
// because mpirun and srun use SIGINT, SIGTERM and SIGHUP themselves.
void Job::obey(int number) {
  if (options_.part && (number == SIGTERM || number == SIGINT || number == SIGHUP)) {
    end_with_the_larger_job();
    return;
  }
  if (options_.part && number == SIGUSR1) number = SIGINT;
  if (options_.part && number == SIGUSR2) number = SIGHUP;
  if (number == SIGINT || number == SIGTERM) stop(interrupts_++ == 0 ? SIGINT : SIGKILL);
  // A closed terminal may send several hangups; only the first is forwarded, and the ranks then
  // save and end.
  if (number == SIGHUP && interrupts_++ == 0) stop(SIGTERM);
}

// An order of any kind shows that the launcher is alive; the end of the stream means that it has
// ended.
void Job::take_orders() {
  if (options_.orders < 0) return;
  if (hears_nothing()) lose_launcher();
  pollfd ready{options_.orders, POLLIN, 0};
  while (options_.orders >= 0 && poll(&ready, 1, 0) > 0) {
    Order order{};
    silent_ = {};
    if (read(options_.orders, &order, 1) != 1) {
      lose_launcher();
    } else if (order == Order::interrupt || order == Order::hangup) {
      obey(order == Order::interrupt ? SIGUSR1 : SIGUSR2);
    } else if (order == Order::end && !ending_) {
      // The ranks have the same time to end as after a failure on this host.
      ending_ = true;
      if (!failed()) failed_ = Clock::now();
    }
  }
}

// Each interval between two calls counts as at most kLongestStep, so that time in which this
// process was stopped is not included.
bool Job::hears_nothing() {
  constexpr std::chrono::milliseconds kLongestStep{1000};
  const Clock::time_point now = Clock::now();
  if (looked_ != Clock::time_point{})
    silent_ += std::min(kLongestStep,
                        std::chrono::duration_cast<std::chrono::milliseconds>(now - looked_));
  looked_ = now;
  return silent_.count() > options_.silence_ms;
}

// Under mpirun, only its daemon is connected to the launcher, so this checks whether the daemon's
// connection is cut.
void Job::look_at_daemon() {
  constexpr std::chrono::seconds kBetweenLooks{2};
  if (options_.daemon == 0 || Clock::now() - looked_ < kBetweenLooks) return;
  looked_ = Clock::now();
  if (!is_cut_off(options_.daemon)) return;
  kill(std::exchange(options_.daemon, 0), SIGTERM);
  lose_launcher();
}

void Job::lose_launcher() {
  options_.orders = -1;
  end_with_the_larger_job();
  stop(SIGKILL);
}

// Sends SIGTERM now and SIGKILL after term_ms, and reports nothing.
void Job::end_with_the_larger_job() {
  if (ending_) return;
  ending_ = true;
  failed_ = Clock::now();
  options_.grace_ms = 0;
}

void Job::collect(size_t index) {
  pid_t& pid = ranks_[index];
  siginfo_t info{};
  if (pid == 0 || waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return;
  }
  // The group is killed before waitpid(), because until then its id cannot belong to another
  // process.
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  pid = 0;
  --running_;
  hear_ranks();
  bool exited = info.si_code == CLD_EXITED;
  const RankPlace& place = places_[index];
  if (exited && info.si_status == kStoppedCode && !stopped_)
    stopped_ = {.rank = place.rank, .code = kStoppedCode};
  if (exited && (info.si_status == 0 || info.si_status == kStoppedCode)) return;
  const int cause = cause_of(lost_, place.rank);
  std::string after = cause < 0 ? "" : fmt::format(" after it lost rank {}", cause);
  std::string log = log_of(place.rank);
  const bool no_memory =
      !exited && info.si_status == SIGKILL && memory_kills() > memory_kills_before_;
  fail({place.rank, exited ? info.si_status : 128 + info.si_status, !exited,
        fmt::format("rank {}{} {} {}{}{}{}", place.rank, on_host(place),
                    exited ? "exited with code" : "was killed by signal", info.si_status, after,
                    no_memory ? "; the kernel has ended a process because the memory of the "
                                "machine or of a control group ran out (libds env shows both "
                                "limits)"
                              : "",
                    log.empty() ? "" : fmt::format("; its output is in '{}'", log)),
        cause});
}

// A rank ended as if stopped, although this launcher did not forward a stop. If the others were
// stopped, too, they end soon; if not, they would wait for that rank forever.
void Job::doubt_stop() {
  if (running_ == 0 || failed() || ending_) return;
  std::string on =
      stopped_ ? on_host(places_[static_cast<size_t>(stopped_->rank - places_[0].rank)]) : "";
  std::optional<RankFailure> failure = doubt_.next(stopped_, interrupts_ > 0, on);
  if (!failure) return;
  fail(*failure);
  // The grace time is treated as over.
  failed_ = Clock::now() - std::chrono::milliseconds(options_.grace_ms);
}

void Job::hear_ranks() {
  for (auto [rank, culprit] : pipe_.taken()) {
    if (rank != culprit) lost_.emplace(rank, culprit);
  }
}

bool Job::certain() const {
  return running_ == 0 || pressure_ > 0 || Clock::now() - failed_ >= kCertainMs;
}

// A failure after the ranks were sent signals because of an earlier failure is not the cause. Nor
// is a failure after one was reported, except in a part of a larger job, whose launcher compares
// all reported failures.
void Job::fail(RankFailure failure) {
  if (!failed() && !ending_) failed_ = Clock::now();
  if (!failed() || (pressure_ == 0 && (options_.part || !told_))) news_ |= blame_.add(failure);
}

void Job::press() {
  auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - failed_).count();
  if (waited >= options_.grace_ms && pressure_ == 0) {
    ++pressure_;
    stop(SIGTERM);
  }
  if (waited >= options_.grace_ms + options_.term_ms && pressure_ == 1) {
    ++pressure_;
    stop(SIGKILL);
  }
}

void Job::stop(int number) {
  for (pid_t pid : ranks_) {
    if (pid > 0) kill(-pid, number);
  }
}

std::string Job::log_of(int rank) const {
  return options_.log_dir.empty() ? "" : fmt::format("{}/rank_{}.log", options_.log_dir, rank);
}

}  // namespace ds
