#include "io/async_file.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "support/file_limit.h"
#include "support/refused_call.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

// Memory whose address is a multiple of 4096.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : data_(static_cast<uint8_t*>(std::aligned_alloc(4096, bytes))), bytes_(bytes) {}
  ~Pages() { std::free(data_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void fill(uint32_t seed) {
    for (size_t i = 0; i + 16 <= bytes_; i += 16) {
      auto w = philox({static_cast<uint32_t>(i), 0, 0, 0}, {seed, 0});
      std::memcpy(data_ + i, w.data(), 16);
    }
  }
  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool operator==(const Pages& other) const { return std::memcmp(data_, other.data_, bytes_) == 0; }

 private:
  uint8_t* data_;
  size_t bytes_;
};

IoRequest write_request(const File& file, int64_t offset, void* data, size_t bytes,
                        std::string label = "w") {
  return {true, &file, offset, data, bytes, std::move(label), {}};
}
IoRequest read_request(const File& file, int64_t offset, void* data, size_t bytes,
                       std::string label = "r") {
  return {false, &file, offset, data, bytes, std::move(label), {}};
}

// Writes `bytes` bytes by one request and reads them back by another, both split into chunks of
// `chunk` bytes, and checks the data, the counts and the trace.
void round_trip(const File& file, size_t bytes, size_t chunk, int depth) {
  Trace trace(0);
  IoLane lane("test", chunk, depth, &trace);
  Pages out((bytes + 4095) / 4096 * 4096), in(out.size());
  out.fill(static_cast<uint32_t>(bytes));
  std::memset(in.data(), 0, in.size());
  lane.submit(write_request(file, 8192, out.data(), bytes, "out"));
  uint64_t last = lane.submit(read_request(file, 8192, in.data(), bytes, "in"));
  lane.wait(last);
  EXPECT_TRUE(lane.done(last));
  EXPECT_EQ(std::memcmp(in.data(), out.data(), bytes), 0);
  EXPECT_EQ(lane.bytes_read(), static_cast<int64_t>(bytes));
  EXPECT_EQ(lane.bytes_written(), static_cast<int64_t>(bytes));
  auto spans = trace.take();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].track + spans[0].name, "writeout");
  EXPECT_EQ(spans[1].track + spans[1].name, "readin");
  EXPECT_EQ(spans[1].bytes, static_cast<int64_t>(bytes));
  EXPECT_LE(spans[0].end_ns, spans[1].begin_ns);
}

TEST(IoLane, BufferedFilesRoundTrip) {
  test::TempFolder folder;
  File file(folder / "a", File::Mode::create);
  for (size_t bytes : {size_t{1}, size_t{4095}, size_t{70000}, size_t{3} << 20}) {
    for (int depth : {1, 8}) round_trip(file, bytes, 16384, depth);
  }
  // The smallest chunk is 4096.
  round_trip(file, 100000, 1, 3);
}

TEST(IoLane, DirectFilesRoundTrip) {
  test::TempFolder folder;
  File file;
  try {
    file = File::scratch(folder.path(), /*direct=*/true);
  } catch (const Error& e) {
    GTEST_SKIP() << "the build folder's file system refuses O_DIRECT: " << e.what();
  }
  file.resize(16 << 20);
  for (int depth : {1, 8}) round_trip(file, size_t{4} << 20, 65536, depth);

  IoLane lane("direct", 65536, 4, nullptr);
  Pages page(8192);
  EXPECT_THROW(lane.submit(read_request(file, 512, page.data(), 4096)), Error);
  EXPECT_THROW(lane.submit(read_request(file, 0, page.data() + 512, 4096)), Error);
  EXPECT_THROW(lane.submit(read_request(file, 0, page.data(), 1000)), Error);
  // A refused request does not stop the lane.
  lane.wait(lane.submit(read_request(file, 0, page.data(), 4096)));
}

TEST(IoLane, FilesGrowWhereTheSystemRefusesToReserveSpace) {
  for (int error : {ENOSYS, EPERM}) {
    const std::vector<int> codes = test::spawn_processes(1, [&](int) {
      ASSERT_TRUE(test::refuse_call(SYS_fallocate, error));
      test::TempFolder folder;
      File file(folder / "a", File::Mode::create);
      file.resize(100000);
      EXPECT_EQ(file.size(), 100000);
      round_trip(file, 300000, 16384, 8);
    });
    EXPECT_EQ(codes, std::vector<int>{0});
  }
}

// Some sandboxes allow io_setup but not io_submit.
TEST(IoLane, UsesPlainCallsIfIoSubmitIsRefused) {
  for (int error : {ENOSYS, EPERM}) {
    const std::vector<int> codes = test::spawn_processes(1, [&](int) {
      ASSERT_TRUE(test::refuse_call(SYS_io_submit, error));
      test::TempFolder folder;
      File file(folder / "a", File::Mode::create);
      round_trip(file, 300000, 16384, 8);
    });
    EXPECT_EQ(codes, std::vector<int>{0});
  }
}

TEST(IoLane, UsesPlainCallsAndWarnsOnceIfIoSetupFails) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  {
    test::TempFolder folder;
    File file(folder / "a", File::Mode::create);
    // The kernel refuses a queue this deep.
    round_trip(file, 300000, 16384, 1 << 30);
  }
  flush_log();
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("io_setup"), std::string::npos) << lines[0];
}

TEST(IoLane, RequestsCompleteInOrder) {
  test::TempFolder folder;
  File file(folder / "a", File::Mode::create);
  IoLane lane("order", 4096, 4, nullptr);
  // Only the lane's thread writes this list; the test reads it after wait().
  std::vector<int> order;
  Pages page(size_t{40} * 4096);
  uint64_t last = 0;
  for (int i = 0; i < 40; ++i) {
    IoRequest request = write_request(file, 0, page.data(), i % 2 == 0 ? page.size() : 1);
    request.ready = [&order, i] { order.push_back(i); };
    last = lane.submit(std::move(request));
    EXPECT_EQ(last, static_cast<uint64_t>(i) + 1);
  }
  lane.wait(last);
  for (uint64_t t = 1; t <= last; ++t) EXPECT_TRUE(lane.done(t));
  ASSERT_EQ(order.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_THROW(lane.wait(last + 1), Error);
}

TEST(IoLane, ReadyWaitsForAnotherLane) {
  test::TempFolder folder;
  File file(folder / "a", File::Mode::create);
  IoLane reads("reads", 4096, 4, nullptr), writes("writes", 4096, 4, nullptr);
  Pages out(65536), in(65536);
  out.fill(1);
  std::atomic<bool> go{false};
  IoRequest first = write_request(file, 0, out.data(), out.size());
  first.ready = [&] { go.wait(false); };
  uint64_t written = writes.submit(std::move(first));
  IoRequest second = read_request(file, 0, in.data(), in.size());
  second.ready = [&] { writes.wait(written); };
  uint64_t read = reads.submit(std::move(second));
  EXPECT_FALSE(reads.done(read));
  EXPECT_FALSE(writes.done(written));
  go = true;
  go.notify_all();
  reads.wait(read);
  EXPECT_TRUE(in == out);
}

// Checks that the lane fails `bad` with this status and a message with the path, the label and the
// reason, and that it then refuses requests.
void expect_failure(const File& file, IoRequest bad, const std::string& reason, int depth,
                    ds_status status = DS_ERROR_IO) {
  Pages page(4096);
  IoLane lane("failing", 4096, depth, nullptr);
  uint64_t ticket = lane.submit(std::move(bad));
  for (int i = 0; i < 2; ++i) {
    try {
      lane.wait(ticket);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status);
      std::string what = e.what();
      for (const std::string& part : {file.path(), std::string("tensor x"), reason}) {
        EXPECT_NE(what.find(part), std::string::npos) << what;
      }
    }
  }
  EXPECT_THROW(lane.done(ticket), Error);
  EXPECT_THROW(lane.submit(read_request(file, 0, page.data(), 1)), Error);
  EXPECT_EQ(lane.bytes_read() + lane.bytes_written(), 0);
}

TEST(IoLane, ErrorsNamePathAndLabel) {
  test::TempFolder folder;
  std::string path = folder / "a";
  write_file_atomic(path, std::string(100000, 'x'));
  File readonly(path, File::Mode::read);
  File full(folder / "full", File::Mode::create);
  test::FileLimit limit(0);
  Pages page(size_t{64} * 4096);
  for (int depth : {4, 1 << 30}) {
    expect_failure(readonly, write_request(readonly, 0, page.data(), page.size(), "tensor x"),
                   "Bad file descriptor", depth);
    expect_failure(readonly, read_request(readonly, 0, page.data(), page.size(), "tensor x"),
                   "the file has only 100000 bytes", depth, DS_ERROR_CORRUPT);
    expect_failure(full, write_request(full, 0, page.data(), page.size(), "tensor x"),
                   "File too large", depth);
  }
  IoLane lane("closed", 4096, 4, nullptr);
  EXPECT_THROW(lane.submit(write_request(File(), 0, page.data(), 1)), Error);
}

TEST(IoLane, EarlierTicketsSucceedDespiteALaterError) {
  test::TempFolder folder;
  File file(folder / "a", File::Mode::create);
  Pages page(4096);
  IoLane lane("mixed", 4096, 4, nullptr);
  uint64_t good = lane.submit(write_request(file, 0, page.data(), 4096));
  IoRequest bad = write_request(file, 0, page.data(), 4096);
  bad.ready = [] { raise(DS_ERROR_COMM, "peer gone"); };
  uint64_t failed = lane.submit(std::move(bad));
  try {
    lane.wait(failed);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_COMM);
  }
  lane.wait(good);
  EXPECT_TRUE(lane.done(good));
}

TEST(IoLane, DestructionFinishesSubmittedRequests) {
  test::TempFolder folder;
  File file(folder / "a", File::Mode::create);
  Pages page(4096);
  page.fill(3);
  {
    IoLane lane("last", 4096, 4, nullptr);
    for (int64_t i = 0; i < 50; ++i) lane.submit(write_request(file, i * 4096, page.data(), 4096));
  }
  EXPECT_EQ(file.size(), 50 * 4096);
}

}  // namespace
}  // namespace ds
