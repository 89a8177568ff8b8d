// Tests checkpoints that cannot be read: a refused load either changes nothing or poisons the
// engine.
#include <gtest/gtest.h>

#include <optional>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "engine/engine.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "support/failing_reads.h"
#include "support/flip_byte.h"
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
  // Saves two checkpoints of a run on one rank, then calls `body`. Parameter 0 is frozen in the
  // second checkpoint.
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

// Fails each read of the verification in turn, and finally the first read into the states. An
// engine whose frozen parameters change verifies the files first. Proves {checkpoint.load.refused}.
TEST_F(RefusedLoad, LeavesTheEngineUnchangedOrPoisonsIt) {
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
      if (refused % 4 != 3) continue;
      train_step(point_, engine, step);
      train_step(point_, twin, step++);
      ASSERT_EQ(state_of(engine), state_of(twin)) << "read " << refused;
    }
    EXPECT_GT(refused, 8);
  });
}

// One to four ranks load the first checkpoint, which one rank saved. An engine that has not trained
// yet is reinitialized after a failed load, no matter how much was read.
class RefusedLoadOfRanks : public RefusedLoad {
 protected:
  void with_engines(const Point& point,
                    const std::function<void(Communicator&, Engine& engine, Engine& twin)>& body) {
    with_checkpoints([](Communicator&) {});
    run_ranks(point.world, [&](Communicator& comm) {
      Engine engine(config_of(point), graph_of(point), comm, {}),
          twin(config_of(point), graph_of(point), comm, {});
      body(comm, engine, twin);
    });
  }

  void expect_same(const Point& point, Engine& engine, Engine& twin) {
    ASSERT_EQ(state_of(engine), state_of(twin)) << point.name();
    for (int step = 0; step < 2; ++step) {
      train_step(point, engine, step);
      train_step(point, twin, step);
    }
    ASSERT_EQ(state_of(engine), state_of(twin)) << point.name();
  }

  // Returns points with different layouts, tiers and optimizer states.
  std::vector<Point> points() const {
    std::vector<Point> out{
        {.stage = 0, .world = 1}, {.stage = 1, .world = 2}, {.stage = 3, .world = 4}};
    out.push_back({.stage = 0, .world = 2});
    out.push_back({.stage = 3, .tier = Tier::nvme, .world = 2});
    out.push_back({.stage = 2, .world = 2, .states = DS_DTYPE_U8});
    out.push_back({.stage = 1, .world = 2, .compute = DS_DTYPE_F32});
    return out;
  }
};

TEST_F(RefusedLoadOfRanks, AFailedReadLeavesAnUntrainedEngineUnchanged) {
  for (const Point& point : points()) {
    with_engines(point, [&](Communicator& comm, Engine& engine, Engine& twin) {
      std::optional<FailingReads> bad;
      const std::string before = state_of(engine);
      bool loaded = false;
      for (int64_t good = 0; !loaded; ++good) {
        comm.barrier("before");
        if (comm.rank() == 0) bad.emplace(first_ + "/", good);
        comm.barrier("failing");
        try {
          engine.checkpoints().load(first_);
          loaded = true;
          EXPECT_GT(good, 8 * comm.size());
        } catch (const Error& error) {
          ASSERT_EQ(error.status(), DS_ERROR_IO) << error.what();
          expect_names(error.what(), {first_, "Input/output error"});
        }
        comm.barrier("after");
        bad.reset();
        comm.barrier("reads");
        if (!loaded) {
          ASSERT_EQ(state_of(engine), before) << point.name() << " read " << good;
        }
      }
      twin.checkpoints().load(first_);
      expect_same(point, engine, twin);
    });
  }
}

// Flips one byte at a time of every file of tensors: in the header, and at the beginning and end of
// the first and the last tensor. Proves {checkpoint.load.corrupt}.
TEST_F(RefusedLoadOfRanks, ADamagedByteOfAnySectionIsRefusedByName) {
  for (const Point& point : points()) {
    with_engines(point, [&](Communicator& comm, Engine& engine, Engine& twin) {
      std::vector<std::pair<std::string, int64_t>> places;
      for (const char* kind : {"master", "exp_avg", "exp_avg_sq"}) {
        const std::string file = first_ + "/" + kind + ".safetensors";
        places.emplace_back(file, 20);
        const SafetensorHeader header = read_safetensors_header(file);
        for (const std::string& name : {header.entries.front().name, header.entries.back().name}) {
          const SafetensorEntry& e = *header.find(name);
          places.emplace_back(file, e.begin);
          places.emplace_back(file, e.begin + e.bytes - 1);
        }
      }
      auto refuse_each = [&] {
        const std::string before = state_of(engine);
        for (const auto& [file, offset] : places) {
          comm.barrier("before");
          if (comm.rank() == 0) flip_byte(file, offset);
          comm.barrier("flipped");
          expect_names(message_of([&] { engine.checkpoints().load(first_); }, DS_ERROR_CORRUPT),
                       {file});
          comm.barrier("after");
          if (comm.rank() == 0) flip_byte(file, offset);
          ASSERT_EQ(state_of(engine), before)
              << point.name() << " byte " << offset << " of " << file;
        }
      };
      refuse_each();
      expect_same(point, engine, twin);
      // An engine that has trained verifies the files first.
      refuse_each();
    });
  }
}

// An engine that has not trained yet reads the files once, any other engine twice.
TEST_F(RefusedLoadOfRanks, FilesAreReadOnceBeforeTraining) {
  with_engines(point_, [&](Communicator&, Engine& engine, Engine& twin) {
    const std::string file = first_ + "/exp_avg.safetensors";
    int64_t reads[2] = {};
    for (int64_t& count : reads) {
      FailingReads none(file, INT64_MAX);
      engine.checkpoints().load(first_);
      count = FailingReads::seen();
    }
    EXPECT_EQ(reads[1], reads[0] + 1);
    ShortReads halves(file);
    twin.checkpoints().load(first_);
    expect_same(point_, engine, twin);
  });
}

// If the newest checkpoint of a folder is damaged, the previous one is loaded, unless part of the
// newest has already been read into the states. Proves {checkpoint.load.damaged}.
TEST_F(RefusedLoad, LoadsThePreviousCheckpointOrPoisonsTheEngine) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  with_checkpoints([&](Communicator& comm) {
    int64_t reads = 0;
    {
      FailingReads none(second_ + "/", INT64_MAX);
      EXPECT_EQ(Engine(config_of(point_), graph_of(point_), comm, {})
                    .checkpoints()
                    .load(folder_.path())
                    .path,
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
    expect_names(message_of([&] { engine.checkpoints().load(folder_.path()); }, DS_ERROR_IO),
                 {second_});
    EXPECT_TRUE(is_poisoned(engine));
    flush_log();
    EXPECT_EQ(lines, std::vector<std::string>{});
  });
  set_log_sink({});
}

}  // namespace
}  // namespace ds::test
