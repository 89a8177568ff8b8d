#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/corpus.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

std::string run(const std::string& arguments, const std::string& output) {
  std::string command =
      "sh '" DS_SOURCE_DIR "/tools/gather_text.sh' " + arguments + " > '" + output + "'";
  int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command;
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  return text.str();
}

TEST(GatherText, ListsAndCopiesTheSameBoundedText) {
  test::TempFolder folder;
  std::string list = run("", folder / "out");
  std::vector<std::string> files;
  uintmax_t bytes = 0;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    files.push_back(line);
    bytes += std::filesystem::file_size(line);
  }
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end()));
  EXPECT_LE(bytes, 16000000u);
  // A machine that can build libds has at least its header files.
  ASSERT_GT(bytes, 1000000u);

  std::string copy = folder / "text";
  run("'" + copy + "'", folder / "out");
  std::ostringstream copied;
  copied << std::ifstream(copy + ".list").rdbuf();
  EXPECT_EQ(copied.str(), list);
  Corpus corpus = read_corpus({{copy}, 0.05, 16 << 20, true});
  EXPECT_GT(corpus.train.size(), bytes / 2);
  EXPECT_GT(corpus.heldout.size(), 0u);
  EXPECT_EQ(corpus.unreadable, 0);
  // If the selection has not changed, it is not copied again.
  std::ofstream(copy + "/kept") << "x";
  run("'" + copy + "'", folder / "out");
  EXPECT_TRUE(std::filesystem::exists(copy + "/kept"));
}

}  // namespace
}  // namespace ds
