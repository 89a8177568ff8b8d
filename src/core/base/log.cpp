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

constexpr size_t max_queued = 10000;  // later lines are dropped and counted

struct Log {
  std::mutex mutex;
  std::condition_variable idle;
  std::shared_ptr<const LogSink> sink;  // null: stderr
  std::deque<std::pair<LogLevel, std::string>> queue;
  size_t dropped = 0;
  std::thread::id delivering;  // the thread that calls the sink now
};

Log& process_log() {
  static Log& log = *new Log;  // never ends: threads may log while the program exits
  return log;
}

// Every ds_ call takes the log's lock, so a fork waits for it: a child could never get it from a
// thread that it does not have. Nor does such a thread deliver any more in the child.
void hold_log() { process_log().mutex.lock(); }
void free_log() { process_log().mutex.unlock(); }
void inherit_log() {
  Log& log = process_log();
  if (log.delivering != std::this_thread::get_id()) log.delivering = std::thread::id();
  log.mutex.unlock();
}
[[maybe_unused]] const int survives_forks = pthread_atfork(hold_log, free_log, inherit_log);

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
  // The old sink is not running any more when this returns, so its user data may be freed.
  log.idle.wait(lock, [&] {
    return log.delivering == std::thread::id() || log.delivering == std::this_thread::get_id();
  });
  log.sink = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
}

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
  if (log.delivering != std::thread::id()) return;  // that thread delivers ours, too
  log.delivering = std::this_thread::get_id();
  while (!log.queue.empty() || log.dropped > 0) {
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
