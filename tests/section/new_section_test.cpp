// Checks that a new section of the configuration needs one file, such as this one, and one line in
// the list of sections. This test is a separate executable, because the line adds the section to
// every configuration that is parsed afterwards.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/describe.h"
#include "core/config/key.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"
#include "core/config/sections.h"
#include "support/config_reference.h"

namespace ds {
namespace {

struct SeaKeys {
  int64_t depth = 7;
  std::string state = "calm";
};

void sea_keys(std::vector<Key>& keys) {
  KeyRows rows(keys, "sea.", [](auto& c) -> auto& { return c.template get<SeaKeys>(); });
  rows.add("depth", &SeaKeys::depth, "fathoms below the keel", Limits{.low = 1, .high = 6000});
  rows.words("state", &SeaKeys::state, {"calm", "rough"}, "what the wind makes of it");
}

void check_sea(const Config& config) {
  const SeaKeys& sea = config.get<SeaKeys>();
  if (sea.depth >= 2 || sea.state == "calm") return;
  raise(DS_ERROR_CONFIG, "{}: must be above 1 where sea.state is \"{}\", got {}",
        KeyName("sea.depth"), sea.state, sea.depth);
}

// The line that adds the section to the list.
[[maybe_unused]] const auto& line =
    config_sections().emplace_back(ConfigSection{sea_keys, {check_sea}});

Json document_of(const std::string& sea) {
  return Json::parse(R"({"train_batch_size": 8, "sea": )" + sea + "}");
}

std::string refusal_of(const std::string& sea) {
  ConfigRefusals refusals;
  parse_config(document_of(sea), 1, refusals);
  return refusals.errors.size() == 1 ? refusals.errors[0].what() : "not one refusal";
}

TEST(NewSection, ItsKeysAreParsed) {
  const Config config = parse_config(document_of(R"({"depth": 40, "state": "Rough"})"), 1);
  EXPECT_EQ(config.get<SeaKeys>().depth, 40);
  EXPECT_EQ(config.get<SeaKeys>().state, "rough");
  EXPECT_EQ(config.origins.at("sea.depth"), "config");
  EXPECT_EQ(parse_config(document_of("{}"), 1).get<SeaKeys>().depth, 7);
}

TEST(NewSection, ACopiedConfigurationHasItsOwnSection) {
  const Config config = parse_config(document_of(R"({"depth": 40})"), 1);
  Config copy = config;
  copy.get<SeaKeys>().depth = 41;
  EXPECT_EQ(config.get<SeaKeys>().depth, 40);
}

TEST(NewSection, ItsKeysArePrinted) {
  const Json document = document_of(R"({"depth": 40})");
  ConfigRefusals refusals;
  const Config config = parse_config(document, 1, refusals);
  const std::string text = config_text(config, refusals, document);
  for (const char* row : {"\nsea.depth  ", "\nsea.state  "})
    EXPECT_NE(text.find(row), text.npos) << text;
  const Json effective = config.effective();
  EXPECT_EQ(effective.at("config").at("sea").dump(), R"({"depth": 40, "state": "calm"})");
  EXPECT_EQ(effective.at("origins").at("sea.state").string(), "default");
  EXPECT_NE(config.shared_text().find("sea.depth 40\n"), std::string::npos);
}

TEST(NewSection, InvalidValuesAreRefused) {
  EXPECT_EQ(refusal_of(R"({"dept": 3})"),
            "sea.dept: unknown key; did you mean sea.depth? (docs/reference/config.md#sea.depth)");
  EXPECT_EQ(refusal_of(R"({"depth": 0})"),
            "sea.depth: 0 is below 1 (it must be 1 to 6000) (docs/reference/config.md#sea.depth)");
  EXPECT_EQ(refusal_of(R"({"state": "flat"})"),
            "sea.state: \"flat\" is unknown; supported: calm, rough "
            "(docs/reference/config.md#sea.state)");
  EXPECT_EQ(refusal_of(R"({"depth": 1, "state": "rough"})"),
            "sea.depth: must be above 1 where sea.state is \"rough\", got 1 "
            "(docs/reference/config.md#sea.depth)");
}

TEST(NewSection, TheReferenceDescribesIt) {
  const Json schema = test::config_schema();
  const Json& depth = schema.at("properties").at("sea").at("properties").at("depth");
  EXPECT_EQ(depth.at("description").string(), "fathoms below the keel");
  EXPECT_EQ(depth.at("default").integer(), 7);
  EXPECT_EQ(depth.at("maximum").integer(), 6000);
  const std::string page = test::config_page_of_rows("# Page\n\n<a id=\"run.threads\"></a>old\n\n");
  EXPECT_NE(page.find("<a id=\"sea.depth\"></a>`sea.depth`, *integer from 1 to 6000; default 7*\n"
                      ": fathoms below the keel\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("*\"calm\" or \"rough\"; default \"calm\"*"), std::string::npos) << page;
}

}  // namespace
}  // namespace ds
