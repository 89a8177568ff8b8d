// Tests the choices of a compilation as values: their JSON form, their order, and the search among
// them.
#include "compile/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "compile/pipeline.h"
#include "core/base/json.h"
#include "support/errors.h"
#include "support/models.h"

namespace ds::test {
namespace {

std::vector<Config> configs() {
  std::vector<Config> out;
  for (bool overlap : {false, true}) {
    for (bool separate : {false, true}) {
      for (const char* recompute : {"none", "cheap", "layers"}) {
        Config c = make_config(3, 1, 2);
        c.zero.overlap_comm = overlap;
        c.emulate_tiers = separate;
        c.recompute = recompute;
        c.recompute_num_layers = 3;
        out.push_back(c);
      }
    }
  }
  return out;
}

TEST(Search, ChoicesRoundTripThroughJson) {
  for (const Config& config : configs()) {
    for (const Choices& choices : choices_by_memory(config))
      EXPECT_EQ(Choices::of(Json::parse(choices.json().dump())), choices);
  }
}

TEST(Search, UnknownChoicesAreRefusedByName) {
  const std::pair<const char*, std::vector<std::string>> wrong[] = {
      {R"({"prefetsch": true})", {"prefetsch"}},
      {R"({"recompute": "all"})", {"recompute", "all"}},
      {R"({"recompute_layers": 0})", {"recompute_layers", "0"}},
      {R"({"late_reuse": 1})", {"late_reuse"}}};
  for (const auto& [text, parts] : wrong)
    expect_names(message_of([&] { Choices::of(Json::parse(text)); }, DS_ERROR_CONFIG), parts);
}

// The first choice follows the configuration. Each later choice trades time for memory: it gives up
// what the previous choice gave up, and more.
TEST(Search, LaterChoicesGiveUpMore) {
  for (const Config& config : configs()) {
    const std::vector<Choices> all = choices_by_memory(config);
    EXPECT_EQ(all[0].prefetch, config.zero.overlap_comm);
    EXPECT_EQ(all[0].late_reuse, config.zero.overlap_comm && config.separate_tiers());
    EXPECT_EQ(all[0].recompute, config.recompute);
    EXPECT_EQ(all[0].recompute_layers, 3);
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_NE(all[i], all[i - 1]);
      EXPECT_LE(all[i].prefetch, all[i - 1].prefetch);
      EXPECT_LE(all[i].late_reuse, all[i - 1].late_reuse);
      EXPECT_TRUE(config.recompute == "none" || all[i].recompute == config.recompute);
    }
    EXPECT_FALSE(all.back().prefetch);
    EXPECT_EQ(all.back().recompute, config.recompute == "none" ? "layers" : config.recompute);
  }
}

TEST(Search, ChoosesTheFirstThatFitsOrTheLast) {
  Config config = make_config(3, 1, 2);
  config.emulate_tiers = true;
  const std::vector<Choices> all = choices_by_memory(config);
  ASSERT_EQ(all.size(), 5u);
  for (size_t fits = 0; fits <= all.size(); ++fits) {
    std::vector<Choices> tried;
    const size_t chosen = search(all, 0, [&](const Choices& choices) {
      tried.push_back(choices);
      return tried.size() == fits + 1;
    });
    const size_t last = std::min(fits, all.size() - 1);
    EXPECT_EQ(chosen, last);
    EXPECT_EQ(search(all, fits == all.size() ? 4 : fits, [](const Choices&) { return true; }),
              last);
    EXPECT_EQ(tried,
              std::vector<Choices>(all.begin(), all.begin() + static_cast<ptrdiff_t>(last) + 1));
  }
}

// Each choice needs less memory than the previous one, and the plan notes what was given up.
TEST(Search, PlansNoteTheChoicesThatTheyGaveUp) {
  Config config = make_config(3, 1, 2);
  config.emulate_tiers = true;
  config.zero.param_persistence_threshold = 0;
  const Graph graph = make_mlp(8, 64, 16);
  std::vector<std::string> notes;
  for (int tightened = 0; tightened < 5; ++tightened) {
    Plan plan;
    try {
      plan = compile_plan(graph, config, 0, 2, Machine{});
    } catch (const Error&) {
      break;
    }
    const std::vector<std::string> given_up =
        notes_of(plan.choices, choices_by_memory(config).front());
    EXPECT_EQ(plan.notes, given_up);
    notes.insert(notes.end(), given_up.begin(), given_up.end());
    config.memory_budget.device = plan.memory.total(Tier::device) - 1;
  }
  EXPECT_FALSE(notes.empty());
}

}  // namespace
}  // namespace ds::test
