// Calls and errors across the boundary to libds_text.so, and the message if that library is
// missing.
#include "data/text_plugin.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "data/chat.h"
#include "data/tokenizer.h"
#include "support/errors.h"

namespace ds {
namespace {

const std::string kRecorded = std::string(DS_SOURCE_DIR) + "/tests/data/tokenizers/";

TEST(TextPlugin, ErrorsKeepStatusMessageAndKey) {
  try {
    ChatEncoder(*open_tokenizer("bytes"), "bytes", "no-such", false);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_NOT_FOUND);
    EXPECT_STREQ(
        error.what(),
        "data.chat_template: \"no-such\" is neither a file nor a chat template of 'bytes'");
    EXPECT_EQ(error.details().key, "data.chat_template");
  }
  const std::string home = test::message_of(
      [] { ChatEncoder(*open_tokenizer("bytes"), "bytes", "~/chat.jinja", false); },
      DS_ERROR_NOT_FOUND);
  EXPECT_NE(home.find("only a shell replaces ~"), std::string::npos) << home;
  // An error without a key must not keep the key of the previous error.
  try {
    ChatEncoder(*open_tokenizer("bytes"), "bytes", "", false).encode("[1]", "line 3");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_CONFIG);
    EXPECT_TRUE(std::string(error.what()).starts_with("line 3: ")) << error.what();
    EXPECT_EQ(error.details().key, "");
  }
}

TEST(TextPlugin, ThreadsHaveTheirOwnErrors) {
  std::vector<std::string> messages(8);
  std::vector<std::thread> threads;
  for (std::string& message : messages) {
    threads.emplace_back([&message, name = "/none/" + std::to_string(threads.size())] {
      for (int i = 0; i < 100; ++i) {
        try {
          open_tokenizer(name);
        } catch (const Error& error) {
          message = error.what();
        }
        if (message.find("'" + name + "'") == std::string::npos) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < messages.size(); ++i)
    EXPECT_NE(messages[i].find("'/none/" + std::to_string(i) + "'"), std::string::npos)
        << messages[i];
}

TEST(TextPlugin, TextsMayContainAnyBytes) {
  auto bytes = open_tokenizer("bytes");
  const std::string text("a\0b\xff", 4);
  EXPECT_EQ(bytes->encode(text), (std::vector<int32_t>{'a', 0, 'b', 255}));
  EXPECT_EQ(bytes->decode(bytes->encode(text)), text);
  EXPECT_TRUE(bytes->encode("").empty());
  EXPECT_EQ(bytes->decode({}), "");
  EXPECT_EQ(bytes->end_of_text(), 0);
  EXPECT_FALSE(bytes->mask_token().has_value());
  EXPECT_TRUE(tokenizer_files("bytes").empty());
}

TEST(TextPlugin, FilesCrossTheBoundaryWithPathsAndNames) {
  const std::string folder = kRecorded + "gpt2_pair";
  std::vector<TokenizerFile> files = tokenizer_files(folder);
  ASSERT_GE(files.size(), 2u);
  EXPECT_EQ(files[0].name, "vocab.json");
  EXPECT_EQ(files[0].path, folder + "/vocab.json");
  EXPECT_EQ(files[1].name, "merges.txt");
  EXPECT_EQ(files[1].path, folder + "/merges.txt");
}

}  // namespace
}  // namespace ds
