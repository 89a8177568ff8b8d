#include "launch/env_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "support/temp_folder.h"

namespace ds {
namespace {

TEST(EnvFile, LinesAreNamesAndValues) {
  Variables got = parse_env_file("A=1\n\n# note\n  B = two words \nC=x=y\nD=\nA=3\n", "f");
  EXPECT_EQ(got, (Variables{{"A", "3"}, {"B", "two words"}, {"C", "x=y"}, {"D", ""}}));
}

TEST(EnvFile, RefusalsNameFileLineAndText) {
  for (const char* line : {"export", "=3"}) {
    try {
      parse_env_file(std::string("A=1\n") + line + "\n", "e");
      ADD_FAILURE() << line;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(
          error.what(),
          std::string("environment file 'e', line 2: must be NAME=VALUE, got '") + line + "'");
    }
  }
}

TEST(EnvFile, TheWorkingFolderReplacesHome) {
  test::TempFolder root;
  std::string home = root.path() + "/home", here = root.path() + "/here";
  std::filesystem::create_directory(home);
  std::filesystem::create_directory(here);
  EXPECT_EQ(read_env_files(".deepspeed_env", home, here), Variables{});
  std::ofstream(home + "/.deepspeed_env") << "A=home\nB=home\n";
  std::ofstream(here + "/.deepspeed_env") << "B=here\n";
  EXPECT_EQ(read_env_files(".deepspeed_env", home, here),
            (Variables{{"A", "home"}, {"B", "here"}}));
  EXPECT_EQ(read_env_files(home + "/.deepspeed_env", home, here),
            (Variables{{"A", "home"}, {"B", "home"}}));
  EXPECT_EQ(read_env_files(".deepspeed_env", "", here), (Variables{{"B", "here"}}));
}

}  // namespace
}  // namespace ds
