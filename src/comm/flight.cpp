#include "comm/flight.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>

#include "core/base/file_stream.h"
#include "core/base/log.h"
#include "core/base/process_mark.h"
#include "core/base/signals.h"

namespace ds {
namespace {

int64_t clock_ms() {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

std::string time_text(int64_t ms) {
  time_t seconds = ms / 1000;
  tm parts;
  gmtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", parts.tm_hour, parts.tm_min, parts.tm_sec,
                     ms % 1000);
}

std::string date_text(int64_t ms) {
  time_t seconds = ms / 1000;
  tm parts;
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     time_text(ms));
}

// Writes a file completely or not at all, so that a reader never sees half of it. Returns 0, or the
// errno of the failure.
int write_whole(const std::string& path, const std::string& text) {
  SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
  std::string part = path + ".part";
  std::remove(part.c_str());
  errno = 0;
  OutputFile file(part);
  file << text;
  file.close();
  int code = file ? 0 : errno;
  if (code == 0 && std::rename(part.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) std::remove(part.c_str());
  return code;
}

constexpr const char* kStates[] = {"running", "done", "failed"};

}  // namespace

FlightRecord::FlightRecord(int rank, int size)
    : rank_(rank), size_(size), process_(this_process().number) {}

// The record is a ring of kKept entries; operation n has entry n % kKept.
uint64_t FlightRecord::start(std::string_view group, std::string_view operation,
                             const Intent& intent) {
  if (this_process().number != process_) return 0;
  int64_t now = clock_ms();
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[next_ % kKept];
  entry.intent = intent;
  put_text(entry.operation, sizeof entry.operation, operation);
  put_text(entry.group, sizeof entry.group, group);
  entry.begun_ms = now;
  entry.state = State::running;
  return next_++;
}

// If kKept operations have started since, the entry belongs to a later operation and is not
// changed.
void FlightRecord::end(uint64_t number, bool good) {
  if (this_process().number != process_) return;
  int64_t now = clock_ms();
  std::lock_guard lock(mutex_);
  if (next_ - number > kKept) return;
  Entry& entry = entries_[number % kKept];
  entry.ended_ms = now;
  entry.state = good ? State::done : State::failed;
}

std::string FlightRecord::text() const {
  std::lock_guard lock(mutex_);
  return text_locked();
}

// An intent's operation is "NAME DETAIL". In the line, the detail comes after the label.
std::string FlightRecord::text_locked() const {
  uint64_t kept = std::min<uint64_t>(next_, kKept);
  std::string out = fmt::format("rank {} of {}: the last {} of {} operations at {} UTC; {}\n",
                                rank_, size_, kept, next_, date_text(clock_ms()),
                                reason_.empty() ? "no failure" : "ended by: " + reason_);
  out += fmt::format("{:<24}{:>10}  {:<14}{:<14}{:<9}{:<25}{:>14}  {}\n", "group", "number",
                     "started", "ended", "state", "operation", "bytes", "label");
  for (uint64_t i = next_ - kept; i < next_; ++i) {
    const Entry& entry = entries_[i % kKept];
    const Intent& intent = entry.intent;
    const char* space = std::strchr(intent.operation, ' ');
    out += fmt::format("{:<24}{:>10}  {:<14}{:<14}{:<9}{:<25}{:>14}  '{}'{}\n", entry.group,
                       intent.sequence, time_text(entry.begun_ms),
                       entry.state == State::running ? "" : time_text(entry.ended_ms),
                       kStates[static_cast<int>(entry.state)], entry.operation, intent.bytes,
                       intent.label, space ? space : "");
  }
  return out;
}

Json FlightRecord::json() const {
  std::lock_guard lock(mutex_);
  Json::Array operations;
  for (uint64_t i = next_ - std::min<uint64_t>(next_, kKept); i < next_; ++i) {
    const Entry& entry = entries_[i % kKept];
    const Intent& intent = entry.intent;
    const char* space = std::strchr(intent.operation, ' ');
    Json row;
    row.set("group", entry.group);
    row.set("number", static_cast<int64_t>(intent.sequence));
    row.set("started_ms", entry.begun_ms);
    row.set("ended_ms", entry.state == State::running ? Json() : Json(entry.ended_ms));
    row.set("state", kStates[static_cast<int>(entry.state)]);
    row.set("operation", entry.operation);
    row.set("detail", space ? space + 1 : "");
    row.set("bytes", static_cast<int64_t>(intent.bytes));
    row.set("label", intent.label);
    operations.push_back(std::move(row));
  }
  Json out;
  out.set("schema", 1);
  out.set("rank", rank_);
  out.set("ranks", size_);
  out.set("made", static_cast<int64_t>(next_));
  out.set("ended_by", reason_.empty() ? Json() : Json(reason_));
  out.set("operations", std::move(operations));
  return out;
}

void FlightRecord::set_folder(std::string folder) {
  std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
  written_ = false;
}

std::string FlightRecord::folder() const {
  std::lock_guard lock(mutex_);
  return folder_;
}

// The reason is kept even without a folder, so that text() includes it. Only the first reason is
// kept, because later ones follow from it.
void FlightRecord::write(std::string_view reason) noexcept try {
  if (this_process().number != process_) return;
  std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
  if (folder_.empty() || written_) return;
  written_ = true;
  // If the folder cannot be created, writing the file fails below, and that failure is logged.
  mkdir(folder_.c_str(), 0777);
  std::string path = fmt::format("{}/rank_{}.txt", folder_, rank_);
  int code = write_whole(path, text_locked());
  if (code != 0) {
    log_line(LogLevel::warning,
             fmt::format("flight record '{}' cannot be written: {}", path, std::strerror(code)));
  }
} catch (const std::exception&) {
  // Memory has run out; the error that is being handled is reported anyway.
}

}  // namespace ds
