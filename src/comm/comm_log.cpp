#include "comm/comm_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "core/base/collective_names.h"

namespace ds {
namespace {

std::string size_text(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, units[unit]);
}

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

uint64_t message_bytes(std::string_view operation, uint64_t bytes, int ranks) {
  const Collective* known = find_collective(operation);
  return known && known->block ? bytes * static_cast<uint64_t>(ranks) : bytes;
}

double algorithm_bandwidth(const CommTime& row) {
  return row.ns > 0 ? static_cast<double>(row.bytes) / static_cast<double>(row.ns) * 1e9 : 0;
}

// NCCL's factors: with n ranks, an all_gather or reduce_scatter of S bytes moves S (n-1)/n over
// each link, and an all_reduce twice that.
double bus_bandwidth(const CommTime& row) {
  const Collective* known = find_collective(row.operation);
  double share = static_cast<double>(row.ranks - 1) / row.ranks;
  double factor = 1;
  if (known && known->bus == Collective::Bus::shares) factor = share;
  if (known && known->bus == Collective::Bus::twice) factor = 2 * share;
  return factor * algorithm_bandwidth(row);
}

CommLog::CommLog(std::string group, int ranks, std::span<const std::string> operations)
    : group_(std::move(group)), ranks_(ranks), operations_(logged_operations(operations)) {
  times_.reserve(kBatch);
  row_of_time_.reserve(kBatch);
}

size_t CommLog::row_of(std::string_view operation, uint64_t size) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].size == size && rows_[i].operation == operation) return i;
  }
  CommTime row;
  row.group = group_;
  row.ranks = ranks_;
  row.operation = operation;
  row.size = size;
  rows_.push_back(std::move(row));
  return rows_.size() - 1;
}

// Sizes are rounded up to a power of two, so that a row collects calls of similar cost.
void CommLog::add(std::string_view operation, uint64_t bytes, uint64_t received, int64_t ns) {
  if (!operations_.empty() && !operations_.contains(operation)) return;
  uint64_t message = message_bytes(operation, bytes, ranks_);
  size_t at = row_of(operation, message == 0 ? 0 : std::bit_ceil(message));
  CommTime& row = rows_[at];
  ++row.calls;
  row.bytes += message == 0 ? received : message;
  row.ns += ns;
  if (of_two(operation)) return;
  times_.push_back(ns);
  row_of_time_.push_back(at);
}

// A rank's waiting time in a call is its time minus the time of the fastest rank, which came last
// and did not wait.
void CommLog::settle(std::span<const int64_t> least) {
  for (size_t i = 0; i < least.size(); ++i)
    rows_[row_of_time_[i]].waited_ns += times_[i] - least[i];
  times_.clear();
  row_of_time_.clear();
}

// These are the columns of the text form, in readable units.
std::vector<std::vector<std::string>> comm_log_table(std::span<const CommTime> rows) {
  std::vector<std::vector<std::string>> table{{"group", "ranks", "operation", "size to", "calls",
                                               "MiB", "ms", "us a call", "GB/s", "bus GB/s",
                                               "waited ms", "slowest"}};
  for (const CommTime& row : rows) {
    table.push_back({row.group, std::to_string(row.ranks), row.operation,
                     row.size == 0 ? "any" : size_text(row.size), std::to_string(row.calls),
                     fmt::format("{:.3f}", static_cast<double>(row.bytes) / (1 << 20)),
                     fmt::format("{:.3f}", ms(row.ns)),
                     fmt::format("{:.1f}", ms(row.ns) * 1e3 / static_cast<double>(row.calls)),
                     fmt::format("{:.3f}", algorithm_bandwidth(row) * 1e-9),
                     fmt::format("{:.3f}", bus_bandwidth(row) * 1e-9),
                     fmt::format("{:.3f}", ms(row.waited_ns)),
                     row.slowest < 0 ? "-" : fmt::format("rank {}", row.slowest)});
  }
  return table;
}

std::string comm_log_text(std::span<const CommTime> rows) {
  std::string out;
  for (const std::vector<std::string>& line : comm_log_table(rows)) {
    out += fmt::format("{:<16}{:>6}  {:<25}{:>9}{:>8}{:>12}{:>12}{:>12}{:>10}{:>10}{:>12}  {}\n",
                       line[0], line[1], line[2], line[3], line[4], line[5], line[6], line[7],
                       line[8], line[9], line[10], line[11]);
  }
  return out;
}

Json comm_log_json(std::span<const CommTime> rows) {
  Json::Array out;
  for (const CommTime& row : rows) {
    Json entry;
    entry.set("group", row.group);
    entry.set("ranks", row.ranks);
    entry.set("operation", row.operation);
    entry.set("size", static_cast<int64_t>(row.size));
    entry.set("calls", row.calls);
    entry.set("bytes", static_cast<int64_t>(row.bytes));
    entry.set("seconds", static_cast<double>(row.ns) * 1e-9);
    entry.set("algorithm_bytes_per_second", algorithm_bandwidth(row));
    entry.set("bus_bytes_per_second", bus_bandwidth(row));
    entry.set("waited_seconds", static_cast<double>(row.waited_ns) * 1e-9);
    entry.set("slowest_rank", row.slowest < 0 ? Json() : Json(row.slowest));
    out.push_back(std::move(entry));
  }
  Json log;
  log.set("schema", 1);
  log.set("rows", std::move(out));
  return log;
}

std::string comm_log_csv(std::span<const CommTime> rows) {
  std::string out =
      "group,ranks,operation,size,calls,bytes,seconds,algorithm_bytes_per_second,bus_bytes_per_"
      "second,waited_seconds,slowest_rank\n";
  for (const CommTime& row : rows) {
    out += fmt::format("{},{},{},{},{},{},{:.9f},{:.0f},{:.0f},{:.9f},{}\n", row.group, row.ranks,
                       row.operation, row.size, row.calls, row.bytes,
                       static_cast<double>(row.ns) * 1e-9, algorithm_bandwidth(row),
                       bus_bandwidth(row), static_cast<double>(row.waited_ns) * 1e-9, row.slowest);
  }
  return out;
}

}  // namespace ds
