#include "data/gzip.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "io/file.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

TEST(Gzip, CountsTheBytesThatGzipWrites) {
  EXPECT_EQ(gzip_bytes(""), 20);
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "line " + std::to_string(i * 7919 % 10007) + "\n";
  test::TempFolder folder;
  write_file_atomic(folder / "text", text);
  ASSERT_EQ(std::system(
                ("gzip -9 -n < '" + (folder / "text") + "' > '" + (folder / "out") + "'").c_str()),
            0);
  auto program = static_cast<double>(std::filesystem::file_size(folder / "out"));
  EXPECT_NEAR(static_cast<double>(gzip_bytes(text)), program, 0.01 * program);
}

}  // namespace
}  // namespace ds
