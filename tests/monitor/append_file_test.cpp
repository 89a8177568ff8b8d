#include "monitor/append_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

// A limit on the size of files: while it exists, no file of this process can grow beyond the given
// number of bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  ~Warnings() { set_log_sink({}); }
  std::vector<std::string> lines;
};

TEST(AppendFile, LinesThatFailToWriteAreWrittenLaterOnceAndInOrder) {
  signal(SIGXFSZ, SIG_DFL);
  test::TempFolder folder;
  Warnings warnings;
  std::string path = folder / "file", expected = "head\n";
  {
    AppendFile file(File(path, File::Mode::create), 0);
    file.append("head\n");
    for (int round = 0; round < 2; ++round) {
      {
        // Part of a line still fits.
        FileLimit limit(expected.size() + 3);
        for (int i = 0; i < 3; ++i) {
          std::string line = std::to_string(round) + " line " + std::to_string(i) + "\n";
          file.append(line);
          expected += line;
        }
      }
      file.append("next\n");
      expected += "next\n";
      EXPECT_EQ(read_file(path), expected);
    }
    FileLimit limit(expected.size() + 2);
    file.append("never\n");
  }
  // The last line of the file is complete.
  EXPECT_EQ(read_file(path), expected);
  flush_log();
  ASSERT_EQ(warnings.lines.size(), 1u);
  EXPECT_NE(warnings.lines[0].find(path), std::string::npos) << warnings.lines[0];
  EXPECT_NE(warnings.lines[0].find("training goes on"), std::string::npos);
}

TEST(AppendFile, ContinuesAfterTheKeptPart) {
  test::TempFolder folder;
  std::string path = folder / "file";
  write_file_atomic(path, "kept\ndropped\n");
  AppendFile file(File(path, File::Mode::write), 5);
  EXPECT_EQ(read_file(path), "kept\n");
  file.append("new\n");
  EXPECT_EQ(read_file(path), "kept\nnew\n");
  // Another process may truncate the file.
  File(path, File::Mode::write).resize(2);
  file.append("more\n");
  EXPECT_EQ(read_file(path), "kemore\n");
}

TEST(AppendFile, GivesUpIfTooManyBytesAreWaiting) {
  test::TempFolder folder;
  Warnings warnings;
  std::string path = folder / "file", part(1 << 20, 'x');
  AppendFile file(File(path, File::Mode::create), 0);
  file.append("kept\n");
  {
    FileLimit limit(8);
    for (int i = 0; i < 18; ++i) file.append(part);
  }
  file.append("later\n");
  EXPECT_EQ(read_file(path), "kept\n");
  flush_log();
  EXPECT_EQ(warnings.lines.size(), 2u);
}

}  // namespace
}  // namespace ds
