#include "core/base/log.h"

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/base/signals.h"

namespace ds {
namespace {

// Largest number of queued lines; later lines are dropped and counted.
constexpr size_t max_queued = 10000;

// The state of the process's log. `mutex` is never held while a sink runs, so a sink may log and
// may replace itself.
struct Log {
  std::mutex mutex;
  std::condition_variable idle;
  // Null means stderr.
  std::shared_ptr<const LogSink> sink;
  std::deque<std::pair<LogLevel, std::string>> queue;
  size_t dropped = 0;
  // The thread that is calling the sink now.
  std::thread::id delivering;
};

Log& process_log() {
  // The log is never destroyed, since threads may log while the process exits.
  static Log& log = *new Log;
  return log;
}

// A fork waits for the log's lock. Otherwise the child could inherit a lock held by a thread that
// exists only in the parent, and could never take it. For the same reason the child forgets a
// delivery by any thread other than the one that forked.
void hold_log() { process_log().mutex.lock(); }
void free_log() { process_log().mutex.unlock(); }
void inherit_log() {
  Log& log = process_log();
  if (log.delivering != std::this_thread::get_id()) log.delivering = std::thread::id();
  log.mutex.unlock();
}
[[maybe_unused]] const int survives_forks = pthread_atfork(hold_log, free_log, inherit_log);

// Writes warnings and errors to stderr. Blocking SIGPIPE and SIGXFSZ keeps the write from ending
// the host process if stderr is a closed pipe or a file at its size limit.
void write_stderr(LogLevel level, std::string_view line) {
  if (level < LogLevel::warning) return;
  std::string text = level == LogLevel::warning ? "libds: warning: " : "libds: error: ";
  text.append(line).push_back('\n');
  SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

void set_log_sink(LogSink sink) {
  Log& log = process_log();
  std::unique_lock lock(log.mutex);
  // Waits until the old sink has ended, so that its user data may be freed.
  log.idle.wait(lock, [&] {
    return log.delivering == std::thread::id() || log.delivering == std::this_thread::get_id();
  });
  log.sink = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
}

// The default sink needs no callback of the host, so its lines are written at once.
void log_line(LogLevel level, std::string_view line) {
  Log& log = process_log();
  std::lock_guard lock(log.mutex);
  if (!log.sink) {
    write_stderr(level, line);
  } else if (log.queue.size() < max_queued) {
    log.queue.emplace_back(level, std::string(line));
  } else {
    ++log.dropped;
  }
}

void flush_log() {
  Log& log = process_log();
  std::unique_lock lock(log.mutex);
  // The delivery that is under way includes our lines.
  if (log.delivering != std::thread::id()) return;
  log.delivering = std::this_thread::get_id();
  while (!log.queue.empty() || log.dropped > 0) {
    // All queued lines are taken at once, and the sink is called without the lock. Lines that are
    // logged meanwhile wait for the next iteration.
    auto queue = std::exchange(log.queue, {});
    if (size_t dropped = std::exchange(log.dropped, 0); dropped > 0) {
      queue.emplace_back(LogLevel::warning, std::to_string(dropped) + " log lines were dropped");
    }
    auto sink = log.sink;
    lock.unlock();
    for (const auto& [level, line] : queue) {
      if (sink) {
        (*sink)(level, line);
      } else {
        write_stderr(level, line);
      }
    }
    lock.lock();
  }
  log.delivering = std::thread::id();
  log.idle.notify_all();
}

}  // namespace ds
