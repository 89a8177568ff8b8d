// Compares with every case of tests/data/semantics/hostfile.json, which was recorded from
// DeepSpeed's launcher.
#include "launch/hostfile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "core/base/json.h"
#include "launch/world_map.h"
#include "support/record.h"
#include "support/semantics.h"
#include "support/temp_folder.h"

namespace ds::hostfile_test {
namespace {

test::Recording recorded() {
  return {test::semantics_path("hostfile.json"), {"files", "filters", "trim", "world_info"}};
}

Hosts hosts_of(const Json& list) {
  Hosts hosts;
  for (const Json& pair : list.array()) {
    Host host{pair.array()[0].string(), {}};
    const Json& slots = pair.array()[1];
    if (slots.is_array()) {
      for (const Json& slot : slots.array()) host.slots.push_back(static_cast<int>(slot.integer()));
    } else {
      for (int s = 0; s < slots.integer(); ++s) host.slots.push_back(s);
    }
    hosts.push_back(host);
  }
  return hosts;
}

// Compares a result with the recorded one, where a pool of hosts is a list of pairs [host, number
// of slots].
void expect_result(const test::Record& result, const std::function<Hosts()>& call,
                   const std::string& what) {
  std::optional<Hosts> got;
  try {
    got = call();
  } catch (const std::invalid_argument& refusal) {
    EXPECT_EQ(std::string(refusal.what()).find('\n'), std::string::npos);
  }
  const Json* hosts = result.find("hosts");
  ASSERT_EQ(got.has_value(), hosts != nullptr) << what;
  ASSERT_NE(result.has("error"), hosts != nullptr) << what;
  result.told({"message"});
  if (hosts) {
    EXPECT_EQ(*got, hosts_of(*hosts)) << what;
  }
}

TEST(Hostfile, FilesAreReadAsRecorded) {
  const test::Recording all = recorded();
  for (const test::Record& one : all.list("files")) {
    const Json* missing = one.find("missing_file");
    ASSERT_EQ(missing && missing->boolean(), one.at("text").is_null());
    const test::Record result = one.inside("result");
    if (missing) {
      EXPECT_EQ(read_hostfile("no/such").has_value(), !result.at("hosts").is_null());
      continue;
    }
    const std::string& text = one.at("text").string();
    expect_result(
        result, [&] { return parse_hostfile(text, "f"); }, text);
  }
}

TEST(Hostfile, FiltersChooseHostsAsRecorded) {
  const test::Recording all = recorded();
  for (const test::Record& one : all.list("filters")) {
    const std::string &include = one.at("include").string(), &exclude = one.at("exclude").string();
    expect_result(
        one.inside("result"),
        [&] { return filter_hosts(hosts_of(one.at("pool")), include, exclude); },
        include + " / " + exclude);
  }
}

TEST(Hostfile, PoolsAreTrimmedAsRecorded) {
  const test::Recording all = recorded();
  for (const test::Record& one : all.list("trim")) {
    auto number = [&](const char* key) { return static_cast<int>(one.at(key).integer()); };
    expect_result(
        one.inside("result"),
        [&] {
          return trim_hosts(hosts_of(one.at("pool")), number("num_nodes"), number("num_gpus"));
        },
        "trim");
  }
}

TEST(Hostfile, WorldMapsAreEncodedAsRecorded) {
  const test::Recording all = recorded();
  for (const test::Record& one : all.list("world_info")) {
    Hosts hosts = hosts_of(one.at("world_info"));
    EXPECT_EQ(encode_world_map(hosts), one.at("base64").string());
    EXPECT_EQ(rank_count(hosts), one.at("world_size").integer());
    int rank = 0;
    const Json::Array& ranks = one.at("global_ranks").array();
    ASSERT_EQ(ranks.size(), hosts.size());
    for (size_t h = 0; h < hosts.size(); ++h) {
      EXPECT_EQ(ranks[h].array().at(0).string(), hosts[h].name);
      ASSERT_EQ(ranks[h].array().at(1).array().size(), hosts[h].slots.size());
      for (const Json& number : ranks[h].array()[1].array()) EXPECT_EQ(number.integer(), rank++);
    }
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Hostfile, ByteOrderMarksAndCarriageReturnsAreIgnored) {
  const Hosts hosts = parse_hostfile(
      "\xef\xbb\xbf"
      "a slots=2\r\n\r\n# b\r\n",
      "f");
  ASSERT_EQ(hosts.size(), 1u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].slots.size(), 2u);
}

TEST(Hostfile, RefusalsNameFileLineAndText) {
  auto of = [](const char* text) { return refusal([=] { parse_hostfile(text, "job/hosts"); }); };
  EXPECT_EQ(of("# two\na slots=1\n\n a slots=2\n"),
            "hostfile 'job/hosts', line 4: host 'a' is in line 2, too");
  EXPECT_EQ(of("a slots=1\nb 2\n"),
            "hostfile 'job/hosts', line 2: must be 'HOST slots=N', got 'b 2'");
  EXPECT_EQ(of("a slots=-1\n"),
            "hostfile 'job/hosts', line 1: must be 'HOST slots=N', got 'a slots=-1'");
  EXPECT_EQ(of("a slots=4097\n"),
            "hostfile 'job/hosts', line 1: slots must be 0 to 4096, got 4097");
  EXPECT_EQ(of("a slots=99999999999\n"),
            "hostfile 'job/hosts', line 1: slots must be 0 to 4096, got 99999999999");
  EXPECT_EQ(of("\n\n"), "hostfile 'job/hosts': must have a line 'HOST slots=N', has none");
}

TEST(Hostfile, RefusalsOfFiltersNameOptionAndText) {
  Hosts pool = {{"a", {0, 1}}, {"b", {0}}};
  auto of = [&](const char* in, const char* out) {
    return refusal([&] { filter_hosts(pool, in, out); });
  };
  EXPECT_EQ(of("c", ""), "--include: host 'c' is not in the hostfile");
  EXPECT_EQ(of("", "b:3"), "--exclude: host 'b' has no slot 3; it has 1 slots");
  EXPECT_EQ(of("a:x", ""), "--include: a slot of host 'a' must be a number, got 'x'");
  EXPECT_EQ(of("a:0:1", ""), "--include: must be HOST or HOST:SLOT,..., got 'a:0:1'");
  EXPECT_EQ(of("a", "b"), "--include and --exclude cannot be given together, got 'a' and 'b'");
}

// As in DeepSpeed, naming some slots of a host overrides naming the whole host, and a limit of 0
// means no limit.
TEST(Hostfile, NamingSlotsOverridesNamingTheHost) {
  const Hosts pool = {{"a", {0, 1}}, {"b", {0}}};
  EXPECT_EQ(filter_hosts(pool, "a@a:1", ""), (Hosts{{"a", {1}}}));
  EXPECT_EQ(filter_hosts(pool, "", "a@a:1"), (Hosts{{"a", {0}}, {"b", {0}}}));
  EXPECT_EQ(trim_hosts(pool, 0, 0), pool);
}

TEST(Hostfile, FilesThatCannotBeReadAreNamed) {
  test::TempFolder folder;
  std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {folder.path(), pipe, std::string("/dev/zero")}) {
    EXPECT_EQ(refusal([&] { read_hostfile(path); }),
              "hostfile '" + path + "': must be a regular file of at most 16777216 bytes");
  }
}

}  // namespace
}  // namespace ds::hostfile_test
