#include "core/base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <clocale>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/utf8.h"

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

TEST(Json, KindsAndOrder) {
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
  EXPECT_EQ(Json::parse("\xef\xbb\xbf[1]").array().size(), 1u);  // a byte order mark is skipped
}

TEST(Json, IntegersAreExact) {
  for (int64_t i : {int64_t{0}, int64_t{9007199254740993}, INT64_MAX, INT64_MIN}) {
    Json j = Json::parse(std::to_string(i));
    ASSERT_TRUE(j.is_integer());
    EXPECT_EQ(j.integer(), i);
    EXPECT_EQ(j.dump(), std::to_string(i));
  }
  Json above = Json::parse("9223372036854775808");  // int64 max + 1
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

TEST(Json, Comments) {
  Json j = Json::parse("{ // one\n \"a\": /* two\n lines */ 1 }  // end");
  EXPECT_EQ(j.at("a").integer(), 1);
  EXPECT_NE(error_of("{/* open"), "");
}

TEST(Json, DuplicateKeysAreRefusedWithPlace) {
  EXPECT_EQ(error_of("{\"a\": 1,\n  \"b\": 2,\n  \"a\": 3}"), "doc: line 3, column 3: duplicate key 'a'");
  EXPECT_EQ(error_of(R"({"x": {"q\"\\": 1, "q\"\\": 1}})"), R"(doc: line 1, column 20: duplicate key 'q"\')");
  EXPECT_EQ(error_of(R"([{"a": 1}, {"a": 1}, {"b": {"a": 1}, "a": 2}])"), "");
}

TEST(Json, BadInputNamesThePlace) {
  EXPECT_NE(error_of("{\n\"a\": tru}").find("doc: line 2, column"), std::string::npos);
  for (const char* text :
       {"",   " ",   "{",       "[1,]",   "{\"a\"}",  "{a: 1}",      "[1] 2", "01",  "+1",  ".5",
        "1.", "nul", "\"\\x\"", "\"\n\"", "\"\xff\"", "\"\\ud800\"", "1e999", "NaN", "[1}", "\x01"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
  EXPECT_EQ(error_of("[1,\n 2 3]").substr(0, 24), "doc: line 2, column 4: s");
  EXPECT_NE(error_of("1e999").find("number overflow"), std::string::npos);
}

TEST(Json, DepthIsLimited) {
  std::string ok = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(error_of(ok), "");
  EXPECT_EQ(error_of(std::string(1000000, '[')), "doc: line 1, column 201: nested deeper than 200 levels");
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

TEST(Utf8, Sequences) {
  EXPECT_TRUE(is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (const char* bad : {"\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3",
                          "\xe2\x82", "\xf5\x80\x80\x80", "\xc3("}) {
    EXPECT_FALSE(is_utf8(bad));
  }
  EXPECT_EQ(utf8_sequence("\xe2\x82\xacx"), 3u);
}

}  // namespace
}  // namespace ds
