#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "core/base/attrs.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/shape.h"
#include "core/base/trace.h"
#include "core/base/utf8.h"

namespace ds {
namespace {

TEST(Error, CarriesStatusAndMessage) {
  try {
    raise(DS_ERROR_IO, "{}: {} bytes", "a.bin", 7);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_IO);
    EXPECT_STREQ(e.what(), "a.bin: 7 bytes");
  }
  EXPECT_NO_THROW(require(true, "x"));
  EXPECT_THROW(require(false, "x"), Error);
  for (int s = 0; s >= -13; --s) EXPECT_NE(std::string(status_name(static_cast<ds_status>(s))), "");
}

TEST(Error, MessagesAreOneLineOfBoundedLength) {
  EXPECT_EQ(one_line("a\nb\r\t\x7f"), "a\\nb\\x0d\\x09\\x7f");
  EXPECT_EQ(one_line(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(one_line("\xffz\xc3"), "\\xffz\\xc3");
  EXPECT_EQ(one_line("a\xc2\x9bz\xc2\xa0"), "a\\xc2\\x9bz\xc2\xa0");
  EXPECT_EQ(one_line("\u00fcber"), "\u00fcber");
  EXPECT_EQ(one_line(std::string(kMostMessage, 'x')), std::string(kMostMessage, 'x'));
  for (size_t shift : {0, 1}) {
    // Each "\u00fc" has two bytes, so one of the two shifts cuts the text inside a character.
    std::string text = std::string(shift, 'a');
    for (int i = 0; i < 400; ++i) text += "\u00fc";
    std::string cut = one_line(text + "end");
    EXPECT_LE(cut.size(), kMostMessage);
    EXPECT_GE(cut.size(), kMostMessage - 2);
    EXPECT_TRUE(is_utf8(cut));
    EXPECT_TRUE(cut.ends_with("\u00fcend"));
  }
  try {
    raise(DS_ERROR_IO, "file '{}'", "a\nb");
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "file 'a\\nb'");
  }
}

TEST(Shape, TextsAreParsedAndElementsCounted) {
  Shape s{Dim::n(), 384};
  EXPECT_EQ(s.text(), "[n,384]");
  EXPECT_TRUE(s.symbolic());
  EXPECT_EQ(s.numel(10), 3840);
  EXPECT_EQ(Shape{}.numel(5), 1);
  EXPECT_EQ(Shape{}.text(), "[]");
  for (const char* text : {"[]", "[n]", "[1,2,3,4]", "[n,7]", "[0,4]"})
    EXPECT_EQ(Shape::parse(text).text(), text);
  EXPECT_NE(Shape::parse("[n]"), Shape::parse("[1]"));
  for (const char* text :
       {"", "[", "1,2", "[a]", "[-1]", "[1 2]", "[1,,2]", "[99999999999999999999]"}) {
    EXPECT_THROW(Shape::parse(text), Error) << text;
  }
}

TEST(Utf8, ATerminalGetsNoControlCharacters) {
  std::string text = "a\tb\n\xc3\xa9\xe4\xb8\xad";
  EXPECT_EQ(show_controls(text), text);
  EXPECT_EQ(show_controls(std::string_view("\0\x1b[31m\r\x7f\xc2\x9b", 10)),
            "\\x00\\x1b[31m\\x0d\\x7f\\x9b");
}

TEST(Attrs, PrintParsesBack) {
  Attrs a{{"heads", int64_t{6}}, {"eps", 1e-5}, {"one", 1.0}, {"kind", std::string("tanh x")}};
  EXPECT_EQ(Attrs::parse(a.print()), a);
  a.set("heads", int64_t{7});
  EXPECT_EQ(a.integer("heads"), 7);
  EXPECT_EQ(a.real("heads"), 7.0);
  EXPECT_EQ(a.text("kind"), "tanh x");
  EXPECT_EQ(a.integer_or("absent", 3), 3);
  EXPECT_THROW(a.integer("eps"), Error);
  EXPECT_THROW(a.text("absent"), Error);
  EXPECT_EQ(Attrs().print(), "");
  for (double x : {0.1, -0.0, 1e300, 5e-324, std::numeric_limits<double>::infinity()}) {
    Attrs b{{"x", x}};
    EXPECT_EQ(std::bit_cast<uint64_t>(Attrs::parse(b.print()).real("x")),
              std::bit_cast<uint64_t>(x))
        << b.print();
  }
  for (const char* text : {"a=1", "{a}", "{a=}", "{a=\"x}", "{a=1x}"})
    EXPECT_THROW(Attrs::parse(text), Error);
}

TEST(Hash, MatchesKnownAnswersAndStreams) {
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");  // The xxh3-128 of "".
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2u);                   // The xxh3-64 of "".
  std::string bytes(100000, 'x');
  bytes[500] = 'y';
  Hash128 h;
  for (size_t i = 0; i < bytes.size(); i += 777) h.update(std::string_view(bytes).substr(i, 777));
  EXPECT_EQ(h.hex(), hash_hex(bytes));
  EXPECT_EQ(h.hex().size(), 32u);
  bytes[501] = 'y';
  EXPECT_NE(h.hex(), hash_hex(bytes));
}

TEST(Trace, IsAJsonDocument) {
  Trace a(0), b(3, /*capacity=*/2);
  a.span("comp", "linear \"h.0\"", 5000, 7500, 12);
  a.span("comm", "gather\n", 6000, 6000);
  b.span("comp", "x", 4000, 4001);
  b.span("comp", "y", 4000, 3000);
  b.span("comp", "z", 1, 2);
  EXPECT_EQ(b.dropped(), 1);
  Json doc = Json::parse(trace_json({{0, a.take()}, {3, b.take()}}));
  EXPECT_TRUE(a.take().empty());
  std::vector<Json> spans;
  size_t names = 0;
  for (const Json& e : doc.at("traceEvents").array()) {
    if (e.at("ph").string() == "X") {
      spans.push_back(e);
    } else {
      ++names;
    }
  }
  // Names of two processes and three tracks.
  EXPECT_EQ(names, 2u + 3u);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].at("name").string(), "linear \"h.0\"");
  // Times are in microseconds after the first span.
  EXPECT_EQ(spans[0].at("ts").number(), 1.0);
  EXPECT_EQ(spans[0].at("dur").number(), 2.5);
  EXPECT_EQ(spans[0].at("args").at("bytes").integer(), 12);
  EXPECT_NE(spans[0].at("tid").integer(), spans[1].at("tid").integer());
  EXPECT_EQ(spans[2].at("pid").integer(), 3);
  EXPECT_EQ(spans[3].at("dur").number(), 0.0);
  EXPECT_EQ(Json::parse(trace_json({})).at("traceEvents").array().size(), 0u);
}

TEST(Log, SinkRunsOnTheFlushingThread) {
  std::vector<std::string> lines;
  std::thread::id where;
  set_log_sink([&](LogLevel level, std::string_view line) {
    where = std::this_thread::get_id();
    lines.push_back(std::to_string(static_cast<int>(level)) + std::string(line));
    // Logging from the sink must not deadlock.
    if (lines.size() == 1) log_line(LogLevel::debug, "from the sink");
  });
  std::thread worker([] { log_line(LogLevel::warning, "from a worker"); });
  worker.join();
  EXPECT_TRUE(lines.empty());
  flush_log();
  EXPECT_EQ(lines, (std::vector<std::string>{"2from a worker", "0from the sink"}));
  EXPECT_EQ(where, std::this_thread::get_id());
  // From here on the sink does not log.
  lines.assign(1, "");
  for (int i = 0; i < 20000; ++i) log_line(LogLevel::info, "x");
  flush_log();
  EXPECT_EQ(lines.size(), 10002u);
  EXPECT_EQ(lines.back(), "210000 log lines were dropped");
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace ds
