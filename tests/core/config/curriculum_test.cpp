// Compares the length curriculum with sequences recorded from DeepSpeed's scheduler
// (tests/data/curriculum.json).
#include "data/curriculum.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds {
namespace {

Json document_of(const Json& curriculum) {
  Json out = Json::parse(R"({"train_batch_size": 1, "run": {"sequence": 2048}})");
  out.set("curriculum_learning", curriculum);
  return out;
}

TEST(Curriculum, LengthsEqualThoseOfDeepSpeed) {
  const test::Recording all(test::data_path("curriculum.json"), {"cases"});
  for (const test::Record& one : all.list("cases")) {
    SCOPED_TRACE(one.at("config").dump());
    Config config = parse_config(document_of(one.at("config")), 1);
    EXPECT_TRUE(config.get<CurriculumKeys>().enabled);
    int64_t step = 0;
    for (const Json& length : one.at("difficulty").array()) {
      EXPECT_EQ(curriculum_difficulty(config.get<CurriculumKeys>(), step), length.integer())
          << step;
      ++step;
    }
  }
}

TEST(Curriculum, ContradictionsAreNamed) {
  const Json good =
      Json::parse(R"({"enabled": true, "curriculum_type": "seqlen", "min_difficulty": 8,
      "max_difficulty": 64, "schedule_type": "fixed_linear",
      "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 8}})");
  auto refused = [&](const std::string& key, const std::string& value, const std::string& part) {
    Json changed = good;
    Json& section = changed;
    if (key.starts_with("schedule_config.")) {
      Json inner = good.at("schedule_config");
      inner.set(key.substr(16), Json::parse(value));
      section.set("schedule_config", inner);
    } else {
      section.set(key, Json::parse(value));
    }
    try {
      parse_config(document_of(changed), 1);
      ADD_FAILURE() << key << " " << value;
    } catch (const Error& error) {
      std::string message = error.what();
      EXPECT_TRUE(message.starts_with("curriculum_learning.")) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  };
  refused("curriculum_type", R"("vocabularyrarity")",
          "\"vocabularyrarity\" is unsupported by this version");
  refused("schedule_type", R"("custom")", "\"custom\" is unsupported by this version");
  refused("min_difficulty", "65", "65 is above curriculum_learning.max_difficulty 64");
  refused("max_difficulty", "2049", "2049 is above run.sequence 2048");
  refused("min_difficulty", "null", "missing");
  refused("schedule_config.difficulty_step", "0", "below 1");
  refused("schedule_config.root_degree", "2",
          "does not apply to curriculum_learning.schedule_type \"fixed_linear\"");
  refused("schedule_type", R"("fixed_discrete")",
          "does not apply to curriculum_learning.schedule_type");
  refused("schedule_config.total_curriculum_step", "0", "below 1");
  Json off = good;
  off.set("enabled", false);
  EXPECT_NO_THROW(parse_config(document_of(off), 1));
}

}  // namespace
}  // namespace ds
