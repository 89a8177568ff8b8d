#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "monitor/event_file.h"
#include "monitor/metrics.h"
#include "monitor/progress.h"
#include "monitor/readable_text.h"
#include "monitor/scalar_files.h"
#include "support/dice.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

StepRecord record(int64_t step) {
  return {step, 2.5 + 1.0 / 3, 1e-4, 0.75, 12345.6, 0.25, {3 << 20, 0, 7}};
}

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(Text, NumbersAreReadable) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(3 << 19), "1.50 MiB");
  EXPECT_EQ(bytes_text((int64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(bytes_text(int64_t{12} << 30), "12.0 GiB");
  EXPECT_EQ(bytes_text(INT64_MAX), "8.00 EiB");
  EXPECT_EQ(count_text(999.4), "999");
  EXPECT_EQ(count_text(999.6), "1.00k");
  EXPECT_EQ(count_text(12345), "12.3k");
  EXPECT_EQ(count_text(4.56e6), "4.56M");
  EXPECT_EQ(duration_text(42.4), "0:42");
  EXPECT_EQ(duration_text(3909), "1:05:09");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600), "3d 04:00");
  EXPECT_EQ(duration_text(nan), "-:--");
  EXPECT_EQ(html_text("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(html_text("a\x7f\xc2\x9bz"), "a\xef\xbf\xbd\xef\xbf\xbdz");
}

TEST(MetricsCsv, ReadsBackTheSameBits) {
  test::TempFolder folder;
  std::string path = folder / "metrics.csv";
  {
    MetricsCsv csv(path);
    csv.write(record(1));
    csv.write(EvalRecord{1, 0.1});
    StepRecord odd = record(2);
    odd.loss = nan;
    odd.grad_norm = std::numeric_limits<double>::infinity();
    odd.lr = 5e-324;
    csv.write(odd);
  }
  Metrics back = read_metrics(path);
  ASSERT_EQ(back.steps.size(), 2u);
  ASSERT_EQ(back.evals.size(), 1u);
  EXPECT_EQ(back.steps[0].loss, 2.5 + 1.0 / 3);
  EXPECT_EQ(back.steps[0].tokens_per_second, 12345.6);
  EXPECT_EQ(back.steps[0].bytes.device, 3 << 20);
  EXPECT_EQ(back.steps[0].bytes.nvme, 7);
  EXPECT_TRUE(std::isnan(back.steps[1].loss));
  EXPECT_TRUE(std::isinf(back.steps[1].grad_norm));
  EXPECT_EQ(back.steps[1].lr, 5e-324);
  EXPECT_EQ(back.evals[0].loss, 0.1);
  EXPECT_EQ(content(path).substr(0, 10), "step,loss,");
}

TEST(MetricsCsv, ContinuesAfterACheckpoint) {
  test::TempFolder folder;
  std::string path = folder / "metrics.csv";
  {
    // The file does not exist yet.
    MetricsCsv csv(path, 5);
    for (int64_t s = 1; s <= 6; ++s) {
      csv.write(record(s));
      if (s % 2 == 0) csv.write(EvalRecord{s, 1.0});
    }
  }
  // The process has died while it was writing a line.
  std::ofstream(path, std::ios::app) << "7,1.5";
  MetricsCsv csv(path, 4);
  csv.write(record(5));
  Metrics back = read_metrics(path);
  ASSERT_EQ(back.steps.size(), 5u);
  EXPECT_EQ(back.steps.back().step, 5);
  ASSERT_EQ(back.evals.size(), 2u);
  EXPECT_EQ(back.evals.back().step, 4);
}

// A skipped step has no line but may still be evaluated.
TEST(MetricsCsv, ContinuesAfterTheEvaluationOfASkippedStep) {
  test::TempFolder folder;
  std::string path = folder / "metrics.csv";
  {
    MetricsCsv csv(path);
    csv.write(EvalRecord{1, 3.0});
    csv.write(record(2));
    csv.write(EvalRecord{3, 2.0});
    csv.write(record(4));
  }
  MetricsCsv csv(path, 4);
  csv.write(record(5));
  EXPECT_FALSE(std::ifstream(path + ".damaged").good());
  Metrics back = read_metrics(path);
  EXPECT_EQ(back.steps.size(), 3u);
  ASSERT_EQ(back.evals.size(), 2u);
  EXPECT_EQ(back.evals[0].step, 1);
  EXPECT_EQ(back.evals[1].step, 3);
}

// The file of a run started by an older version gains the columns of the loss scale and of the time
// of saves.
TEST(MetricsCsv, ARunOfAnOlderVersionContinuesWithALossScale) {
  test::TempFolder folder;
  std::string path = folder / "metrics.csv";
  std::ofstream(path)
      << "step,loss,heldout_loss,lr,grad_norm,tokens_per_second,seconds,device_bytes,host_bytes,"
         "nvme_bytes\n1,2.5,,0.1,1,10,1,0,0,0\n1,,2.25,,,,,,,\n";
  EXPECT_EQ(read_metrics(path).steps.size(), 1u);
  {
    MetricsCsv csv(path, 1);
    StepRecord scaled = record(2);
    scaled.loss_scale = 65536;
    scaled.save_seconds = 0.25;
    csv.write(scaled);
    csv.write(record(3));
  }
  Metrics back = read_metrics(path);
  ASSERT_EQ(back.steps.size(), 3u);
  EXPECT_TRUE(std::isnan(back.steps[0].loss_scale));
  EXPECT_EQ(back.steps[1].loss_scale, 65536);
  EXPECT_TRUE(std::isnan(back.steps[2].loss_scale));
  EXPECT_EQ(back.steps[1].save_seconds, 0.25);
  EXPECT_EQ(back.steps[2].save_seconds, 0);
  ASSERT_EQ(back.evals.size(), 1u);
  EXPECT_EQ(back.evals[0].loss, 2.25);
  std::string text = content(path);
  EXPECT_EQ(text.substr(0, text.find('\n')).substr(text.find("nvme_bytes")),
            "nvme_bytes,loss_scale,save_seconds");
  EXPECT_FALSE(std::ifstream(path + ".damaged").good());
  EXPECT_NE(progress_line(back.steps[1], nan, 0, {}).find("  scale 65536  "), std::string::npos);
  EXPECT_EQ(progress_line(back.steps[0], nan, 0, {}).find("scale"), std::string::npos);
}

TEST(MetricsCsv, RefusesOtherFiles) {
  test::TempFolder folder;
  std::string path = folder / "metrics.csv";
  { MetricsCsv csv(path); }
  std::string header = content(path);
  for (const std::string& bad :
       {std::string("a,b\n"), header + "1,2\n", header + "1,x,,0,0,0,0,0,0,0,0,0\n",
        header + "1,1,,0,0,0,0,0,0,0,0,0,0\n", header + "\n"}) {
    std::ofstream(path, std::ios::trunc) << bad;
    EXPECT_THROW(read_metrics(path), Error) << bad;
  }
  EXPECT_THROW(read_metrics(folder / "none"), Error);
  EXPECT_THROW(MetricsCsv("/nowhere/metrics.csv"), Error);
}

// Returns whether each line has as many columns as the first, ignoring a last line without a
// newline.
bool whole_lines(const std::string& text) {
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  std::string line;
  std::ptrdiff_t commas = -1;
  while (std::getline(lines, line)) {
    std::ptrdiff_t mine = std::count(line.begin(), line.end(), ',');
    if (commas >= 0 && mine != commas) return false;
    commas = mine;
  }
  return true;
}

// Applies random damage, as by a failing disk or an editor. A run can always continue the file,
// each step that remains occurs once and in order, and a file that is found to be damaged is kept.
TEST(MetricsCsv, SetsADamagedFileAside) {
  set_log_sink([](LogLevel, std::string_view) {});
  for (uint64_t seed = 0; seed < 200; ++seed) {
    test::Dice dice(seed);
    test::TempFolder folder;
    std::string path = folder / "metrics.csv";
    {
      MetricsCsv csv(path);
      for (int64_t s = 1; s <= 8; ++s) {
        csv.write(record(s));
        if (s % 2 == 0) csv.write(EvalRecord{s, 1.0});
      }
    }
    std::string good = content(path), bad = good;
    auto at = static_cast<size_t>(dice.below(static_cast<int64_t>(bad.size()) - 1));
    int kind = static_cast<int>(dice.below(5));
    if (kind == 0) bad[at] = static_cast<char>(dice.below(256));
    if (kind == 1) bad.resize(at);
    if (kind == 2) bad.insert(at, std::string(static_cast<size_t>(dice.below(99)), '\0'));
    if (kind == 3) bad += bad.substr(bad.find('\n') + 1);
    if (kind == 4) bad.erase(at, static_cast<size_t>(dice.below(60)));
    write_file_atomic(path, bad);
    int64_t keep = dice.below(9);
    MetricsCsv csv(path, keep);
    csv.write(record(keep + 1));
    Metrics back = read_metrics(path);
    ASSERT_FALSE(back.steps.empty()) << "seed " << seed;
    EXPECT_EQ(back.steps.back().step, keep + 1);
    EXPECT_EQ(csv.kept().steps.size() + 1, back.steps.size());
    for (size_t i = 1; i < back.steps.size(); ++i)
      EXPECT_LT(back.steps[i - 1].step, back.steps[i].step);
    if (exists(path + ".damaged")) {
      EXPECT_EQ(content(path + ".damaged"), bad) << "seed " << seed;
    } else if ((kind == 0 || kind == 4) && whole_lines(bad)) {
      // The damage may have removed a row or changed its step, so that the rows of the file are
      // still valid and nothing reveals the damage.
    } else if (kind != 1) {
      EXPECT_EQ(back.steps.size(), static_cast<size_t>(keep) + 1) << "seed " << seed;
    }
  }
  set_log_sink({});
}

// Computes CRC32C by its definition, bit by bit.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      uint32_t in = (static_cast<uint8_t>(c) >> bit) & 1u;
      bool carry = ((crc ^ in) & 1u) != 0;
      crc >>= 1;
      if (carry) crc ^= 0x82f63b78u;
    }
  }
  return crc ^ 0xffffffffu;
}

// A small decoder of TensorBoard event files. It checks both checksums of each record and decodes
// the fields of the messages.
struct Decoder {
  std::string_view rest;

  template <typename T>
  T take() {
    EXPECT_GE(rest.size(), sizeof(T));
    T value;
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return value;
  }
  std::string_view bytes(size_t n) {
    EXPECT_GE(rest.size(), n);
    std::string_view out = rest.substr(0, n);
    rest.remove_prefix(out.size());
    return out;
  }
  std::string_view record() {
    std::string_view length_bytes = rest.substr(0, 8);
    auto length = take<uint64_t>();
    EXPECT_EQ(take<uint32_t>(), mask(slow_crc32c(length_bytes)));
    std::string_view data = bytes(length);
    EXPECT_EQ(take<uint32_t>(), mask(slow_crc32c(data)));
    return data;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      auto byte = take<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  static uint32_t mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
};

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version, tag;
  float value = 0;
  // Status of a session log.
  int64_t status = 0;
};

void decode(std::string_view message, int depth, Event& event) {
  Decoder d{message};
  while (!d.rest.empty()) {
    uint64_t key = d.varint();
    switch (depth * 1000 + static_cast<int>(key)) {
      case 0 * 1000 + 1 * 8 + 1:
        event.wall_time = d.take<double>();
        break;
      case 0 * 1000 + 2 * 8 + 0:
        event.step = static_cast<int64_t>(d.varint());
        break;
      case 0 * 1000 + 3 * 8 + 2:
        event.version = d.bytes(d.varint());
        break;
      // The summary.
      case 0 * 1000 + 5 * 8 + 2:
        decode(d.bytes(d.varint()), 1, event);
        break;
      // The session log.
      case 0 * 1000 + 7 * 8 + 2:
        decode(d.bytes(d.varint()), 3, event);
        break;
      case 3 * 1000 + 1 * 8 + 0:
        event.status = static_cast<int64_t>(d.varint());
        break;
      // A value of the summary.
      case 1 * 1000 + 1 * 8 + 2:
        decode(d.bytes(d.varint()), 2, event);
        break;
      case 2 * 1000 + 1 * 8 + 2:
        event.tag = d.bytes(d.varint());
        break;
      case 2 * 1000 + 2 * 8 + 5:
        event.value = d.take<float>();
        break;
      default:
        FAIL() << "field " << key << " at depth " << depth;
    }
  }
}

TEST(EventFile, RecordsAreDecodedWithTheirChecksums) {
  // This is the published check value of CRC32C.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  test::TempFolder folder;
  std::string path;
  {
    EventFile events(folder.path());
    EventFile other(folder.path());
    EXPECT_NE(events.path(), other.path());
    path = events.path();
    events.write(record(300));
    events.write(EvalRecord{300, 1.25});
    events.scalar(std::string(300, 't'), int64_t{1} << 40, -0.5);
  }
  std::string bytes = content(path);
  Decoder file{bytes};
  std::vector<Event> events;
  while (!file.rest.empty() && !HasFailure()) {
    events.emplace_back();
    decode(file.record(), 0, events.back());
    EXPECT_GT(events.back().wall_time, 1.7e9);
  }
  ASSERT_EQ(events.size(), 11u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].tag, "train/loss");
  EXPECT_EQ(events[1].value, static_cast<float>(2.5 + 1.0 / 3));
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[6].tag, "memory/device");
  EXPECT_EQ(events[6].value, static_cast<float>(3 << 20));
  EXPECT_EQ(events[9].tag, "heldout/loss");
  EXPECT_EQ(events[10].tag.size(), 300u);
  EXPECT_EQ(events[10].step, int64_t{1} << 40);
  EXPECT_EQ(events[10].value, -0.5f);
  EXPECT_NE(std::filesystem::path(path).filename().string().find("events.out.tfevents."),
            std::string::npos);
  EXPECT_THROW(EventFile("/nowhere/at/all"), Error);
}

// At a START event, TensorBoard drops the events of earlier files from its step on. It reads files
// in the order of their names.
TEST(EventFile, AResumedRunDropsLaterSteps) {
  test::TempFolder folder;
  const std::string late = folder.path() + "/events.out.tfevents.4000000000.a-host.1.0";
  write_file_atomic(late, "");
  write_file_atomic(folder.path() + "/events.out.tfevents.not-a-number", "");
  std::string path;
  {
    EventFile events(folder.path(), 20);
    path = events.path();
    EXPECT_GT(path, late);
    EXPECT_GT(EventFile(folder.path()).path(), path);
  }
  const std::string bytes = content(path);
  Decoder file{bytes};
  std::vector<Event> events(2);
  for (Event& event : events) decode(file.record(), 0, event);
  EXPECT_TRUE(file.rest.empty());
  EXPECT_EQ(events[0].status, 0);
  EXPECT_EQ(events[1].step, 21);
  EXPECT_EQ(events[1].status, 1);
}

TEST(Progress, PrintsPlainLinesWithoutABar) {
  std::string out;
  ProgressOptions options;
  options.steps = 25;
  options.print_every = 10;
  options.plan = {4 << 20, 0, 8};
  Progress progress(options, [&](std::string_view text) { out += text; });
  EXPECT_TRUE(std::isnan(progress.remaining_seconds()));
  for (int64_t s = 1; s <= 25; ++s) progress.step(record(s));
  progress.eval({25, 1.5});
  progress.finish();
  EXPECT_EQ(out.find_first_of("\r\x1b"), out.npos);
  // There is a line for each of steps 1, 10, 20 and 25, and one for the evaluation.
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5);
  EXPECT_EQ(out.substr(0, out.find('\n')),
            "step  1/25  loss 2.8333  lr 1.000e-04  norm 0.750  12.3k tokens/s  ETA 0:06  device "
            "3.00 MiB/4.00 MiB  nvme 7 B/8 B");
  EXPECT_NE(out.find("step 25  held-out loss 1.5000\n"), out.npos);
  EXPECT_EQ(out.find("MiB", out.find('\n')), out.npos)
      << "memory that has not changed is said once: " << out;
}

TEST(Progress, ALineShowsMemoryOnlyWhenItChanges) {
  std::string out;
  Progress progress({.steps = 3}, [&](std::string_view text) { out = text; });
  for (int64_t s = 1; s <= 3; ++s) {
    StepRecord one = record(s);
    one.bytes.host = s < 3 ? 5 << 20 : 6 << 20;
    progress.step(one);
    EXPECT_EQ(out.find("host") != out.npos, s != 2) << out;
  }
}

TEST(Progress, TheBarFitsTheTerminalAndFillsUp) {
  ProgressOptions options;
  options.steps = 200;
  options.bar = true;
  options.plan = {4 << 20, 5 << 20, 0};
  for (int columns : {1, 5, 20, 40, 60, 80, 120, 200}) {
    options.columns = columns;
    std::string bar = progress_bar(record(50), 1.5, 61, options);
    EXPECT_TRUE(is_utf8(bar));
    auto width = std::count_if(bar.begin(), bar.end(), [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LT(width, columns) << bar;
  }
  EXPECT_EQ(
      progress_bar(record(50), 1.5, 61, options),
      " 50/200  █████···············   25%  loss 2.8333 (held out 1.5000)  12.3k tok/s  ETA 1:01  "
      "device 3.00 MiB/4.00 MiB  host 0 B/5.00 MiB  nvme 7 B/0 B");
  EXPECT_NE(progress_bar(record(52), nan, 61, options).find("█████▏·"), std::string::npos);
  EXPECT_NE(progress_bar(record(200), nan, 0, options).find("████████████████████  100%"),
            std::string::npos);
}

TEST(Progress, MessagesArePrintedAboveTheBar) {
  std::string out;
  ProgressOptions options;
  options.steps = 4;
  options.bar = true;
  Progress progress(options, [&](std::string_view text) { out += text; });
  progress.message("first");
  EXPECT_EQ(out, "first\n");
  progress.step(record(1));
  std::string bar = out.substr(out.find("\x1b[2K") + 4);
  out.clear();
  progress.message("saved");
  EXPECT_EQ(out, "\r\x1b[2Ksaved\n" + bar);
  out.clear();
  progress.finish();
  EXPECT_EQ(out, "\n");
}

TEST(Progress, RemainingTimeIgnoresASlowStart) {
  ProgressOptions options;
  options.steps = 1000;
  options.first_step = 500;
  Progress progress(options, [](std::string_view) {});
  StepRecord r = record(501);
  r.seconds = 100;
  progress.step(r);
  EXPECT_DOUBLE_EQ(progress.remaining_seconds(), 100.0 * 499);
  for (r.step = 502; r.step <= 800; ++r.step) {
    r.seconds = 1;
    progress.step(r);
  }
  EXPECT_NEAR(progress.remaining_seconds(), 200, 1);
}

// The files have the format of DeepSpeed's csv_monitor. A resumed run keeps the samples up to its
// checkpoint and appends to them.
TEST(ScalarFiles, EachEventHasAFileThatContinuesAfterTheKeptPart) {
  test::TempFolder folder;
  const std::string job = make_monitor_folder(folder / "out", "job");
  {
    ScalarFiles files(job, 0);
    for (int64_t step = 1; step <= 3; ++step) {
      StepRecord record;
      record.step = step;
      record.samples = 4 * step;
      record.loss = 1.0 / static_cast<double>(step);
      record.lr = 0.5;
      if (step > 1) record.loss_scale = 1024.0 / static_cast<double>(step);
      files.write(record);
    }
    files.write(EvalRecord{3, 0.25, 12});
  }
  EXPECT_EQ(read_file(job + "/Train_Samples_lr.csv"), "step,lr\n4,0.5\n8,0.5\n12,0.5\n");
  EXPECT_EQ(read_file(job + "/Train_Samples_loss_scale.csv"),
            "step,loss_scale\n8,512\n12,341.3333333333333\n");
  EXPECT_EQ(read_file(job + "/Eval_Samples_eval_loss.csv"), "step,eval_loss\n12,0.25\n");
  ScalarFiles again(job, 8);
  StepRecord record;
  record.step = 3;
  record.samples = 12;
  record.lr = 0.125;
  again.write(record);
  again.write(SkippedRecord{4, 3.5, 0.125, 256, 16});
  EXPECT_EQ(read_file(job + "/Train_Samples_lr.csv"),
            "step,lr\n4,0.5\n8,0.5\n12,0.125\n16,0.125\n");
  EXPECT_EQ(read_file(job + "/Train_Samples_loss_scale.csv"), "step,loss_scale\n8,512\n16,256\n");
  EXPECT_TRUE(read_file(job + "/Train_Samples_train_loss.csv").ends_with("\n16,3.5\n"));
  EXPECT_THROW(make_monitor_folder("/proc/none", "job"), Error);
  EXPECT_THROW(make_monitor_folder("s3://bucket", "job"), Error);
  EXPECT_FALSE(exists("s3:"));
}

TEST(MetricsJsonl, EachLineIsAnObject) {
  test::TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  StepRecord record;
  record.step = 1;
  record.loss = 2;
  record.grad_norm = std::numeric_limits<double>::quiet_NaN();
  {
    MetricsJsonl lines(path, 0);
    lines.write(record);
    lines.write(EvalRecord{1, 3});
    record.step = 2;
    lines.write(record);
    lines.write(SkippedRecord{3, 5, 0.5});
  }
  EXPECT_TRUE(read_file(path).ends_with(
      R"({"step": 3, "skipped": true, "loss": 5.0, "lr": 0.5, "loss_scale": null})"
      "\n"))
      << read_file(path);
  MetricsJsonl again(path, 1);
  record.step = 2;
  record.loss = 9;
  again.write(record);
  std::istringstream text(read_file(path));
  std::vector<Json> read;
  for (std::string line; std::getline(text, line);) read.push_back(Json::parse(line));
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].at("loss").number(), 2);
  EXPECT_TRUE(read[0].at("grad_norm").is_null());
  EXPECT_EQ(read[1].at("heldout_loss").number(), 3);
  EXPECT_EQ(read[2].at("loss").number(), 9);
}

}  // namespace
}  // namespace ds
