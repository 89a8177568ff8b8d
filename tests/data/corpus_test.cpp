#include "data/corpus.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/licence.h"
#include "io/file.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

class CorpusFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  CorpusOptions all(double heldout = 0) const {
    return {{folder_.path()}, heldout, 1 << 20, false};
  }
  test::TempFolder folder_;
};

TEST_F(CorpusFiles, GathersSortedTextOnce) {
  write("b/z.txt", "last");
  write("a.txt", "first");
  write("b/c/deep.txt", "middle \xe2\x82\xac");
  write("copy.txt", "first");
  write("nul.bin", std::string("a\0b", 3));
  write("latin1.txt", "caf\xe9");
  write("empty.txt", "");
  write("space.txt", " \n\n");
  std::filesystem::create_directory_symlink(folder_.path(), folder_ / "loop");
  std::filesystem::create_symlink(folder_ / "gone", folder_ / "dangling");
  Corpus corpus = read_corpus(all());
  std::string expected = "first";
  expected.push_back('\0');
  expected += "middle \xe2\x82\xac";
  expected.push_back('\0');
  expected += "last";
  expected.push_back('\0');
  EXPECT_EQ(corpus.train, expected);
  EXPECT_EQ(corpus.heldout, "");
  EXPECT_EQ(corpus.train_files, 3);
  EXPECT_EQ(corpus.duplicates, 1);
  EXPECT_EQ(corpus.not_text, 4);
  EXPECT_FALSE(corpus.full);
  EXPECT_EQ(read_corpus(all()).hash, corpus.hash);
  write("a.txt", "First");
  EXPECT_NE(read_corpus(all()).hash, corpus.hash);
  CorpusOptions named = all();
  named.paths = {folder_ / "b/z.txt", folder_ / "a.txt", folder_ / "b/z.txt"};
  EXPECT_EQ(read_corpus(named).train_files, 2);
  EXPECT_EQ(describe(corpus),
            "corpus: 3 files, 22 bytes to train; 0 files, 0 bytes held out; left out: 1 "
            "duplicates, 4 not text, 0 "
            "unreadable; hash " +
                corpus.hash);
}

TEST_F(CorpusFiles, RefusesAPipeAndObeysTheStopFlag) {
  write("a.txt", "text");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  // A pipe inside a folder is not treated as a text file.
  EXPECT_EQ(read_corpus(all()).train_files, 1);
  CorpusOptions options = all();
  options.paths = {folder_ / "pipe"};
  test::expect_names(test::message_of([&] { read_corpus(options); }, DS_ERROR_CONFIG),
                     {folder_ / "pipe"});
  options.paths = {"/dev/zero"};
  test::expect_names(test::message_of([&] { read_corpus(options); }, DS_ERROR_CONFIG),
                     {"/dev/zero"});
  volatile int32_t stop = 1;
  options = all();
  options.stop = &stop;
  test::message_of([&] { read_corpus(options); }, DS_ERROR_USER);
}

TEST_F(CorpusFiles, HoldsOutWholeFilesByContent) {
  for (int i = 0; i < 400; ++i) write("f" + std::to_string(i), "text number " + std::to_string(i));
  Corpus corpus = read_corpus(all(0.25));
  EXPECT_EQ(corpus.train_files + corpus.heldout_files, 400);
  // The tolerance is five standard deviations.
  EXPECT_NEAR(corpus.heldout_files, 100, 45);
  // Whether a file is held out depends only on its content: after other files are removed, each
  // file stays on its side.
  for (int i = 200; i < 400; ++i) std::filesystem::remove(folder_ / ("f" + std::to_string(i)));
  Corpus half = read_corpus(all(0.25));
  for (int i = 0; i < 200; ++i) {
    std::string text = "text number " + std::to_string(i);
    text.push_back('\0');
    EXPECT_EQ(corpus.heldout.find(text) == std::string::npos,
              half.heldout.find(text) == std::string::npos)
        << i;
  }
}

TEST_F(CorpusFiles, ASingleFileHoldsOutItsEnd) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xe2\x82\xac";
  write("only.txt", text);
  Corpus corpus = read_corpus(all(0.1));
  EXPECT_NEAR(static_cast<double>(corpus.heldout.size()), 300, 4);
  EXPECT_TRUE(is_utf8(corpus.train));
  EXPECT_TRUE(is_utf8(corpus.heldout));
  EXPECT_EQ(corpus.train.size() + corpus.heldout.size(), text.size() + 1);
}

TEST_F(CorpusFiles, AGivenTextIsTheTextOfAFile) {
  const std::string text = "one line\nanother \xe2\x82\xac\n";
  write("only.txt", text);
  CorpusOptions given{{}, 0.2, 1 << 20, false, nullptr, text};
  Corpus corpus = read_corpus(given), file = read_corpus(all(0.2));
  EXPECT_EQ(corpus.train, file.train);
  EXPECT_EQ(corpus.heldout, file.heldout);
  EXPECT_EQ(corpus.hash, file.hash);
  for (const std::string& bad : {std::string(" \n"), std::string("a\0b", 3), std::string("\xe9")}) {
    given.text = bad;
    test::expect_names(test::message_of([&] { read_corpus(given); }, DS_ERROR_CONFIG),
                       {"data.text: must be UTF-8 without NUL"});
  }
}

TEST_F(CorpusFiles, StopsAtMaxBytes) {
  write("a", std::string(600, 'a'));
  write("b", "\xe2\x82\xac\xe2\x82\xac" + std::string(600, 'b'));
  write("c", std::string(10, 'c'));
  CorpusOptions options = all();
  // 601 bytes for a, and 4 for the text of b: one character of three bytes and the NUL.
  options.max_bytes = 606;
  Corpus corpus = read_corpus(options);
  EXPECT_TRUE(corpus.full);
  EXPECT_EQ(corpus.train_files, 2);
  EXPECT_EQ(corpus.train.size(), 605u);
  EXPECT_TRUE(is_utf8(corpus.train));
  options.max_bytes = 100;
  EXPECT_EQ(read_corpus(options).train.size(), 100u);
  EXPECT_EQ(read_corpus(options).train_files, 1);
}

TEST_F(CorpusFiles, ErrorsNameThePath) {
  try {
    read_corpus({{folder_ / "missing"}, 0, 100, false});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_NOT_FOUND);
    EXPECT_NE(std::string(e.what()).find(folder_ / "missing"), std::string::npos);
  }
  try {
    read_corpus(all());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG);
    EXPECT_NE(std::string(e.what()).find(folder_.path()), std::string::npos);
  }
  write_file_atomic(folder_ / "model.gguf", std::string("GGUF\3\0\0\0", 8));
  test::expect_names(test::message_of(
                         [&] {
                           read_corpus({{folder_ / "model.gguf"}, 0, 100, false});
                         },
                         DS_ERROR_CONFIG),
                     {"model.gguf' is a GGUF file"});
  EXPECT_THROW(read_corpus({{}, 0, 100, false}), Error);
  EXPECT_THROW(read_corpus({{folder_.path()}, 1, 100, false}), Error);
  EXPECT_THROW(read_corpus({{folder_.path()}, 0, 0, false}), Error);
}

TEST(Licence, LeadingLicenceCommentsAreRemoved) {
  EXPECT_EQ(strip_licence("/* Copyright (C) X */\n\nint a;\n"), "int a;\n");
  EXPECT_EQ(strip_licence("// <algorithm>\n\n// COPYRIGHT x\n// more\n\n#include <a>\n"),
            "// <algorithm>\n#include <a>\n");
  EXPECT_EQ(strip_licence("#!/bin/sh\n# Licence: MIT\n\nls\n"), "ls\n");
  EXPECT_EQ(strip_licence("/* doc */ // license\nx"), "/* doc */x");
  for (const char* same :
       {"int a; /* copyright */", "#include <license.h>\nint a;", "/* doc */\nint a;\n",
        "#define COPYRIGHT\n", "/* copyright without end", "", "  \n", "text copyright"}) {
    EXPECT_EQ(strip_licence(same), same);
  }
  EXPECT_EQ(strip_licence("# copyright"), "");
}

}  // namespace
}  // namespace ds
