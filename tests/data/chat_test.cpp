// Compares the tokens of jsonl lines with those of Transformers' apply_chat_template.
#include "data/chat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "data/jsonl.h"
#include "data/line_file.h"
#include "data/tokenizer.h"
#include "io/file.h"
#include "support/errors.h"
#include "support/record.h"
#include "support/semantics.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

// Creates a folder with one of the recorded tokenizers and one of the templates, and returns its
// path.
std::string model_folder(const test::TempFolder& folder, const std::string& tokenizer,
                         const std::string& family, const Json& special) {
  std::string to = folder / (tokenizer + "_" + family);
  std::filesystem::create_directories(to);
  std::filesystem::copy_file(test::data_path("tokenizers/" + tokenizer + "/tokenizer.json"),
                             to + "/tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  Json config = special;
  config.set("chat_template", read_file(test::data_path("chat_templates/" + family + ".jinja")));
  write_file_atomic(to + "/tokenizer_config.json", config.dump());
  return to;
}

std::string line_of(const Json& messages) {
  Json line;
  line.set("messages", messages);
  return line.dump();
}

std::string targets_text(const Document& document, const Tokenizer& tokenizer) {
  std::vector<int32_t> kept;
  for (size_t i = 0; i < document.tokens.size(); ++i) {
    if (document.targets[i]) kept.push_back(document.tokens[i]);
  }
  return tokenizer.decode(kept, false);
}

TEST(ChatEncoder, TokensEqualThoseOfApplyChatTemplate) {
  test::TempFolder folder;
  const test::Recording all(test::data_path("chat_templates/tokens.json"), {"chats", "cases"});
  for (const test::Record& one : all.list("cases")) {
    std::string family = one.at("family").string(), name = one.at("tokenizer").string();
    SCOPED_TRACE(name + " " + family + " chat " + one.at("chat").dump());
    std::string model = model_folder(folder, name, family, one.at("special"));
    auto tokenizer = open_tokenizer(model);
    const Json& chat =
        all.document().at("chats").array().at(static_cast<size_t>(one.at("chat").integer()));
    Document made = ChatEncoder(*tokenizer, model, "", true).encode(line_of(chat), "line");
    Json::Array ids(made.tokens.begin(), made.tokens.end());
    EXPECT_EQ(Json(ids).dump(), one.at("ids").dump());
    // Answers were recorded only for templates that mark them; otherwise all entries are 0. A line
    // without an answer is refused.
    const Json* answers = one.find("answers");
    if (!answers) continue;
    if (answers->dump().find('1') == std::string::npos) {
      EXPECT_EQ(answers->dump(), Json(Json::Array(ids.size(), Json(0))).dump());
      continue;
    }
    Document answered = ChatEncoder(*tokenizer, model, "", false).encode(line_of(chat), "line");
    EXPECT_EQ(answered.tokens, made.tokens);
    EXPECT_EQ(Json(Json::Array(answered.targets.begin(), answered.targets.end())).dump(),
              answers->dump());
  }
}

class ChatLines : public testing::Test {
 protected:
  ChatLines()
      : special_(Json::parse(R"({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})")) {}

  std::string folder(const std::string& family) {
    return model_folder(folder_, "qwen2", family, special_);
  }
  std::string targets(const std::string& family, const std::string& line,
                      const std::string& chosen = "") {
    std::string model = folder(family);
    auto tokenizer = open_tokenizer(model);
    return targets_text(
        ChatEncoder(*tokenizer, model, chosen, false).encode(line, "a.jsonl line 7"), *tokenizer);
  }
  std::string error(const std::string& family, const std::string& line,
                    const std::string& chosen = "") {
    try {
      targets(family, line, chosen);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TempFolder folder_;
  Json special_;
};

constexpr const char* kTwoAnswers =
    R"({"id": 4, "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hello there"},
        {"role": "assistant", "content": "the tide"}, {"role": "user", "content": "and"},
        {"role": "assistant", "content": "a lantern"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST_F(ChatLines, AnswersAreFoundByComparingPrefixes) {
  EXPECT_EQ(targets("chatml", one_line(kTwoAnswers)), "the tide<|im_end|>\na lantern<|im_end|>\n");
  EXPECT_EQ(targets("llama3", one_line(kTwoAnswers)), "the tide<|eot_id|>a lantern<|eot_id|>");
  EXPECT_EQ(targets("marked", one_line(kTwoAnswers)), "the tide<|im_end|>a lantern<|im_end|>");
  // Text that Qwen 3's template inserts before the last answer is part of the answer.
  std::string once =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(targets("qwen3", once), "<think>\n\n</think>\n\na<|im_end|>\n");
}

TEST_F(ChatLines, FormsOfOtherProgramsAreReadAsConversations) {
  const std::string messages =
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "q\nabout"},
          {"role": "assistant", "content": "the tide"}]})";
  std::string model = folder("chatml");
  auto tokenizer = open_tokenizer(model);
  ChatEncoder encoder(*tokenizer, model, "", false);
  const Document wanted = encoder.encode(one_line(messages), "line");
  for (
      const char* line :
      {R"({"system": "S", "conversations": [{"from": "Human", "value": "q\nabout"}, {"from": "GPT", "value": "the tide"}]})",
       R"({"conversations": [{"from": "system", "value": "S"}, {"from": "user", "value": "q\nabout"}, {"from": "assistant", "value": "the tide"}]})",
       R"({"system": "S", "conversations": [{"role": "user", "content": "q\nabout"}, {"role": "assistant", "content": "the tide"}]})",
       R"({"system": "S", "instruction": "q", "input": "about", "output": "the tide"})",
       R"({"system": "S", "instruction": "q\nabout", "input": "", "output": "the tide"})",
       R"({"system": "S", "instruction": "q", "context": "about", "response": "the tide"})",
       R"({"system": "S", "question": "q", "context": "about", "answer": "the tide"})",
       R"({"system": "S", "prompt": "q\nabout", "response": "the tide"})",
       R"({"system_prompt": "S", "question": "q\nabout", "response": "the tide"})"}) {
    const Document got = encoder.encode(line, "line");
    EXPECT_EQ(got.tokens, wanted.tokens) << line;
    EXPECT_EQ(got.targets, wanted.targets) << line;
  }
  EXPECT_NE(error("chatml", R"({"conversations": [{"from": "narrator", "value": "x"}]})")
                .find("narrator"),
            std::string::npos);
  EXPECT_NE(error("chatml", R"({"instruction": 3, "output": "x"})")
                .find("\"instruction\" must be a text"),
            std::string::npos);
}

TEST_F(ChatLines, ATextMayContainNul) {
  std::string model = folder("chatml");
  auto tokenizer = open_tokenizer(model);
  ChatEncoder encoder(*tokenizer, model, "", true);
  const Document got = encoder.encode(R"({"text": "\u00e9a\u0000b\ud83d\ude00\u0000"})", "line");
  EXPECT_EQ(tokenizer->decode(got.tokens).substr(0, 10), std::string("\xc3\xa9"
                                                                     "a\0b\xf0\x9f\x98\x80\0",
                                                                     10));
  EXPECT_NE(error("chatml", R"({"a\u0000": 1, "text": "x"})").find("in a name"), std::string::npos);
}

// Python's json module writes NaN and Infinity, for example for absent values of a table.
TEST_F(ChatLines, NumbersThatAreNotFiniteMayStandInUnusedMembersOnly) {
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e999", "-1e999"}) {
    auto with = [number](const char* text) { return fmt::format(fmt::runtime(text), number); };
    EXPECT_EQ(targets("chatml", with(R"({{"score": {}, "text": "the tide"}})")),
              "the tide<|endoftext|>");
    const std::string seen = number[0] == 'N' ? "NaN" : number[0] == '-' ? "-Infinity" : "Infinity";
    const std::pair<const char*, const char*> cases[] = {
        {R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant",)"
         R"( "content": "b", "weight": {}}}]}})",
         "\"messages[1].weight\" is "},
        {R"({{"messages": [{{"role": "assistant", "content": {}}}]}})",
         "\"messages[0].content\" is "},
        {R"({{"messages": [{{"role": "assistant", "content": "b"}}], "tools": [[{}]]}})",
         "\"tools[0][0]\" is "},
        {R"({{"prompt": {}, "completion": "b"}})", "\"prompt\" is "}};
    for (const auto& [line, words] : cases) {
      const std::string got = error("chatml", with(line));
      EXPECT_EQ(got, "a.jsonl line 7: " + (words + seen) +
                         ", which is not a value of JSON: write null, or leave the member out");
    }
    EXPECT_NE(error("chatml", with(R"({{"text": {}}})")).find("its \"text\" must be a text, got "),
              std::string::npos);
  }
}

TEST_F(ChatLines, UnstablePrefixesAreRefused) {
  std::string message = error("qwen3", one_line(kTwoAnswers));
  EXPECT_NE(message.find("a.jsonl line 7: the chat template renders the text before message 3"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("data.loss_on"), std::string::npos) << message;
  // A template that the user supplies can mark the answers.
  EXPECT_EQ(targets("qwen3", one_line(kTwoAnswers), test::data_path("chat_templates/marked.jinja")),
            "the tide<|im_end|>a lantern<|im_end|>");
}

TEST_F(ChatLines, PromptAndCompletionAreAConversation) {
  EXPECT_EQ(targets("chatml", R"({"prompt": "The harbour", "completion": " counts waves"})"),
            " counts waves<|endoftext|>");
  EXPECT_EQ(
      targets(
          "chatml",
          R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
        {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "b"}]})"),
      "b<|im_end|>\n");
  EXPECT_EQ(targets("chatml", R"({"text": "the tide"})"), "the tide<|endoftext|>");
}

TEST_F(ChatLines, BadLinesAreRefusedByNumber) {
  EXPECT_NE(error("chatml", "{").find("a.jsonl line 7: "), std::string::npos);
  EXPECT_NE(error("chatml", "[1]").find("a line must be an object, got array"), std::string::npos);
  EXPECT_NE(error("chatml", R"({"dialog": []})").find("must have \"messages\""), std::string::npos);
  EXPECT_NE(error("chatml", R"({"messages": {}})").find("must be a list of messages, got object"),
            std::string::npos);
  EXPECT_NE(error("chatml", R"({"messages": [1]})").find("must be a list of objects, got integer"),
            std::string::npos);
  EXPECT_NE(error("chatml", R"({"messages": [{"role": "user", "content": "q"}]})")
                .find("there is no answer"),
            std::string::npos);
  EXPECT_NE(error("gemma", R"({"messages": [{"role": "system", "content": "q"}]})")
                .find("the template refuses: System role not supported"),
            std::string::npos);
  EXPECT_NE(error("chatml", R"({"text": "a"})", "nowhere.jinja")
                .find("data.chat_template: \"nowhere.jinja\""),
            std::string::npos);
}

// Each form that libds does not read is named by its members, and the message suggests a form to
// use instead.
TEST_F(ChatLines, UnsupportedFormsAreNamed) {
  for (
      const auto& [line, words] : std::initializer_list<std::pair<const char*, const char*>>{
          {R"({"prompt": "q", "chosen": "a", "rejected": "b"})", "preference training"},
          {R"({"chosen": [], "rejected": []})", "preference training"},
          {R"({"prompt": "q", "completion": "b", "label": false})", "an answer to avoid"},
          {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}],)"
           R"( "label": false})",
           "an answer to avoid"},
          {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "b"}],)"
           R"( "kto_tag": false})",
           "\"kto_tag\" is false"},
          {R"({"prompt": "q", "response": "b", "label": false})", "an answer to avoid"},
          {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"},)"
           R"( {"from": "human", "value": "r"}], "chosen": {}, "rejected": {}})",
           "preference training"},
          {R"({"conversation": [{"human": "q"}]})", "a conversation under \"conversation\""},
          {R"({"input": "q", "output": "a"})",
           "a question under \"input\" and an answer under \"output\""},
          {R"({"Question": "q", "Answers": ["a"]})",
           "its \"Answers\" must be a text, got array: write one answer"},
          {R"({"context": "c", "question": "q", "answers": {"text": ["a"], "answer_start": [0]}})",
           "its \"answers\" must be a text, got object"},
          {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b",)"
           R"( "weight": 0}]})",
           "one of its answers has \"weight\" 0"},
          {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "b",)"
           R"( "weight": 0}]})",
           "one of its answers has \"weight\" 0"},
          {R"({"source": "web", "content": "x"})", "a text under \"content\""},
          {R"({"text": ["x"]})", "its \"text\" must be a text, got array"},
          {R"({"input_ids": [1, 2]})", "it has token ids"},
          {R"({"prompt": "q", "completion": null})", "it has \"prompt\", \"completion\" (null)"},
          {R"({})", "it has no members"}}) {
    const std::string got = error("chatml", line);
    EXPECT_NE(got.find("a.jsonl line 7: "), std::string::npos) << line << got;
    EXPECT_NE(got.find(words), std::string::npos) << line << got;
    EXPECT_EQ(got.find('\n'), std::string::npos) << got;
  }
  EXPECT_EQ(targets("chatml", R"({"prompt": "q", "completion": "a", "label": true})"),
            "a<|endoftext|>");
  EXPECT_EQ(targets("chatml", R"({"text": "the tide", "label": false})"), "the tide<|endoftext|>");
  EXPECT_EQ(error("chatml", R"({"messages": [{"role": "user", "content": "q", "weight": 0},)"
                            R"( {"role": "assistant", "content": "b", "weight": 1}]})"),
            "");
  EXPECT_EQ(targets("chatml", R"({"text": "the tide", "completion": "x", "label": false})"),
            "the tide<|endoftext|>");
  EXPECT_EQ(targets("chatml", R"({"messages": null, "text": "the tide"})"),
            "the tide<|endoftext|>");
}

TEST_F(ChatLines, ALineOfOneTokenIsTooShort) {
  EXPECT_NE(
      error("chatml", R"({"text": ""})").find("becomes 1 token, but a sample needs at least 2"),
      std::string::npos);
  special_ = Json::parse(R"({"bos_token": "<|endoftext|>"})");
  EXPECT_NE(
      error("chatml", R"({"text": "a"})").find("becomes 1 token, but a sample needs at least 2"),
      std::string::npos);
  EXPECT_NE(
      error("chatml", R"({"text": ""})").find("becomes no token, but a sample needs at least 2"),
      std::string::npos);
}

TEST_F(ChatLines, TemplatesWithoutADefaultAreNamed) {
  std::string model = folder("chatml");
  for (const char* templates :
       {R"([{"name": "rag", "template": "R"}, {"name": "tool_use", "template": "T"}])",
        R"({"tool_use": "T", "rag": "R"})"}) {
    write_file_atomic(model + "/tokenizer_config.json",
                      std::string(R"({"chat_template": )") + templates + "}");
    auto tokenizer = open_tokenizer(model);
    const std::string got = test::message_of(
        [&] { ChatEncoder(*tokenizer, model, "", true).encode(one_line(kTwoAnswers), "line"); },
        DS_ERROR_NOT_FOUND);
    EXPECT_NE(got.find("has none that is named \"default\": choose one of \"rag\", \"tool_use\""),
              std::string::npos)
        << got;
  }
}

TEST_F(ChatLines, NamedTemplatesAreFound) {
  std::string model = folder("chatml");
  write_file_atomic(model + "/tokenizer_config.json",
                    R"({"eos_token": "<|endoftext|>", "chat_template": [
      {"name": "default", "template": "D{% for m in messages %}{{ m.content }}{% endfor %}"},
      {"name": "tool_use", "template": "T{% for m in messages %}{{ m.content }}{% endfor %}"},
      {"name": "rag", "template": "R{% for m in messages %}{{ m.content }}{% endfor %}"}]})");
  auto tokenizer = open_tokenizer(model);
  auto text = [&](const std::string& line, const std::string& chosen) {
    Document made = ChatEncoder(*tokenizer, model, chosen, true).encode(line, "line");
    return tokenizer->decode(made.tokens, false);
  };
  std::string plain = R"({"messages": [{"role": "assistant", "content": "x"}]})";
  EXPECT_EQ(text(plain, ""), "Dx");
  EXPECT_EQ(text(plain, "rag"), "Rx");
  EXPECT_EQ(
      text(R"({"tools": [{"name": "f"}], "messages": [{"role": "assistant", "content": "x"}]})",
           ""),
      "Tx");
  write_file_atomic(model + "/chat_template.jinja", "F{{ messages[0].content }}");
  EXPECT_EQ(text(plain, ""), "Fx");
}

// As in Transformers 5.23, files of templates replace all templates of tokenizer_config.json.
TEST_F(ChatLines, AdditionalTemplatesAreFilesOfTheirOwn) {
  const std::string model = folder("chatml"), more = model + "/additional_chat_templates";
  write_file_atomic(
      model + "/tokenizer_config.json",
      R"({"eos_token": "<|endoftext|>", "chat_template": "C{{ messages[0].content }}"})");
  std::filesystem::remove(model + "/chat_template.jinja");
  make_folders(more + "/folder.jinja");
  write_file_atomic(more + "/notes.txt", "N");
  auto tokenizer = open_tokenizer(model);
  auto text = [&](const std::string& more_members, const std::string& chosen) {
    Document made =
        ChatEncoder(*tokenizer, model, chosen, true)
            .encode("{" + more_members + R"("messages": [{"role": "assistant", "content": "x"}]})",
                    "line");
    return tokenizer->decode(made.tokens, false);
  };
  const std::string tools = R"("tools": [{"name": "f"}], )", before = tokenizer_hash(model);
  EXPECT_EQ(text(tools, ""), "Cx");

  write_file_atomic(more + "/tool_use.jinja", "T{{ messages[0].content }}");
  write_file_atomic(more + "/r.a.g.jinja", "R{{ messages[0].content }}");
  EXPECT_NE(tokenizer_hash(model), before);
  EXPECT_EQ(text(tools, ""), "Tx");
  EXPECT_EQ(text("", "r.a.g"), "Rx");
  const std::string without = test::message_of([&] { text("", ""); }, DS_ERROR_NOT_FOUND);
  EXPECT_NE(without.find("choose one of \"r.a.g\", \"tool_use\""), std::string::npos) << without;

  write_file_atomic(model + "/chat_template.jinja", "F{{ messages[0].content }}");
  EXPECT_EQ(text("", ""), "Fx");
  EXPECT_EQ(text(tools, ""), "Tx");
  write_file_atomic(more + "/default.jinja", "D{{ messages[0].content }}");
  EXPECT_EQ(text("", ""), "Dx");
}

// The files of a tokenizer are what a run copies.
TEST_F(ChatLines, ACopyOfAllFilesIsTheSameTokenizer) {
  const std::string model = folder("chatml"), copy = model + "/copy";
  make_folders(model + "/additional_chat_templates");
  write_file_atomic(model + "/additional_chat_templates/tool_use.jinja", "T");
  for (const TokenizerFile& file : tokenizer_files(model)) {
    make_folders(std::filesystem::path(copy + "/" + file.name).parent_path());
    write_file_atomic(copy + "/" + file.name, read_file(file.path));
  }
  EXPECT_EQ(read_file(copy + "/additional_chat_templates/tool_use.jinja"), "T");
  EXPECT_EQ(tokenizer_hash(copy), tokenizer_hash(model));
}

TEST(LineFile, ALineAboveTheLimitIsRefused) {
  test::TempFolder folder;
  const auto most = static_cast<int64_t>(LineFile::kLongest);
  for (int64_t size : {most, most + 1}) {
    const std::string path = folder / std::to_string(size);
    File file(path, File::Mode::create);
    // A file without content of its own has zeros.
    file.resize(2 + size + 4);
    file.write("a\n", 2, 0);
    file.write("\nend", 4, 2 + size);
    LineFile lines(path);
    std::string line;
    ASSERT_TRUE(lines.next(line));
    if (size > most) {
      const std::string got = test::message_of([&] { lines.next(line); }, DS_ERROR_CORRUPT);
      EXPECT_NE(got.find("line 2 has more than 67108864 bytes"), std::string::npos) << got;
      continue;
    }
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line.size(), LineFile::kLongest);
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "end");
  }
}

TEST_F(ChatLines, FilesAreReadLineByLine) {
  std::string model = folder("chatml");
  auto tokenizer = open_tokenizer(model);
  ChatEncoder encoder(*tokenizer, model, "", false);
  std::filesystem::create_directories(folder_ / "lines");
  std::ofstream(folder_ / "lines/a.jsonl", std::ios::binary)
      << "\xef\xbb\xbf{\"text\": \"one\"}\r\n\n   \n{\"text\": \"two\"}\n{\"text\": \"three\"}";
  std::ofstream(folder_ / "lines/b.txt") << "no json";
  auto write = [&](double heldout) {
    return write_jsonl_documents({{folder_ / "lines"}, heldout}, encoder,
                                 {.vocab = tokenizer->vocab(), .documents = true, .marked = true},
                                 folder_ / "t.tokens", folder_ / "h.tokens");
  };
  JsonlFacts none = write(0), some = write(0.4);
  EXPECT_EQ(none.train, 3);
  EXPECT_EQ(none.heldout, 0);
  EXPECT_EQ(some.train + some.heldout, 3);
  EXPECT_GE(some.heldout, 1);
  EXPECT_GE(some.train, 1);
  EXPECT_EQ(TokenFile(folder_ / "t.tokens").documents(), some.train);
  std::ofstream(folder_ / "lines/c.jsonl") << "{\"text\": \"four\"}\n{\"text\": 5}\n";
  try {
    write(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("c.jsonl' line 2: a line must have"),
              std::string::npos)
        << error.what();
  }
  // The token file of the earlier run still exists.
  EXPECT_EQ(TokenFile(folder_ / "t.tokens").documents(), some.train);
}

// In a folder without .jsonl and .ndjson files, .json files are read. The first five files that are
// left out are named in a message, some of them with what to do.
TEST_F(ChatLines, FilesThatAreLeftOutAreNamed) {
  std::string model = folder("chatml");
  auto tokenizer = open_tokenizer(model);
  ChatEncoder encoder(*tokenizer, model, "", false);
  auto write = [&] {
    return write_jsonl_documents({{folder_ / "mixed"}, 0}, encoder,
                                 {.vocab = tokenizer->vocab(), .documents = true, .marked = true},
                                 folder_ / "t.tokens", "");
  };
  std::filesystem::create_directories(folder_ / "mixed/deep");
  const std::string at = (folder_ / "mixed") + "/";
  for (const char* name :
       {"a.jsonl.GZ", "b.parquet", "c.csv", "d.md", "e.md", "f.md", "g.md", "config.json"})
    std::ofstream(at + name) << "x";
  const std::string left = "; left out: " + at + "a.jsonl.GZ (unpack first), " + at +
                           "b.parquet, " + at + "c.csv (write as .jsonl first), " + at +
                           "config.json, " + at + "d.md and 3 more";
  const std::string got = test::message_of(write, DS_ERROR_CONFIG);
  EXPECT_NE(got.find("no line of jsonl"), std::string::npos) << got;
  EXPECT_TRUE(got.ends_with(left)) << got << "\n" << left;
  std::ofstream(folder_ / "mixed/deep/2.json") << R"([{"text": "two"}, {"text": "three"}])";
  JsonlFacts facts = write();
  EXPECT_EQ(facts.train, 2);
  EXPECT_TRUE(describe(facts).ends_with(left)) << describe(facts);
  std::ofstream(folder_ / "mixed/4.json") << "{\n  \"text\": \"five\"\n}\n";
  EXPECT_NE(test::message_of(write, DS_ERROR_CORRUPT).find("an object continues in the next line"),
            std::string::npos);
  std::ofstream(folder_ / "mixed/4.json") << "{\"text\": \"five\"},\n{\"text\": \"six\"}\n";
  EXPECT_NE(test::message_of(write, DS_ERROR_CORRUPT).find("a comma follows the object"),
            std::string::npos);
}

// Files that editors, version control or notebooks keep in a folder are not data.
TEST_F(ChatLines, UnrelatedFilesInTheFolderAreIgnored) {
  std::string model = folder("chatml");
  auto tokenizer = open_tokenizer(model);
  ChatEncoder encoder(*tokenizer, model, "", false);
  for (const char* name : {"lines/.git", "lines/.ipynb_checkpoints", "lines/deep"})
    std::filesystem::create_directories(folder_ / name);
  std::ofstream(folder_ / "lines/deep/1.JSONL") << R"({"text": "one"})";
  std::ofstream(folder_ / "lines/3.ndjson") << R"({"text": "four"})";
  std::ofstream(folder_ / "lines/.ipynb_checkpoints/1.jsonl") << R"({"text": "one"})";
  std::ofstream(folder_ / "lines/._1.jsonl") << '\x00' << '\x05';
  for (const char* name : {"lines/stats.json", "lines/.git/x.json", "lines/deep/package.json"})
    std::ofstream(folder_ / name) << "{\n  \"loss\": 1\n}\n";
  JsonlFacts facts = write_jsonl_documents(
      {{folder_ / "lines"}, 0}, encoder,
      {.vocab = tokenizer->vocab(), .documents = true, .marked = true}, folder_ / "t.tokens", "");
  EXPECT_EQ(facts.train, 2);
  const std::string at = (folder_ / "lines") + "/";
  EXPECT_TRUE(
      describe(facts).ends_with("; left out: " + at + "deep/package.json, " + at + "stats.json"))
      << describe(facts);
}

// Arrow gives every turn of a file the members of all turns, with null for missing ones.
TEST_F(ChatLines, NullsInsideTurnsCountAsAbsent) {
  EXPECT_EQ(
      targets("chatml", R"({"conversations": [)"
                        R"({"from": "human", "value": "q", "role": null, "content": null},)"
                        R"({"from": "gpt", "value": "a", "role": null, "content": null}]})"),
      targets(
          "chatml",
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"));
}

// Files as other programs publish them: a single list, or one object per line.
TEST_F(ChatLines, FilesOfOtherProgramsBecomeSamples) {
  std::string model = folder("chatml");
  auto tokenizer = open_tokenizer(model);
  ChatEncoder encoder(*tokenizer, model, "", false);
  auto written = [&](const JsonlOptions& options) {
    write_jsonl_documents(options, encoder,
                          {.vocab = tokenizer->vocab(), .documents = true, .marked = true},
                          folder_ / "o.tokens", "");
    TokenFile file(folder_ / "o.tokens");
    std::string out;
    int64_t begin = 0;
    for (const DocumentEnd& one : file.ends()) {
      std::vector<int32_t> tokens(static_cast<size_t>(one.end - begin));
      std::vector<uint8_t> marks(tokens.size());
      file.copy(begin, tokens, marks);
      begin = one.end;
      out += tokenizer->decode(tokens, false) + "--> ";
      out += targets_text({std::move(tokens), std::move(marks)}, *tokenizer) + "==\n";
    }
    return out;
  };
  // The same text in a configuration gives the samples of the file.
  auto samples = [&](const std::string& name, const std::string& content) {
    write_file_atomic(folder_ / name, content);
    const std::string out = written({{folder_ / name}, 0});
    EXPECT_EQ(written({{}, 0, nullptr, content}), out);
    return out;
  };
  const std::string asked = "<|im_start|>user\n", answered = "<|im_end|>\n<|im_start|>assistant\n",
                    end = "<|im_end|>\n";
  const std::string two = asked + "Count\nwaves" + answered + "three" + end + "--> three" + end +
                          "==\n" + asked + "Wait" + answered + "yes" + end + "--> yes" + end +
                          "==\n";
  EXPECT_EQ(samples("alpaca.json", R"([
  {"instruction": "Count", "input": "waves", "output": "three"},
  {"instruction": "Wait", "input": "", "output": "yes"}
])"),
            two);
  EXPECT_EQ(
      samples("dolly.jsonl",
              R"({"instruction": "Count", "context": "waves", "response": "three", "category": "x"}
{"instruction": "Wait", "context": "", "response": "yes", "category": "y"}
)"),
      two);
  EXPECT_EQ(samples("sharegpt.json",
                    R"(  [{"id": "1", "conversations": [{"from": "human", "value": "Count\nwaves"},
    {"from": "gpt", "value": "three"}]}, {"id": "2", "conversations": [{"from": "human", "value": "Wait"},
    {"from": "gpt", "value": "yes"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "r"}]}])"),
            two.substr(0, two.find("==\n") + 3) + asked + "Wait" + answered + "yes" + end + asked +
                "q" + answered + "r" + end + "--> yes" + end + "r" + end + "==\n");
  EXPECT_EQ(samples("pairs.json", R"([{"question": "Count\nwaves", "answer": "three"},
    {"prompt": "Wait", "response": "yes"}])"),
            two);
  EXPECT_EQ(samples("texts.json", "\xef\xbb\xbf[{\"text\": \"one\"}]"),
            "one<|endoftext|>--> one<|endoftext|>==\n");
  for (const auto& [content, words] : {std::pair{R"([{"text": "a"}, {"instruction": "q"}])",
                                                 "bad.json' element 2: a line must have"},
                                       {R"([{"text": "a"}, )", "bad.json: "},
                                       {"[]", "data.paths hold no line of jsonl"}}) {
    try {
      samples("bad.json", content);
      ADD_FAILURE() << content;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

// If an answer begins or ends within a token, the token is a target if any of its characters
// belongs to the answer.
TEST(ChatEncoder, TokensAcrossAnAnswersEdgeAreTargets) {
  test::TempFolder folder;
  write_file_atomic(folder / "tokenizer.json", R"({"model":{"type":"BPE",
    "vocab":{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"ef":6,"def":7,"cdef":8,"ab":9,"abc":10},
    "merges":["e f","d ef","c def","a b","ab c"]}})");
  write_file_atomic(folder / "tokenizer_config.json", R"({"chat_template":
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"})");
  auto tokenizer = open_tokenizer(folder.path());
  ChatEncoder encoder(*tokenizer, folder.path(), "", false);
  auto targets = [&](const char* line) {
    Document made = encoder.encode(line, "line");
    EXPECT_EQ(made.tokens, (std::vector<int32_t>{9, 8}));
    return made.targets;
  };
  using Targets = std::vector<uint8_t>;
  EXPECT_EQ(targets(R"({"prompt": "abc", "completion": "def"})"), (Targets{0, 1}));
  EXPECT_EQ(targets(R"({"prompt": "a", "completion": "bcdef"})"), (Targets{1, 1}));
  EXPECT_EQ(
      targets(
          R"({"messages": [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "de"},
                        {"role": "user", "content": "f"}]})"),
      (Targets{0, 1}));
  EXPECT_EQ(
      targets(
          R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"},
                        {"role": "user", "content": "def"}]})"),
      (Targets{0, 1}));
}

}  // namespace
}  // namespace ds
