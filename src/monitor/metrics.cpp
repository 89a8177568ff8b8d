#include "monitor/metrics.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr std::string_view header =
    "step,loss,heldout_loss,lr,grad_norm,tokens_per_second,seconds,device_bytes,host_bytes,nvme_bytes";
constexpr size_t columns = 10;
constexpr int64_t kMostMetrics = int64_t{4} << 30;  // some 40 million steps

// fmt prints the shortest text that parses back to the same bits, whatever the locale.
std::string line_of(const StepRecord& r) {
  return fmt::format("{},{},,{},{},{},{},{},{},{}\n", r.step, r.loss, r.lr, r.grad_norm, r.tokens_per_second,
                     r.seconds, r.bytes.device, r.bytes.host, r.bytes.nvme);
}

std::string line_of(const EvalRecord& r) { return fmt::format("{},,{},,,,,,,\n", r.step, r.loss); }

template <typename T>
T number(std::string_view field, const std::string& path, size_t line) {
  T value{};
  auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (code != std::errc() || end != field.data() + field.size()) {
    raise(DS_ERROR_CORRUPT, "{}: line {}: '{}' is not a number", path, line, field);
  }
  return value;
}

void read_line(std::string_view text, const std::string& path, size_t number_of_line, Metrics& metrics) {
  std::array<std::string_view, columns> field;
  size_t count = 0;
  for (size_t at = 0; at <= text.size(); ++count) {
    size_t comma = std::min(text.find(',', at), text.size());
    if (count < columns) field[count] = text.substr(at, comma - at);
    at = comma + 1;
  }
  if (count != columns) {
    raise(DS_ERROR_CORRUPT, "{}: line {}: {} columns wanted, got {}", path, number_of_line, columns, count);
  }
  auto real = [&](size_t i) { return number<double>(field[i], path, number_of_line); };
  auto integer = [&](size_t i) { return number<int64_t>(field[i], path, number_of_line); };
  if (field[1].empty()) {
    metrics.evals.push_back({integer(0), real(2)});
  } else {
    metrics.steps.push_back(
        {integer(0), real(1), real(3), real(4), real(5), real(6), {integer(7), integer(8), integer(9)}});
  }
}

}  // namespace

MetricsCsv::MetricsCsv(const std::string& path, int64_t keep_until) {
  std::string kept(header);
  kept += '\n';
  if (keep_until > 0 && name_exists(path)) {
    Metrics old = read_metrics(path);
    size_t eval = 0;
    for (const StepRecord& record : old.steps) {
      if (record.step > keep_until) break;
      kept += line_of(record);
      while (eval < old.evals.size() && old.evals[eval].step <= record.step)
        kept += line_of(old.evals[eval++]);
    }
  }
  write_file_atomic(path, kept);
  file_ = File(path, File::Mode::write);
  end_ = static_cast<int64_t>(kept.size());
}

void MetricsCsv::write(const StepRecord& record) { line(line_of(record)); }
void MetricsCsv::write(const EvalRecord& record) { line(line_of(record)); }

void MetricsCsv::line(const std::string& text) {
  file_.write(text.data(), text.size(), end_);
  end_ += static_cast<int64_t>(text.size());
}

Metrics read_metrics(const std::string& path) {
  std::string text = read_file(path, kMostMetrics);
  Metrics metrics;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == text.npos) break;
    std::string_view row(text.data() + at, end - at);
    at = end + 1;
    if (++line > 1) {
      read_line(row, path, line, metrics);
    } else if (row != header) {
      raise(DS_ERROR_CORRUPT, "{}: line 1 must be the header, got '{}'", path, row);
    }
  }
  return metrics;
}

}  // namespace ds
