#include "core/base/file_stream.h"

#include <gtest/gtest.h>

#include <sstream>

#include "support/file_limit.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

std::string whole(const std::string& path) {
  std::ostringstream text;
  text << InputFile(path).rdbuf();
  return text.str();
}

TEST(FileStream, ReadsBackWrittenBytes) {
  test::TempFolder folder;
  std::string path = folder / "text", large(100000, 'x');
  {
    OutputFile out(path);
    out << "step," << 3 << '\n' << large << '\n';
    // The last newline is still in the buffer.
    EXPECT_EQ(whole(path).size(), 100008u - 1);
    out << std::flush;
    EXPECT_EQ(whole(path).size(), 100008u);
    out << "end";
  }
  EXPECT_EQ(whole(path), "step,3\n" + large + "\nend");
  InputFile in(path);
  std::string word, line;
  in >> word;
  std::getline(in, line);
  std::getline(in, line);
  EXPECT_EQ(word, "step,3");
  EXPECT_EQ(line, large);
  std::getline(in, line);
  EXPECT_EQ(line, "end");
  EXPECT_TRUE(in.eof());
  EXPECT_FALSE(in.bad());
}

TEST(FileStream, FailedSystemCallsAreErrors) {
  test::TempFolder folder;
  errno = 0;
  EXPECT_FALSE(InputFile(folder / "nothing"));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(OutputFile(folder.path()));
  OutputFile(folder / "there") << "a";
  EXPECT_FALSE(OutputFile(folder / "there"));
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(whole(folder / "there"), "a");
  InputFile of_a_folder(folder.path());
  std::string word;
  EXPECT_FALSE(of_a_folder >> word);
  EXPECT_TRUE(of_a_folder.bad());
  test::FileLimit limit(2);
  OutputFile full(folder / "full");
  full << "text";
  EXPECT_TRUE(full);
  full.close();
  EXPECT_FALSE(full);
}

TEST(Descriptor, MovesAboveTheStandardOnes) {
  EXPECT_EQ(above_standard(-1), -1);
  int saved = ::fcntl(0, F_DUPFD_CLOEXEC, 10);
  ::close(0);
  {
    int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(raw, 0);
    int moved = above_standard(raw);
    EXPECT_GT(moved, 2);
    EXPECT_EQ(::fcntl(moved, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::fcntl(0, F_GETFD), -1);
    ::close(moved);
    StandardFilled filled;
    EXPECT_NE(::fcntl(0, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(0, F_GETFD), -1);
  if (saved >= 0) ::dup2(saved, 0);
  if (saved >= 0) ::close(saved);
}

}  // namespace
}  // namespace ds
