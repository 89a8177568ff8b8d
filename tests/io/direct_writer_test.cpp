// Writes that bypass the page cache store the same bytes as buffered writes, for any division into
// pieces.
#include "io/direct_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "io/file.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

// The file has more than DirectBlocks::kCount blocks, and its last page is partial.
constexpr int64_t kSize = 18'000'123;

std::string random_text(uint64_t seed, size_t size) {
  std::mt19937_64 dice(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(dice());
  return text;
}

// Cuts [0, kSize) at random places, some of them within a page, and divides the pieces between two
// writers; with an odd seed, in random order.
TEST(DirectWriter, PiecesOfTwoWritersFormTheFile) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    test::TempFolder folder;
    const std::string path = folder / "file", want = random_text(seed, kSize);
    File(path, File::Mode::create).resize(kSize);
    std::mt19937_64 dice(seed);
    std::vector<int64_t> cuts{0, kSize};
    for (int i = 0; i < 30; ++i) cuts.push_back(static_cast<int64_t>(dice() % kSize));
    // Several of these cuts are within one page.
    for (int i = 0; i < 10; ++i) cuts.push_back(static_cast<int64_t>(dice() % 9000));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) pieces.emplace_back(cuts[i], cuts[i + 1]);
    if (seed % 2 == 1) std::shuffle(pieces.begin(), pieces.end(), dice);
    DirectBlocks of_one, of_other;
    DirectWriter one(path, of_one), other(path, of_other);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto [begin, end] = pieces[i];
      DirectWriter& writer = i % 3 == 0 ? one : other;
      const int64_t middle = begin + (end - begin) / 3;
      writer.write(want.data() + begin, static_cast<size_t>(middle - begin), begin);
      writer.write(want.data() + middle, static_cast<size_t>(end - middle), middle);
    }
    one.finish();
    other.finish();
    EXPECT_TRUE(read_file(path) == want) << seed;
  }
}

TEST(DirectWriter, AFewBytesAreWritten) {
  test::TempFolder folder;
  const std::string path = folder / "file";
  File(path, File::Mode::create).resize(8);
  DirectBlocks blocks;
  DirectWriter writer(path, blocks);
  writer.write("abcd", 4, 2);
  writer.finish();
  EXPECT_EQ(read_file(path), std::string("\0\0abcd\0\0", 8));
}

TEST(DirectWriter, OnlyRegularFilesAreWritten) {
  DirectBlocks blocks;
  EXPECT_THROW(DirectWriter("/dev/null", blocks), Error);
  EXPECT_THROW(DirectWriter("/nowhere/file", blocks), Error);
}

}  // namespace
}  // namespace ds
