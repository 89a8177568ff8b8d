// Writes TensorBoard's event files without TensorBoard or protocol buffers: the few fields that
// scalars need are encoded here.
// Source: tensorflow/core/util/event.proto, summary.proto, and lib/io/record_writer.cc.
#include "monitor/event_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <system_error>

#include "core/base/error.h"
#include "io/file.h"

namespace ds {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
// A file name contains a time in seconds of kDigits digits, at most the largest number of that
// length.
constexpr int kDigits = 10;
constexpr int64_t kLastSecond = 9'999'999'999;

// The CRC32C of each byte, for the polynomial 0x1edc6f41, whose reflected form is 0x82f63b78.
constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0);
    table[i] = c;
  }
  return table;
}();

// A CRC over data that contains CRCs is weak, so the format stores each CRC rotated and offset.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

template <typename T>
std::string raw(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// The encoding of protocol buffers: a field consists of its key (number * 8 + wire type) and its
// value: a varint, 8 bytes, a length with bytes, or 4 bytes.
std::string varint(uint64_t value) {
  std::string bytes;
  while (value >= 0x80) {
    bytes += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  return bytes + static_cast<char>(value);
}
std::string key(int number, int wire) { return varint(static_cast<uint64_t>(number * 8 + wire)); }
std::string integer_field(int number, int64_t value) {
  return key(number, 0) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int number, double value) { return key(number, 1) + raw(value); }
std::string bytes_field(int number, std::string_view bytes) {
  return key(number, 2) + varint(bytes.size()) + std::string(bytes);
}
std::string float_field(int number, float value) { return key(number, 5) + raw(value); }

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

// Returns the time in seconds for the name of a new file. TensorBoard reads the files of a folder
// in the order of their names, so the time is later than the time in every existing name, whatever
// this host's clock says.
int64_t second_of_new(const std::string& folder) {
  auto second = static_cast<int64_t>(wall_seconds());
  for (const std::string& name : list_folder(folder)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view digits = std::string_view(name).substr(kPrefix.size(), kDigits);
    int64_t other = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), other);
    if (error == std::errc() && end == digits.data() + kDigits && other < kLastSecond)
      second = std::max(second, other + 1);
  }
  return second;
}

// Creates a file with a name that did not exist, so that two writers never share a file in the same
// second.
File create_event_file(const std::string& folder) {
  const int64_t second = second_of_new(folder);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::string path = fmt::format("{}/{}{:0{}}.{}.{}.{}", folder, kPrefix, second, kDigits,
                                   host_name(), ::getpid(), attempt);
    try {
      return File(path, File::Mode::create);
    } catch (const Error&) {
      if (!name_exists(path)) throw;
    }
  }
  raise(DS_ERROR_IO, "{}: 1000 event files of second {} exist", folder, second);
}

// Returns the bytes of an event as a record, with the masked CRCs of its length and content.
std::string record_of(std::string_view event) {
  std::string length = raw(static_cast<uint64_t>(event.size()));
  return length + raw(masked_crc(length)) + std::string(event) + raw(masked_crc(event));
}

// Returns the record of one scalar. The encoded messages are
// Event {double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//        SessionLog session_log = 7}; SessionLog {enum status = 1 {START = 1}}
// Summary {repeated Value value = 1}; Value {string tag = 1; float simple_value = 2}
std::string scalar_record(std::string_view tag, int64_t step, double value) {
  std::string item = bytes_field(1, tag) + float_field(2, static_cast<float>(value));
  return record_of(double_field(1, wall_seconds()) + integer_field(2, step) +
                   bytes_field(5, bytes_field(1, item)));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char c : bytes) crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::string& folder, std::optional<int64_t> goes_on_from)
    : file_(create_event_file(folder), 0) {
  file_.append(record_of(double_field(1, wall_seconds()) + bytes_field(3, "brain.Event:2")));
  if (goes_on_from) {
    file_.append(record_of(double_field(1, wall_seconds()) + integer_field(2, *goes_on_from + 1) +
                           bytes_field(7, integer_field(1, 1))));
  }
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  file_.append(scalar_record(tag, step, value));
}

void EventFile::write(const StepRecord& r) {
  scalar("train/loss", r.step, r.loss);
  scalar("train/lr", r.step, r.lr);
  scalar("train/grad_norm", r.step, r.grad_norm);
  rewards("train", r.step, r.rewards);
  if (!std::isnan(r.loss_scale)) scalar("train/loss_scale", r.step, r.loss_scale);
  if (r.save_seconds > 0) scalar("train/save_seconds", r.step, r.save_seconds);
  scalar("speed/tokens_per_second", r.step, r.tokens_per_second);
  scalar("speed/seconds_per_step", r.step, r.seconds);
  scalar("memory/device", r.step, static_cast<double>(r.bytes.device));
  scalar("memory/host", r.step, static_cast<double>(r.bytes.host));
  scalar("memory/nvme", r.step, static_cast<double>(r.bytes.nvme));
}

// The gradient norm and the speed of a skipped step are not meaningful, so they have no points.
void EventFile::write(const SkippedRecord& r) {
  scalar("train/loss", r.step, r.loss);
  if (!std::isnan(r.loss_scale)) scalar("train/loss_scale", r.step, r.loss_scale);
}

void EventFile::write(const EvalRecord& r) {
  scalar("heldout/loss", r.step, r.loss);
  rewards("heldout", r.step, r.rewards);
}

// The names are those that TRL writes.
void EventFile::rewards(const std::string& of, int64_t step, const RewardRecord& r) {
  if (!r.measured()) return;
  scalar(of + "/rewards/chosen", step, r.chosen);
  scalar(of + "/rewards/rejected", step, r.rejected);
  scalar(of + "/rewards/accuracies", step, r.accuracy);
  scalar(of + "/rewards/margins", step, r.margin);
}

}  // namespace ds
