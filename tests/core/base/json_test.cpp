#include "core/base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <clocale>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json_data.h"
#include "core/base/json_read.h"
#include "core/base/random.h"
#include "core/base/utf8.h"
#include "support/dice.h"

namespace ds {
namespace {

std::string error_of(std::string_view text) {
  try {
    Json::parse(text, "doc");
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG);
    EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << e.what();
    return e.what();
  }
  return "";
}

TEST(Json, KindsAndTheOrderOfKeysAreKept) {
  Json j = Json::parse(R"({"z": 1, "a": [true, null, "x\u00e9\n"], "m": {"d": 0.5}})");
  ASSERT_EQ(j.object().size(), 3u);
  EXPECT_EQ(j.object()[0].first, "z");
  EXPECT_EQ(j.object()[1].first, "a");
  EXPECT_EQ(j.at("a").array()[2].string(), "x\xc3\xa9\n");
  EXPECT_TRUE(j.at("a").array()[1].is_null());
  EXPECT_EQ(j.at("m").at("d").number(), 0.5);
  EXPECT_STREQ(j.at("m").kind(), "object");
  EXPECT_STREQ(j.at("z").kind(), "integer");
  EXPECT_EQ(j.find("absent"), nullptr);
  EXPECT_THROW(j.at("absent"), Error);
  EXPECT_THROW(j.at("z").string(), Error);
  // A byte order mark is skipped.
  EXPECT_EQ(Json::parse("\xef\xbb\xbf[1]").array().size(), 1u);
}

TEST(Json, IntegersAreExact) {
  for (int64_t i : {int64_t{0}, int64_t{9007199254740993}, INT64_MAX, INT64_MIN}) {
    Json j = Json::parse(std::to_string(i));
    ASSERT_TRUE(j.is_integer());
    EXPECT_EQ(j.integer(), i);
    EXPECT_EQ(j.dump(), std::to_string(i));
  }
  // This is the largest int64 plus 1.
  Json above = Json::parse("9223372036854775808");
  EXPECT_FALSE(above.is_integer());
  EXPECT_EQ(above.number(), 0x1p63);
  EXPECT_THROW(above.integer(), Error);
  EXPECT_EQ(Json::parse("5e8").integer(), 500000000);
  EXPECT_STREQ(Json::parse("5e8").kind(), "number");
  EXPECT_THROW(Json::parse("0.5").integer(), Error);
  EXPECT_THROW(Json::parse("-1e19").integer(), Error);
}

TEST(Json, DoublesRoundTrip) {
  for (uint32_t i = 0; i < 20000; ++i) {
    auto w = philox({i, 0, 0, 0}, {7, 7});
    double x = std::bit_cast<double>(uint64_t{w[0]} << 32 | w[1]);
    if (!std::isfinite(x)) continue;
    Json back = Json::parse(Json(x).dump());
    ASSERT_FALSE(back.is_integer()) << Json(x).dump();
    ASSERT_EQ(std::bit_cast<uint64_t>(back.number()), std::bit_cast<uint64_t>(x)) << Json(x).dump();
  }
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(-0.0).dump(), "-0.0");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
}

TEST(Json, LocaleDoesNotMatter) {
  std::string before = std::setlocale(LC_NUMERIC, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {
    if (!std::setlocale(LC_NUMERIC, name)) continue;
    EXPECT_EQ(Json(0.5).dump(), "0.5");
    EXPECT_EQ(Json::parse("[0.25]").array()[0].number(), 0.25);
  }
  std::setlocale(LC_NUMERIC, before.c_str());
}

TEST(Json, CommentsAreSkipped) {
  Json j = Json::parse("{ // one\n \"a\": /* two\n lines */ 1 }  // end");
  EXPECT_EQ(j.at("a").integer(), 1);
  EXPECT_NE(error_of("{/* open"), "");
}

TEST(Json, DuplicateKeysAreRefusedWithTheirPlace) {
  EXPECT_EQ(error_of("{\"a\": 1,\n  \"b\": 2,\n  \"a\": 3}"),
            "doc: line 3, column 3: duplicate key 'a'");
  EXPECT_EQ(error_of(R"({"x": {"q\"\\": 1, "q\"\\": 1}})"),
            R"(doc: line 1, column 20: duplicate key 'q"\')");
  EXPECT_EQ(error_of(R"([{"a": 1}, {"a": 1}, {"b": {"a": 1}, "a": 2}])"), "");
}

TEST(Json, BadInputNamesThePlace) {
  EXPECT_NE(error_of("{\n\"a\": tru}").find("doc: line 2, column"), std::string::npos);
  for (const char* text :
       {"",         " ",           "{",     "[1,]", "{\"a\"}", "{a: 1}",  "[1] 2",
        "01",       "+1",          ".5",    "1.",   "nul",     "\"\\x\"", "\"\n\"",
        "\"\xff\"", "\"\\ud800\"", "1e999", "NaN",  "[1}",     "\x01"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
  EXPECT_EQ(error_of("[1,\n 2 3]").substr(0, 24), "doc: line 2, column 4: s");
  EXPECT_NE(error_of("1e999").find("number overflow"), std::string::npos);
}

TEST(Json, MessagesNameTheMistake) {
  const char* cases[][2] = {
      {"", "doc: line 1, column 1: syntax error: unexpected end of input"},
      {"{\"a\": [1, 2]", "doc: line 1, column 13: syntax error: unexpected end of input"},
      {"[1,]", "doc: line 1, column 4: syntax error: unexpected ']'"},
      {"[1] 2", "doc: line 1, column 5: syntax error: unexpected '2' after the document"},
      {"{\"a\": 1,, \"b\": 2}", "doc: line 1, column 9: syntax error: unexpected ','"},
      {"{\"a\": 1,}", "doc: line 1, column 9: syntax error: unexpected '}'"},
      {"{, \"a\": 1}", "doc: line 1, column 2: syntax error: unexpected ','"},
      {"{\"a\": {} 7}", "doc: line 1, column 10: syntax error: unexpected '7'"},
      {"{\"a\": {\"b\": 2 3}}", "doc: line 1, column 15: syntax error: unexpected '3'"},
      {"[1,,2]", "doc: line 1, column 4: syntax error: unexpected ','"},
      {"[{\"a\": [\"}{\", {}, 3 4]}]", "doc: line 1, column 21: syntax error: unexpected '4'"},
      {"{\"a\" 5}", "doc: line 1, column 6: syntax error: unexpected '5'"},
      {"{17: 5}", "doc: line 1, column 2: syntax error: unexpected '1'"},
      {"[01]", "doc: line 1, column 2: syntax error: a number begins with 0"},
      {"[1.]", "doc: line 1, column 4: syntax error: a number lacks digits"},
      {"[1x]", "doc: line 1, column 3: syntax error: unexpected 'x' after a number"},
      {"[12\"\"]", "doc: line 1, column 4: syntax error: unexpected '\"' after a number"},
      {"[nullx]", "doc: line 1, column 2: syntax error: unexpected 'nullx'"},
      {"[\"a", "doc: line 1, column 2: syntax error: the string that begins here is not closed"},
      {"/* a", "doc: line 1, column 1: syntax error: the comment that begins here is not closed"},
      {"[\"\\u0000\"]", "doc: line 1, column 3: syntax error: \\u0000 is not supported"},
      {"[\"\\ud800x\"]", "doc: line 1, column 3: syntax error: half of a surrogate pair"},
      {"[\"\\u12\"]", "doc: line 1, column 3: syntax error: \\u needs four hexadecimal digits"},
      {"[\"\xc3(\"]", "doc: line 1, column 3: syntax error: byte 0xc3 is not UTF-8"},
      {"[\"\t\"]", "doc: line 1, column 3: syntax error: control character byte 0x09 in a string"},
      {"{\"a\": NaN}", "doc: line 1, column 7: syntax error: NaN is not a JSON value"},
      {"[True]", "doc: line 1, column 2: syntax error: unexpected 'True'"},
      {"[1,\x0b 2]", "doc: line 1, column 4: syntax error: unexpected byte 0x0b"},
      {"[-1e400]", "doc: line 1, column 2: number overflow: '-1e400' does not fit a double"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of(text), message) << text;
  for (std::string_view wide : {std::string_view("\xff\xfe{\0}\0", 6),
                                std::string_view("{\0}\0", 4), std::string_view("\0{\0}", 4)})
    EXPECT_EQ(error_of(wide),
              "doc: line 1, column 1: the text is UTF-16 or UTF-32; JSON is read as UTF-8");
}

TEST(Json, NumbersAtTheLimitsOfTheirTypesAreReadOrRefused) {
  auto first = [](const char* text) { return Json::parse(text).array()[0]; };
  EXPECT_EQ(first("[1e-400]").number(), 0.0);
  EXPECT_TRUE(std::signbit(first("[-1e-99999999999999999999]").number()));
  EXPECT_EQ(first("[4.9e-324]").number(), 4.9e-324);
  EXPECT_EQ(first("[0.0e99999999999999999999]").number(), 0.0);
  EXPECT_EQ(first("[1.7976931348623157e308]").number(), std::numeric_limits<double>::max());
  std::string tiny = "[0." + std::string(400, '0') + "1]",
              huge = "[1" + std::string(400, '0') + "]";
  EXPECT_EQ(first(tiny.c_str()).number(), 0.0);
  EXPECT_NE(error_of(huge).find("number overflow"), std::string::npos);
  std::string both = "[1" + std::string(400, '0') + "e-400]";
  EXPECT_EQ(first(both.c_str()).number(), 1.0);
}

TEST(JsonReader, EveryErrorHasTheKeyAsItsDetail) {
  const Json document = Json::parse(R"({"a": {"b": 3, "e": ""}})");
  const JsonReader a = JsonReader("doc", document).at("a");
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"doc.a.c", [&] { a.at("c"); }},
      {"doc.a.b", [&] { a.at("b").text(); }},
      {"doc.a.b", [&] { a.at("b").integer(4, 5); }},
      {"doc.a.e", [&] { a.at("e").nonempty(); }}};
  for (const auto& [key, read] : cases) {
    try {
      read();
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.details().key, key);
      EXPECT_EQ(std::string(error.what()).find(std::string(key) + ": must "), 0u) << error.what();
    }
  }
}

TEST(Json, InfinityIsADistinctKind) {
  Json j = Json::parse(R"({"a": Infinity, "b": [-Infinity, 1]})");
  EXPECT_TRUE(j.at("a").is_infinity());
  EXPECT_FALSE(j.at("a").is_negative_infinity());
  EXPECT_TRUE(j.at("b").array()[0].is_negative_infinity());
  EXPECT_FALSE(j.at("a").is_number());
  EXPECT_THROW(j.at("a").number(), Error);
  EXPECT_THROW(j.at("a").integer(), Error);
  EXPECT_EQ(j.dump(), R"({"a": Infinity, "b": [-Infinity, 1]})");
  for (const char* text :
       {"[infinity]", "[Infinityx]", "[+Infinity]", "[- Infinity]", "[-Infinit]", "[Infinity1]"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(Json, DataMayHaveNumbersThatAreNotFinite) {
  const std::string text = R"({"a": NaN, "b": [1e999, -1e400, -Infinity, 1e-999]})";
  Json j = parse_json_data(text);
  EXPECT_TRUE(j.at("a").is_nan());
  EXPECT_FALSE(j.at("a").is_number());
  EXPECT_STREQ(j.at("a").kind(), "NaN");
  EXPECT_THROW(j.at("a").number(), Error);
  EXPECT_EQ(j.dump(), R"({"a": NaN, "b": [Infinity, -Infinity, -Infinity, 0.0]})");
  EXPECT_EQ(parse_json_data(j.dump()).dump(), j.dump());
  for (const char* bad : {"[-NaN]", "[nan]", "[NaNs]", "[1e999x]"})
    EXPECT_THROW(parse_json_data(bad), Error) << bad;
  EXPECT_NE(error_of(text), "");
}

// A writer of random documents, with comments and blanks between tokens, that also returns the
// values that parsing must return.
class RandomDocument {
 public:
  // With `data`, draws also what only parse_json_data() accepts.
  explicit RandomDocument(uint64_t seed, bool data = false) : dice_(seed), data_(data) {}

  Json value(int depth = 0) {
    if (data_ && dice_.one_in(8)) return not_finite();
    switch (dice_.below(depth < 5 ? 8 : 6)) {
      case 0:
        return text_ += "null", Json();
      case 1:
        return text_ += "true", Json(true);
      case 2:
        return add(Json(static_cast<int64_t>(bits())));
      case 3: {
        double x = std::bit_cast<double>(bits());
        return add(std::isfinite(x) ? Json(x) : Json(0.5));
      }
      case 4:
        return add(Json(string()));
      case 5:
        return text_ += "-Infinity", Json::infinity(true);
      case 6: {
        Json::Array out;
        text_ += "[";
        for (int64_t n = dice_.below(6); n > 0; --n) {
          gap();
          out.push_back(value(depth + 1));
          gap();
          if (n > 1) text_ += ",";
        }
        gap();
        return text_ += "]", Json(std::move(out));
      }
      default: {
        Json::Object out;
        text_ += "{";
        for (int64_t n = dice_.below(30); n > 0; --n) {
          std::string name = string() + std::to_string(n);
          gap();
          text_ += Json(name).dump();
          gap();
          text_ += ":";
          gap();
          Json member = value(depth + 1);
          out.emplace_back(name, std::move(member));
          gap();
          if (n > 1) text_ += ",";
        }
        return text_ += "}", Json(std::move(out));
      }
    }
  }
  const std::string& text() const { return text_; }

 private:
  Json not_finite() {
    if (dice_.one_in(2)) return text_ += "NaN", Json::nan();
    const bool negative = dice_.one_in(2);
    text_ += negative ? "-" : "";
    text_ += dice_.pick({"1e999", "2.5E+309", "Infinity"});
    return Json::infinity(negative);
  }
  uint64_t bits() {
    return static_cast<uint64_t>(dice_.below(1LL << 32)) << 32 |
           static_cast<uint64_t>(dice_.below(1LL << 32));
  }
  Json add(Json value) { return text_ += value.dump(), value; }
  void gap() {
    text_ += dice_.pick({"", "", " ", "\n", "\t\r\n", "// \"x\" [1\n", "/* {\"a\": 1\n*/", "/**/"});
  }
  std::string string() {
    std::string out;
    for (int64_t n = dice_.below(6); n > 0; --n) {
      out += dice_.pick({"a", "\"", "\\", "//", "/*", "\n", "\x01", "\xc3\xa9", "\xf0\x9f\x98\x80",
                         "Infinity", "1.5", "\x7f"});
    }
    return out;
  }

  test::Dice dice_;
  bool data_;
  std::string text_;
};

TEST(Json, RandomDocumentsRoundTrip) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    RandomDocument document(seed);
    std::string expected = document.value().dump();
    ASSERT_EQ(Json::parse(document.text(), "doc").dump(), expected) << document.text();
    RandomDocument data(seed, true);
    expected = data.value().dump();
    ASSERT_EQ(parse_json_data(data.text(), "doc").dump(), expected) << data.text();
  }
}

// If one byte is changed, removed or doubled, parsing returns a value or throws a one-line error
// that names the place.
TEST(Json, DamagedDocumentsAreReadOrRefused) {
  int refused = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    RandomDocument document(seed);
    document.value();
    std::string text = document.text();
    test::Dice dice(seed, 1);
    auto at = static_cast<size_t>(dice.below(static_cast<int64_t>(text.size())));
    auto byte = static_cast<char>(dice.below(256));
    int64_t how = dice.below(3);
    if (how == 0) text[at] = byte;
    if (how == 1) text.erase(at, 1);
    if (how == 2) text.insert(at, 1, byte);
    std::string message = error_of(text);
    if (message.empty()) continue;
    ++refused;
    EXPECT_EQ(message.find("doc: line "), 0u) << message;
    EXPECT_NE(message.find(", column "), std::string::npos) << message;
  }
  EXPECT_GT(refused, 1000);
}

TEST(Json, LargeTextsAreReadOrRefusedQuickly) {
  std::string members = "{", numbers = "[", open = std::string(8 << 20, '{');
  for (int i = 0; i < 200000; ++i)
    members += "\"name." + std::to_string(i) + "\": [" + std::to_string(i) + "], ";
  while (numbers.size() < 8u << 20) numbers += "1234567890.125e-7,";
  members += "\"name.0\": 0}";
  // Measures processor time, because other processes may share the machine.
  const std::clock_t begin = std::clock();
  EXPECT_NE(error_of(members).find("duplicate key 'name.0'"), std::string::npos);
  EXPECT_EQ(Json::parse(numbers + "1]").array().size(), (8u << 20) / 18 + 2);
  EXPECT_NE(error_of(open), "");
  EXPECT_NE(error_of("\"" + std::string(8 << 20, '\\')), "");
  EXPECT_NE(error_of("[" + std::string(8 << 20, '9') + "]"), "");
  // Measured: 0.5 s, and 4 s with sanitizers.
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

TEST(Json, ThreadsParseAtOnce) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (uint64_t seed = 1; seed <= 100; ++seed) {
        RandomDocument document(100 * t + seed);
        std::string expected = document.value().dump();
        EXPECT_EQ(Json::parse(document.text()).dump(), expected);
        EXPECT_NE(error_of(document.text() + "]"), "");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Json, DepthIsLimited) {
  std::string ok = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(error_of(ok), "");
  EXPECT_EQ(error_of(std::string(1000000, '[')),
            "doc: line 1, column 201: nested deeper than 200 levels");
}

TEST(Json, DumpParsesBack) {
  Json j;
  j.set("name", "quote \" slash \\ tab \t bell \x07 \xc3\xa9");
  j.set("list", Json::Array{1, 2.5, true, Json()});
  j.set("empty", Json::Object{});
  j.set("name2", 3);
  j.set("name2", 4);
  for (int indent : {0, 2}) {
    Json back = Json::parse(j.dump(indent));
    EXPECT_EQ(back.dump(), j.dump());
    EXPECT_EQ(back.at("name").string(), j.at("name").string());
  }
  EXPECT_EQ(j.dump().find('\n'), std::string::npos);
  EXPECT_EQ(j.at("name2").integer(), 4);
  EXPECT_EQ(Json::parse(Json("bad \xff byte").dump()).string(), "bad \xef\xbf\xbd byte");
}

TEST(Utf8, InvalidSequencesAreDetected) {
  EXPECT_TRUE(is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (const char* bad : {"\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xc3", "\xe2\x82", "\xf5\x80\x80\x80", "\xc3("}) {
    EXPECT_FALSE(is_utf8(bad));
  }
  EXPECT_EQ(utf8_sequence("\xe2\x82\xacx"), 3u);
}

}  // namespace
}  // namespace ds
