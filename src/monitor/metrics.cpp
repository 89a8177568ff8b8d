// Keeps metrics.csv consistent across crashes and resumes.
//
// Problem. A run that is killed may leave half a line; a run that resumes from an older checkpoint
// repeats steps that already have lines; people and programs may edit the file meanwhile.
// Invariant. After the constructor the file has a header and the rows up to step keep_until, each
// once and in order, and nothing else.
// Algorithm. Good rows are copied to a new text. If the file begins with exactly that text, the
// file is only truncated, which works even on a full disk. Otherwise the text is written again; a
// damaged file is first renamed.
#include "monitor/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "core/base/log.h"
#include "io/file.h"

namespace ds {
namespace {

constexpr std::string_view header =
    "step,loss,heldout_loss,lr,grad_norm,tokens_per_second,seconds,device_bytes,host_bytes,nvme_"
    "bytes,loss_scale,save_seconds";
// Files of older versions lack the last one or two columns, which are added when such a run is
// continued.
constexpr size_t columns = 12, fewest_columns = 10;
// The largest file, in bytes. It has room for some 40 million steps.
constexpr int64_t kMostMetrics = int64_t{4} << 30;

// Prints numbers with fmt, whose shortest representation parses back to the same bits in every
// locale.
std::string line_of(const StepRecord& r) {
  return fmt::format("{},{},,{},{},{},{},{},{},{},{},{}\n", r.step, r.loss, r.lr, r.grad_norm,
                     r.tokens_per_second, r.seconds, r.bytes.device, r.bytes.host, r.bytes.nvme,
                     std::isnan(r.loss_scale) ? "" : fmt::format("{}", r.loss_scale),
                     r.save_seconds == 0 ? "" : fmt::format("{}", r.save_seconds));
}

std::string line_of(const EvalRecord& r) {
  return fmt::format("{},,{},,,,,,,,,\n", r.step, r.loss);
}

template <typename T>
T number(std::string_view field, const std::string& path, size_t line) {
  T value{};
  auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (code != std::errc() || end != field.data() + field.size()) {
    raise(DS_ERROR_CORRUPT, "{}: line {}: '{}' is not a number", path, line, field);
  }
  return value;
}

// A line of the file, which is either a step or an evaluation.
struct Row {
  std::optional<StepRecord> step;
  std::optional<EvalRecord> eval;
};

// Parses a line. `width` is the number of columns in the file's header.
Row read_row(std::string_view text, const std::string& path, size_t number_of_line, size_t width) {
  std::array<std::string_view, columns> field;
  size_t count = 0;
  for (size_t at = 0; at <= text.size(); ++count) {
    size_t comma = std::min(text.find(',', at), text.size());
    if (count < columns) field[count] = text.substr(at, comma - at);
    at = comma + 1;
  }
  if (count != width) {
    raise(DS_ERROR_CORRUPT, "{}: line {}: must have {} columns, got {}", path, number_of_line,
          width, count);
  }
  auto real = [&](size_t i) { return number<double>(field[i], path, number_of_line); };
  auto integer = [&](size_t i) { return number<int64_t>(field[i], path, number_of_line); };
  if (field[1].empty()) return {{}, EvalRecord{integer(0), real(2)}};
  StepRecord step{integer(0),
                  real(1),
                  real(3),
                  real(4),
                  real(5),
                  real(6),
                  {integer(7), integer(8), integer(9)}};
  if (!field[10].empty()) step.loss_scale = real(10);
  if (!field[11].empty()) step.save_seconds = real(11);
  return {step, {}};
}

// Calls each(line, number), with numbers from 1 on, for all lines except a last line without a line
// end.
template <typename F>
void for_lines(std::string_view text, F each) {
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == text.npos) return;
    each(text.substr(at, end - at), ++line);
    at = end + 1;
  }
}

// Returns the number of columns of a file with this header; throws if the header is unknown.
size_t check_header(std::string_view line, const std::string& path) {
  std::string_view known = header;
  for (size_t width = columns; width >= fewest_columns; --width) {
    if (line == known) return width;
    known = known.substr(0, known.rfind(','));
  }
  raise(DS_ERROR_CORRUPT, "{}: line 1 must be the header, got '{}'", path, line);
}

// The good lines of a file up to a given step.
struct Salvage {
  std::string text = std::string(header) + "\n";
  Metrics metrics;
  // The error of the first bad line, or "".
  std::string fault;

  void add(std::string_view line, const Row& row) {
    if (row.step) metrics.steps.push_back(*row.step);
    if (row.eval) metrics.evals.push_back(*row.eval);
    text += line;
    for (auto have = static_cast<size_t>(std::ranges::count(line, ',')) + 1; have < columns; ++have)
      text += ',';
    text += '\n';
  }
};

// Returns whether a row may follow the previous ones. Steps increase; an evaluation follows its
// step, whose line may be missing.
bool in_order(const Metrics& before, const Row& row) {
  int64_t last = before.steps.empty() ? 0 : before.steps.back().step;
  int64_t evaluated = before.evals.empty() ? 0 : before.evals.back().step;
  if (row.step) return row.step->step > std::max(last, evaluated);
  return row.eval->step >= last && row.eval->step > evaluated;
}

Salvage salvage(std::string_view text, const std::string& path, int64_t keep_until) {
  Salvage out;
  size_t width = columns;
  for_lines(text, [&](std::string_view line, size_t number_of_line) {
    try {
      if (number_of_line == 1) {
        width = check_header(line, path);
        return;
      }
      Row row = read_row(line, path, number_of_line, width);
      int64_t step = row.step ? row.step->step : row.eval->step;
      if (step > keep_until) return;
      if (!in_order(out.metrics, row)) {
        raise(DS_ERROR_CORRUPT, "{}: line {}: step {} is out of order", path, number_of_line, step);
      }
      out.add(line, row);
    } catch (const Error& error) {
      if (out.fault.empty()) out.fault = error.what();
    }
  });
  return out;
}

// Renames a damaged file to an unused name, so that an earlier damaged file is kept as well.
void set_aside(const std::string& path, const std::string& reason) {
  std::string name = path + ".damaged";
  for (int i = 2; name_exists(name); ++i) name = fmt::format("{}.damaged-{}", path, i);
  if (std::rename(path.c_str(), name.c_str()) != 0) {
    raise(DS_ERROR_IO, "{}: cannot be renamed to '{}': {}", path, name,
          std::generic_category().message(errno));
  }
  log_line(LogLevel::warning,
           fmt::format("{}; the file is now '{}', its good lines are kept", reason, name));
}

}  // namespace

MetricsCsv::MetricsCsv(const std::string& path, int64_t keep_until) {
  std::string old = name_exists(path) ? read_file(path, kMostMetrics) : "";
  Salvage good = salvage(old, path, keep_until);
  bool begins = old.starts_with(good.text);
  if (!good.fault.empty()) {
    set_aside(path, good.fault);
    begins = false;
  }
  // Truncating the file needs no space, so a resume can drop later rows even on a full disk.
  file_.emplace(File(path, File::Mode::write), begins ? static_cast<int64_t>(good.text.size()) : 0);
  if (!begins) file_->append(good.text);
  kept_ = std::move(good.metrics);
}

void MetricsCsv::write(const StepRecord& record) { file_->append(line_of(record)); }
void MetricsCsv::write(const EvalRecord& record) { file_->append(line_of(record)); }

Metrics read_metrics(const std::string& path) {
  std::string text = read_file(path, kMostMetrics);
  Metrics metrics;
  size_t width = columns;
  for_lines(text, [&](std::string_view line, size_t number_of_line) {
    if (number_of_line == 1) {
      width = check_header(line, path);
      return;
    }
    Row row = read_row(line, path, number_of_line, width);
    if (row.step) metrics.steps.push_back(*row.step);
    if (row.eval) metrics.evals.push_back(*row.eval);
  });
  return metrics;
}

}  // namespace ds
