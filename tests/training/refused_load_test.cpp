// Checkpoints that cannot be read: a load that is refused changes nothing, or the engine says so ever after.
#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/failing_reads.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

std::string state_of(Engine& engine) {
  std::string text;
  for (const char* kind : {"master", "exp_avg", "exp_avg_sq", "param"}) {
    for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
      std::vector<float> values = engine.store().read_tensor(ParamId(i), kind);
      text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
  }
  return hash_hex(text) + (engine.trained().is_frozen(ParamId(0)) ? " frozen" : " trained");
}

bool is_poisoned(Engine& engine) {
  try {
    state_of(engine);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_POISONED) << error.what();
    return true;
  }
}

class RefusedLoad : public testing::Test {
 protected:
  // Two checkpoints of a run of one rank; parameter 0 is frozen in the second.
  void with_checkpoints(const std::function<void(Communicator&)>& body) {
    run_ranks(1, [&](Communicator& comm) {
      Engine run(config_of(point_), graph_of(point_), comm, {});
      train_step(point_, run, 0);
      first_ = run.checkpoints().save(folder_.path());
      int32_t frozen[] = {0};
      run.trained().freeze(frozen, true);
      train_step(point_, run, 1);
      second_ = run.checkpoints().save(folder_.path());
      body(comm);
    });
  }

  Point point_{.stage = 1, .world = 1};
  TempFolder folder_;
  std::string first_, second_;
};

// Every read of the check in turn, then the first of the states themselves, by which time the frozen
// parameters are already the checkpoint's.
// Proves {checkpoint.load.refused}.
TEST_F(RefusedLoad, ChangesNothingUnlessItPoisons) {
  with_checkpoints([&](Communicator& comm) {
    Engine engine(config_of(point_), graph_of(point_), comm, {}),
        twin(config_of(point_), graph_of(point_), comm, {});
    int64_t refused = 0;
    for (int step = 0;; ++refused) {
      std::string before = state_of(engine);
      {
        FailingReads bad(second_ + "/", refused);
        expect_names(message_of([&] { engine.checkpoints().load(second_); }, DS_ERROR_IO),
                     {second_, "Input/output error"});
      }
      if (is_poisoned(engine)) break;
      ASSERT_EQ(state_of(engine), before) << "read " << refused;
      if (refused % 32 != 31) continue;
      train_step(point_, engine, step);
      train_step(point_, twin, step++);
      ASSERT_EQ(state_of(engine), state_of(twin)) << "read " << refused;
    }
    EXPECT_GT(refused, 32);
  });
}

// By its folder, the one before is taken, unless a part of the newest has been read into the states.
// Proves {checkpoint.load.damaged}.
TEST_F(RefusedLoad, FallsBackUnlessItPoisons) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  with_checkpoints([&](Communicator& comm) {
    int64_t reads = 0;
    {
      FailingReads none(second_ + "/", INT64_MAX);
      EXPECT_EQ(Engine(config_of(point_), graph_of(point_), comm, {}).checkpoints().load(folder_.path()).path,
                second_);
      reads = FailingReads::seen();
    }
    flush_log();
    lines.clear();
    for (int64_t good : {int64_t{0}, int64_t{1}, reads / 4}) {
      FailingReads bad(second_ + "/", good);
      Engine engine(config_of(point_), graph_of(point_), comm, {});
      EXPECT_EQ(engine.checkpoints().load(folder_.path()).path, first_);
      EXPECT_FALSE(engine.trained().is_frozen(ParamId(0)));
      flush_log();
      ASSERT_EQ(lines.size(), 1u) << good;
      expect_names(lines[0], {second_, "Input/output error", "is skipped"});
      lines.clear();
    }
    FailingReads bad(second_ + "/", reads - 1);
    Engine engine(config_of(point_), graph_of(point_), comm, {});
    expect_names(message_of([&] { engine.checkpoints().load(folder_.path()); }, DS_ERROR_IO), {second_});
    EXPECT_TRUE(is_poisoned(engine));
    flush_log();
    EXPECT_EQ(lines, std::vector<std::string>{});
  });
  set_log_sink({});
}

}  // namespace
}  // namespace ds::test
