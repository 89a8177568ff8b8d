// Compares chat templates with their renderings by Transformers (recorded by
// tools/make_chat_templates.py).
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"
#include "support/record.h"
#include "support/semantics.h"
#include "text/jinja/jinja.h"

namespace ds::text {
namespace {

std::string family(const std::string& name) {
  return read_file(test::data_path("chat_templates/" + name + ".jinja"));
}

// Returns the rendered text, or "error: " and the message.
std::string render(const std::string& source, const Json& variables) {
  try {
    return ChatTemplate(source, "t").render(variables).text;
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

void expect_as_recorded(const test::Record& one, const std::string& source, const Json& variables) {
  const std::string made = render(source, variables);
  EXPECT_NE(one.has("text"), one.has("error"));
  if (const Json* text = one.find("text")) {
    EXPECT_EQ(made, text->string());
  } else {
    EXPECT_TRUE(made.starts_with("error: ")) << made;
  }
}

TEST(ChatTemplate, RendersFamiliesAsTransformersDoes) {
  const test::Recording all(test::data_path("chat_templates/renders.json"),
                            {"chats", "tools", "special", "cases"});
  for (const test::Record& one : all.list("cases")) {
    SCOPED_TRACE(one.at("family").string() + " chat " + one.at("chat").dump() +
                 one.at("tools").dump());
    Json variables = all.document().at("special");
    variables.set("messages", all.document().at("chats").array().at(
                                  static_cast<size_t>(one.at("chat").integer())));
    variables.set("tools", one.at("tools").boolean() ? all.document().at("tools") : Json());
    variables.set("documents", Json());
    variables.set("add_generation_prompt", one.at("prompt"));
    expect_as_recorded(one, family(one.at("family").string()), variables);
  }
}

TEST(ChatTemplate, RendersConstructsAsTransformersDoes) {
  const test::Recording all(test::data_path("chat_templates/constructs.json"),
                            {"variables", "cases"});
  for (const test::Record& one : all.list("cases")) {
    SCOPED_TRACE(one.at("template").string());
    expect_as_recorded(one, one.at("template").string(), all.document().at("variables"));
  }
}

TEST(ChatTemplate, TheSmallestIntegerModuloMinusOneIsZero) {
  const Json none{Json::Object{}};
  EXPECT_EQ(ChatTemplate("{{ (-9223372036854775807 - 1) % -1 }}", "t").render(none).text, "0");
}

// Python raises an error with a message of the same meaning.
TEST(ChatTemplate, PowersAndQuotientsWithoutAResultAreNamed) {
  const Json none{Json::Object{}};
  EXPECT_NE(render("{{ 10.0 ** 400 }}", none).find("10 ** 400 is beyond the range of a float"),
            std::string::npos);
  EXPECT_NE(render("{{ 0 ** -1 }}", none).find("0 cannot be raised to the negative power -1"),
            std::string::npos);
  EXPECT_NE(render("{{ 1 / 0 }}", none).find("division by 0"), std::string::npos);
}

// The results are those of Python 3.11.
TEST(ChatTemplate, CharactersWithoutAnotherCaseAreCased) {
  const Json none{Json::Object{}};
  auto rendered = [&](const std::string& text) {
    return ChatTemplate("{{ '" + text + "' is lower }} {{ '" + text + "' is upper }} {{ '" + text +
                            "'.title() }}",
                        "t")
        .render(none)
        .text;
  };
  EXPECT_EQ(rendered("\u00aa"), "True False \u00aa");
  EXPECT_EQ(rendered("\u00aa1"), "True False \u00aa1");
  EXPECT_EQ(rendered("a\u2167"), "False False A\u2177");
  EXPECT_EQ(rendered("\u2177"), "True False \u2167");
  EXPECT_EQ(rendered("\u2167"), "False True \u2167");
  EXPECT_EQ(rendered("\u01c5"), "False False \u01c5");
  EXPECT_EQ(rendered("\u0138"), "True False \u0138");
  EXPECT_EQ(rendered("1"), "False False 1");
  EXPECT_EQ(rendered("\u02b0b"), "True False \u02b0b");
}

// Python renders these templates, some of them to a text that contains an address. libds refuses
// them, because it would render another text.
TEST(ChatTemplate, RefusesTextsThatPythonRendersDifferently) {
  const Json variables = Json::parse(R"({"nums": [1, 2], "d": {"k": 1}})", "variables");
  const std::pair<const char*, const char*> templates[] = {
      {"{% set g = nums | select %}{{ g | list }}{{ g | list }}", "is read a second time"},
      {"{% set g = nums | select %}{% for x in g %}{{ g | first }}{% endfor %}",
       "is read a second time"},
      {"{% set g = nums | map('string') %}{{ '1' in g }}{{ g | join }}", "is read a second time"},
      {"{{ nums | select }}", "a generator cannot be shown"},
      {"{{ [nums | reverse] }}", "a generator cannot be shown"},
      {"{{ range(3) }}", "a range cannot be shown"},
      {"{{ d.keys() == {}.keys() }}", "'==' of a dict_keys and a dict_keys is unsupported"},
      {"{{ 1e20 | int(9) }}", "int cannot convert 1e+20: it has more than 64 bits"},
      {"{{ '1e20' | int }}", "more than 64 bits"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", "more than 64 bits"},
      {"{{ '1_000' | int }}", "a number with '_' is unsupported"},
      {"{{ ('9' * 400) | int }}", "it has more than 64 bits"},
      {"{{ '-9223372036854775809' | int }}",
       "int cannot convert -9223372036854775809: it has more than 64 bits"},
      {"{{ (-8) ** 0.5 }}", "-8 ** 0.5 is a complex number, which is unsupported"},
      {"{{ 1e400 }}", "'1e400' is beyond the range of a float"},
      {"{% macro m() %}{% endmacro %}{{ m.name }}", "attribute 'name' is unsupported"},
      {"{{ range(3).start }}", "attribute 'start' is unsupported"},
  };
  for (const auto& [source, words] : templates)
    EXPECT_NE(render(source, variables).find(words), std::string::npos)
        << source << ": " << render(source, variables);
}

}  // namespace
}  // namespace ds::text
