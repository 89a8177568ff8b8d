// Reads that bypass the page cache return the bytes of the file for any list of ranges.
#include "io/direct_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "io/file.h"
#include "support/errors.h"
#include "support/failing_reads.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

// The file has more than DirectBlocks::kCount blocks, and its last page is partial.
constexpr int64_t kSize = 22'000'124;

std::string words(size_t size) {
  std::mt19937_64 dice(size);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(dice());
  return text;
}

// Returns the concatenated bytes of the ranges; checks that each part that the reader returns
// begins where the previous one ended.
std::string read_ranges(const std::string& path, const std::vector<DirectReader::Range>& ranges) {
  DirectBlocks blocks;
  DirectReader reader(path, blocks);
  std::string out;
  size_t next = 0, now = 0;
  int64_t done = 0;
  reader.read(
      [&](DirectReader::Range& range) {
        if (next == ranges.size()) return false;
        range = ranges[next];
        range.tag = static_cast<int64_t>(next++);
        return true;
      },
      [&](const DirectReader::Range& part, const std::byte* data) {
        while (done == ranges[now].bytes) ++now, done = 0;
        EXPECT_EQ(part.tag, static_cast<int64_t>(now));
        EXPECT_EQ(part.begin, ranges[now].begin + done);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4, static_cast<uintptr_t>(part.begin) % 4);
        out.append(reinterpret_cast<const char*>(data), static_cast<size_t>(part.bytes));
        done += part.bytes;
      });
  return out;
}

std::vector<DirectReader::Range> random_ranges(uint64_t seed) {
  std::mt19937_64 dice(seed);
  auto below = [&](int64_t n) { return static_cast<int64_t>(dice() % static_cast<uint64_t>(n)); };
  std::vector<DirectReader::Range> ranges;
  int64_t at = below(9000);
  while (ranges.size() < 300 && at < kSize) {
    const int64_t most = below(8) == 0 ? kSize : below(2) == 0 ? 100 : 300'000;
    ranges.push_back({at, std::min(below(most), kSize - at)});
    at = ranges.back().begin + ranges.back().bytes;
    // One range in three is followed by a gap, and one in 20 by a jump to any place of the file.
    if (below(3) == 0) at += below(below(4) == 0 ? 3'000'000 : 5000);
    if (below(20) == 0) at = below(kSize);
  }
  ranges.push_back({kSize - 1, 1});
  return ranges;
}

TEST(DirectReader, RangesReturnTheBytesOfTheFile) {
  const std::string want = words(kSize);
  // tmpfs may not support O_DIRECT.
  for (bool in_memory : {false, true}) {
    TempFolder folder(in_memory ? "/dev/shm" : DS_BINARY_DIR);
    const std::string path = folder / "file";
    write_file_atomic(path, want);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const std::vector<DirectReader::Range> ranges = random_ranges(seed);
      std::string expected;
      for (const DirectReader::Range& r : ranges)
        expected += want.substr(static_cast<size_t>(r.begin), static_cast<size_t>(r.bytes));
      EXPECT_TRUE(read_ranges(path, ranges) == expected) << seed;
      ShortReads halves(path);
      EXPECT_TRUE(read_ranges(path, ranges) == expected) << seed << " in short reads";
    }
    EXPECT_TRUE(read_ranges(path, {{0, kSize}}) == want);
    EXPECT_EQ(read_ranges(path, {}), "");
    EXPECT_EQ(read_ranges(path, {{7, 0}, {9, 3}}), want.substr(9, 3));
  }
}

TEST(DirectReader, AFailureOfAnyReadIsReported) {
  TempFolder folder;
  const std::string path = folder / "file";
  write_file_atomic(path, words(kSize));
  int64_t reads = 0;
  {
    FailingReads none(path, INT64_MAX);
    read_ranges(path, {{1, kSize - 1}});
    reads = FailingReads::seen();
  }
  EXPECT_GE(reads, 6);
  for (int64_t good = 0; good < reads; ++good) {
    FailingReads bad(path, good);
    expect_names(message_of(
                     [&] {
                       read_ranges(path, {{1, kSize - 1}});
                     },
                     DS_ERROR_IO),
                 {path, "Input/output error"});
  }
}

// The file is truncated, to various sizes, after the reader has opened it.
TEST(DirectReader, AFileTruncatedWhileReadIsRefusedByName) {
  // tmpfs may not support O_DIRECT, without which the whole file is read through a lane.
  for (const char* place : {DS_BINARY_DIR, "/dev/shm"}) {
    TempFolder folder(place);
    const std::string path = folder / "file", want = words(kSize);
    for (int64_t size :
         {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{5'000'001}, kSize - 4096, kSize - 1}) {
      write_file_atomic(path, want);
      DirectBlocks blocks;
      DirectReader reader(path, blocks);
      std::filesystem::resize_file(path, static_cast<size_t>(size));
      bool given = false;
      try {
        reader.read(
            [&](DirectReader::Range& range) {
              range = {0, kSize};
              return !std::exchange(given, true);
            },
            [](const DirectReader::Range&, const std::byte*) {});
        ADD_FAILURE() << size;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), DS_ERROR_CORRUPT) << error.what();
        expect_names(error.what(), {path});
      }
    }
  }
}

TEST(DirectReader, AnErrorInTheCallbackEndsTheRead) {
  TempFolder folder;
  const std::string path = folder / "file";
  write_file_atomic(path, words(kSize));
  DirectBlocks blocks;
  for (int good : {0, 1, 3}) {
    DirectReader reader(path, blocks);
    bool given = false;
    int parts = 0;
    EXPECT_THROW(reader.read(
                     [&](DirectReader::Range& range) {
                       range = {5, kSize - 5};
                       return !std::exchange(given, true);
                     },
                     [&](const DirectReader::Range&, const std::byte*) {
                       if (parts++ == good) throw std::runtime_error("enough");
                     }),
                 std::runtime_error);
  }
  EXPECT_THROW(DirectReader("/dev/null", blocks), Error);
  EXPECT_THROW(DirectReader(folder / "nowhere", blocks), Error);
}

}  // namespace
}  // namespace ds::test
