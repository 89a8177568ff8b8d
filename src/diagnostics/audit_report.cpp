// Ranks exchange verdicts as lines of text, one for each instruction in the order of the program,
// which is the same on all ranks. The table shows the worst verdict of each instruction, with the
// largest shares of bounds first, so the reasons of a failed audit are at the top.

#include "diagnostics/audit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "exec/executor.h"

namespace ds {
namespace {

using How = Verdict::How;

// Returns a line for each instruction: how, error, bound, where.
std::string lines_of(const std::vector<Verdict>& verdicts) {
  std::string out;
  for (const Verdict& v : verdicts) {
    out += fmt::format("{} {} {} {}\n", static_cast<int>(v.how), v.error, v.bound, v.where);
  }
  return out;
}

// Parses the lines of a rank. std::from_chars accepts infinity and NaN as fmt writes them.
std::vector<Verdict> verdicts_of(const std::string& lines) {
  std::vector<Verdict> out;
  std::istringstream text(lines);
  for (std::string line; std::getline(text, line);) {
    const char* const end = line.data() + line.size();
    const auto past_space = [end](const char* at) { return at < end && *at == ' ' ? at + 1 : at; };
    Verdict v;
    int how = 0;
    const char* at = past_space(std::from_chars(line.data(), end, how).ptr);
    at = past_space(std::from_chars(at, end, v.error).ptr);
    at = past_space(std::from_chars(at, end, v.bound).ptr);
    v.how = static_cast<How>(how);
    v.where.assign(at, end);
    out.push_back(std::move(v));
  }
  return out;
}

const char* how_name(How how) {
  return how == How::bits ? "bits" : how == How::bound ? "bound" : "not audited";
}

std::string number(double x) { return fmt::format("{:.3g}", x); }

// Returns the first column: "same" or "other" for a comparison of bits, "-" without an audit, the
// share of the bound otherwise.
std::string share_text(const Verdict& v) {
  if (v.how == How::unaudited) return "-";
  return v.how == How::bits ? (v.passed() ? "same" : "other") : number(v.share());
}

std::string row_text(const AuditRow& row, size_t width) {
  const Verdict& v = row.verdict;
  bool bits = v.how != How::bound;
  return fmt::format("{:>7} {:>9} {:>9} {:>6} {:>4}  {:<{}}  {}\n", share_text(v),
                     bits && v.passed() ? "" : number(v.error), bits ? "" : number(v.bound),
                     row.instr, row.rank, row.label, width, v.where);
}

}  // namespace

int AuditReport::failed() const {
  return static_cast<int>(
      std::ranges::count_if(rows, [](const AuditRow& row) { return !row.verdict.passed(); }));
}

std::map<std::string, int> AuditReport::unaudited() const {
  std::map<std::string, int> out;
  for (const AuditRow& row : rows) {
    if (row.verdict.how != How::unaudited) continue;
    ++out[fmt::format("{} ({})", row.label.substr(0, row.label.find(' ')), row.verdict.where)];
  }
  return out;
}

std::string AuditReport::text(size_t top) const {
  size_t shown =
      top == 0 ? rows.size() : std::min(rows.size(), std::max(top, static_cast<size_t>(failed())));
  size_t width = 11;
  for (size_t i = 0; i < shown; ++i) width = std::max(width, rows[i].label.size());
  std::string out = fmt::format("{}\n\n{:>7} {:>9} {:>9} {:>6} {:>4}  {:<{}}  {}\n", title, "ratio",
                                "error", "bound", "instr", "rank", "instruction", width, "element");
  for (size_t i = 0; i < shown; ++i) out += row_text(rows[i], width);
  if (!ending.empty()) out += "\n" + ending + "\n";
  std::string left_out;
  for (const auto& [name, times] : unaudited()) {
    left_out += fmt::format("{} {} x {}", left_out.empty() ? "\nnot audited:" : ",", times, name);
  }
  return out + left_out + "\n" + verdict() + "\n";
}

std::string AuditReport::verdict() const {
  if (failed() > 0) {
    const AuditRow& worst = rows.front();
    return fmt::format("FAILED: {} of {} instructions; the worst is {}, {}, on rank {}", failed(),
                       rows.size(), worst.instr, worst.label, worst.rank);
  }
  auto count = [&](How how) {
    return std::ranges::count_if(rows, [&](const AuditRow& r) { return r.verdict.how == how; });
  };
  return fmt::format(
      "passed: {} instructions, {} within their bounds, {} equal bit by bit, {} not audited",
      rows.size(), count(How::bound), count(How::bits), count(How::unaudited));
}

Json AuditReport::json() const {
  Json list{Json::Array{}};
  for (const AuditRow& row : rows) {
    const Verdict& v = row.verdict;
    Json one;
    one.set("instruction", int64_t{row.instr.number()});
    one.set("label", row.label);
    one.set("rank", row.rank);
    one.set("checked", how_name(v.how));
    one.set("passed", v.passed());
    if (std::isfinite(v.share())) one.set("ratio", v.share());
    if (std::isfinite(v.error)) one.set("error", v.error);
    one.set("bound", v.bound);
    one.set("where", v.where);
    list.array().push_back(std::move(one));
  }
  Json out;
  out.set("schema", 1);
  out.set("title", title);
  if (!ending.empty()) out.set("ending", ending);
  out.set("failed", failed());
  out.set("verdict", verdict());
  out.set("rows", std::move(list));
  return out;
}

// Every rank receives the verdicts of all ranks and keeps, for each instruction, the verdict with
// the largest share, so all ranks get the same rows.
std::vector<AuditRow> merge_verdicts(const Program& program, const std::vector<Verdict>& verdicts,
                                     Communicator& comm) {
  std::vector<AuditRow> rows;
  int rank = 0;
  for (const std::string& lines : gather_texts(comm, lines_of(verdicts), "audit")) {
    std::vector<Verdict> theirs = verdicts_of(lines);
    ensure(theirs.size() == verdicts.size(), "rank {} has {} instructions, this one {}", rank,
           theirs.size(), verdicts.size());
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (rank == 0) rows.push_back({InstrId(i), label_of(program, program.instrs[i]), 0, {}});
      if (rank > 0 && !(theirs[i].share() > rows[i].verdict.share())) continue;
      rows[i].rank = rank;
      rows[i].verdict = std::move(theirs[i]);
    }
    ++rank;
  }
  std::ranges::stable_sort(rows, [](const AuditRow& a, const AuditRow& b) {
    return a.verdict.share() > b.verdict.share();
  });
  return rows;
}

}  // namespace ds
