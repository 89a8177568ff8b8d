#include "diagnostics/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/base/error.h"
#include "core/program/cost.h"

namespace ds {
namespace {

bool is_file(Queue queue) { return queue == Queue::read || queue == Queue::write; }

double seconds_of(const Trace::Span& span) { return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9; }

std::string first_word(const std::string& label) { return label.substr(0, label.find(' ')); }

void add_row(ProfileRow& to, const ProfileRow& row) {
  to.calls += row.calls;
  to.seconds += row.seconds;
  to.limit += row.limit;
  to.flops += row.flops;
  to.bytes += row.bytes;
}

// Adds rows of equal queue and name up; longest first.
std::vector<ProfileRow> merged(std::vector<ProfileRow> rows) {
  std::map<std::pair<std::string, std::string>, ProfileRow> by_name;
  for (ProfileRow& row : rows) {
    auto [at, fresh] = by_name.try_emplace({row.queue, row.name}, row);
    if (!fresh) add_row(at->second, row);
  }
  rows.clear();
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  return rows;
}

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "";
}

// Least times assume that operands come from memory; those of small launches come from a cache.
constexpr const char* kBeyond = ">100 %";

std::string line(const ProfileRow& row, double step, size_t width) {
  auto number = [](double value, double unit) {
    return value > 0 ? fmt::format("{:.3f}", value / unit) : "";
  };
  auto rate = [&](double amount) {
    return amount > 0 && row.seconds > 0 ? fmt::format("{:.1f}", amount / row.seconds * 1e-9) : "";
  };
  std::string calls = row.calls > 0 ? fmt::format("{:g}", row.calls) : "";
  return fmt::format("{:<8} {:<{}} {:>6} {:>10.3f} {:>8} {:>10} {:>9} {:>9} {:>8} {:>8}\n", row.queue,
                     row.name, width, calls, row.seconds * 1e3,
                     row.beside ? "beside" : share(row.seconds, step), number(row.flops, 1e9),
                     number(row.bytes, 1e9), rate(row.flops), rate(row.bytes),
                     row.limit > row.seconds ? kBeyond
                     : row.limit > 0         ? share(row.limit, row.seconds)
                                             : "");
}

}  // namespace

std::string ProfileTable::text() const {
  ProfileRow gap{"", "between instructions"}, whole{"", "step"};
  size_t width = gap.name.size();
  for (const ProfileRow& row : rows) {
    width = std::max(width, row.name.size());
    if (!row.beside) add_row(whole, row);
  }
  gap.seconds = between;
  whole.seconds = step;
  std::string out =
      fmt::format("{:<8} {:<{}} {:>6} {:>10} {:>8} {:>10} {:>9} {:>9} {:>8} {:>8}\n", "queue", "op", width,
                  "calls", "ms", "share", "GFLOP", "GB", "GFLOP/s", "GB/s", "of limit");
  for (const ProfileRow& row : rows) out += line(row, step, width);
  out += line(gap, step, width) + line(whole, step, width);
  if (out.find(kBeyond) == std::string::npos) return out;
  return out + kBeyond +
         ": faster than the limit, which reads operands from memory: they came from a cache\n";
}

Json ProfileTable::json() const {
  Json out;
  Json::Array list;
  for (const ProfileRow& row : rows) {
    Json one;
    one.set("queue", row.queue);
    one.set("name", row.name);
    one.set("calls", row.calls);
    one.set("seconds", row.seconds);
    one.set("flops", row.flops);
    one.set("bytes", row.bytes);
    one.set("limit_seconds", row.limit);
    list.push_back(std::move(one));
  }
  out.set("peak_f32_flops", peak.f32_flops);
  out.set("peak_bf16_flops", peak.bf16_flops);
  out.set("peak_bytes", peak.bytes);
  out.set("step_seconds", step);
  out.set("between_seconds", between);
  out.set("rows", std::move(list));
  return out;
}

StepProfile::StepProfile(const Program& step)
    : step_(step), seconds_(step.instrs.size(), 0), labels_(step.instrs.size()) {
  for (Position at; at != step.end(); at = step.next(at)) {
    if (step.takes_part(at) && !is_file(step.instrs[at.instr].queue)) inline_.push_back(at.instr.index());
  }
}

void StepProfile::add(std::span<const Trace::Span> spans, int64_t begin_ns, int64_t end_ns) {
  size_t at = 0;
  for (const Trace::Span& span : spans) {
    if (span.track == queue_name(Queue::read) || span.track == queue_name(Queue::write)) {
      files_.push_back(
          {span.track, span.name, 1, seconds_of(span), 0, 0, static_cast<double>(span.bytes), true});
      continue;
    }
    size_t index = at < inline_.size() ? inline_[at] : step_.instrs.size();
    bool known = at < inline_.size() && first_word(span.name) == step_.instrs[index].def->name;
    ensure(known, "span {} '{}' is none of the {} instructions of a step", at, span.name, inline_.size());
    seconds_[index] += seconds_of(span);
    labels_[index] = span.name;
    ++at;
  }
  ensure(at == inline_.size(), "{} of {} instructions have spans", at, inline_.size());
  total_ += static_cast<double>(end_ns - begin_ns) * 1e-9;
  ++steps_;
}

ProfileTable StepProfile::table(const Peak& peak, bool by_instruction) const {
  double steps = std::max(1, steps_);
  std::vector<ProfileRow> rows;
  double busy = 0;
  for (size_t i = 0; i < step_.instrs.size(); ++i) {
    const Instr& instr = step_.instrs[i];
    if (is_file(instr.queue)) continue;
    Cost cost = instruction_cost(step_, instr, step_.bound);
    double seconds = seconds_[i] / steps, calls = static_cast<double>(step_.runs(InstrId(i)));
    std::string name = by_instruction ? fmt::format("{} {}", i, labels_[i]) : instr.def->name;
    rows.push_back({queue_name(instr.queue), std::move(name), calls, seconds, calls * peak.seconds(cost),
                    calls * cost.flops, calls * cost.bytes});
    busy += seconds;
  }
  for (ProfileRow row : files_) {
    if (!by_instruction) row.name = first_word(row.name);
    for (double* value : {&row.calls, &row.seconds, &row.bytes}) *value /= steps;
    rows.push_back(std::move(row));
  }
  rows = merged(std::move(rows));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return {std::move(rows), total_ / steps, total_ / steps - busy, peak};
}

}  // namespace ds
