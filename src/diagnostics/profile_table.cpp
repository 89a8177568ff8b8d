#include "diagnostics/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/base/error.h"
#include "core/program/cost.h"

namespace ds {
namespace {

std::string first_word(const std::string& label) { return label.substr(0, label.find(' ')); }

void add_row(ProfileRow& to, const ProfileRow& row) {
  to.calls += row.calls;
  to.seconds += row.seconds;
  to.limit += row.limit;
  to.flops += row.flops;
  to.bytes += row.bytes;
}

// Adds up rows with the same queue and name.
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

// Shown if a row was faster than its least time. The least time assumes that operands come from
// memory, but operands of small launches may come from a cache.
constexpr const char* kBeyond = ">100 %";

// Returns the line of a row. A cell is empty if there is no such number, for example the flops of a
// copy.
std::string line(const ProfileRow& row, double step, size_t width) {
  auto number = [](double value, double unit) {
    return value > 0 ? fmt::format("{:.3f}", value / unit) : "";
  };
  auto rate = [&](double amount) {
    return amount > 0 && row.seconds > 0 ? fmt::format("{:.1f}", amount / row.seconds * 1e-9) : "";
  };
  std::string calls = row.calls > 0 ? fmt::format("{:g}", row.calls) : "";
  return fmt::format("{:<8} {:<{}} {:>6} {:>10.3f} {:>8} {:>10} {:>9} {:>9} {:>8} {:>8}\n",
                     row.queue, row.name, width, calls, row.seconds * 1e3,
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
      fmt::format("{:<8} {:<{}} {:>6} {:>10} {:>8} {:>10} {:>9} {:>9} {:>8} {:>8}\n", "queue", "op",
                  width, "calls", "ms", "share", "GFLOP", "GB", "GFLOP/s", "GB/s", "of limit");
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

void StepProfile::add(std::span<const Trace::Span> spans, int64_t begin_ns, int64_t end_ns) {
  for (const Trace::Span& span : times_.add(spans, begin_ns, end_ns))
    files_.push_back(
        {span.track, span.name, 1, seconds_of(span), 0, 0, static_cast<double>(span.bytes), true});
}

// Times, and all numbers of file transfers, are sums over the steps, so they are divided by the
// number of steps; calls, flops and bytes of instructions are already per step.
ProfileTable StepProfile::table(const Peak& peak, bool by_instruction) const {
  const Program& program = times_.program();
  double steps = std::max(1, times_.steps());
  std::vector<ProfileRow> rows;
  double busy = 0;
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& instr = program.instrs[InstrId(i)];
    if (is_file_queue(instr.queue)) continue;
    Cost cost = instruction_cost(program, instr, program.bound);
    double seconds = times_.seconds(i) / steps,
           calls = static_cast<double>(program.runs(InstrId(i)));
    std::string name = by_instruction ? fmt::format("{} {}", i, times_.label(i)) : instr.def->name;
    rows.push_back({queue_name(instr.queue), std::move(name), calls, seconds,
                    calls * peak.seconds(cost), calls * cost.flops, calls * cost.bytes});
    busy += seconds;
  }
  for (ProfileRow row : files_) {
    if (!by_instruction) row.name = first_word(row.name);
    for (double* value : {&row.calls, &row.seconds, &row.bytes}) *value /= steps;
    rows.push_back(std::move(row));
  }
  rows = merged(std::move(rows));
  std::ranges::stable_sort(
      rows, [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  // The queues of a device overlap, so the sum of their times may exceed the time of the step; then
  // the time between instructions is 0.
  return {std::move(rows), times_.total() / steps, std::max(times_.total() / steps - busy, 0.0),
          peak};
}

}  // namespace ds
