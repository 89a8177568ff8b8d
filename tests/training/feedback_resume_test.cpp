// Tests checkpoints of ZeRO++'s error feedback: the error that a rank has not sent yet is part of
// that rank's state.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "engine/engine.h"
#include "io/file.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::feedback {
namespace {

constexpr int kSteps = 20, kHalf = 10;

Point point(int world, int stage, int nodes = 1) {
  Point p;
  p.world = world;
  p.stage = stage;
  p.nodes = nodes;
  p.leaves = 2 * world;
  p.gradient_bits = 4;
  p.err_beta = 0.8;
  return p;
}

using Body = std::function<void(Engine&)>;

// Runs `body` on all ranks and returns the hash of the states, which must agree. reset:
// zeropp_loco_param.reset_T.
std::string run_engines(const Point& p, const Body& body, int64_t reset = 1024) {
  std::vector<std::string> hashes(static_cast<size_t>(p.world));
  run_ranks(p.world, [&](Communicator& comm) {
    Config config = config_of(p);
    config.zero.err_reset = reset;
    EngineOptions options;
    options.threads = p.threads;
    set_device(options, p);
    Engine engine(config, graph_of(p), comm, options);
    body(engine);
    hashes[static_cast<size_t>(comm.rank())] = hash_of_states(engine);
  });
  for (const std::string& h : hashes) EXPECT_EQ(h, hashes[0]) << p.name();
  return hashes[0];
}

void steps(const Point& p, Engine& engine, int begin, int end) {
  for (int s = begin; s < end; ++s) train_step(p, engine, s);
}

std::string straight(const Point& p, int64_t reset = 1024) {
  return run_engines(
      p, [&](Engine& engine) { steps(p, engine, 0, kSteps); }, reset);
}

void save_half(const Point& p, const std::string& folder, bool started, int64_t reset = 1024) {
  run_engines(
      p,
      [&](Engine& engine) {
        steps(p, engine, 0, kHalf);
        if (!started) {
          engine.checkpoints().save(folder);
          return;
        }
        engine.checkpoints().start_save(folder);
        // The saved copy must not include these steps.
        steps(p, engine, kHalf, kHalf + 3);
        engine.checkpoints().wait();
      },
      reset);
}

std::string go_on(const Point& p, const std::string& folder, int64_t reset = 1024,
                  bool forget = false) {
  return run_engines(
      p,
      [&](Engine& engine) {
        // The load overwrites the effect of this step.
        train_step(p, engine, 50);
        engine.checkpoints().load(folder);
        if (forget) engine.store().own_states().forget();
        steps(p, engine, kHalf, kSteps);
      },
      reset);
}

TEST(Feedback, ResumesExactly) {
  for (const Point& p : {point(2, 2), point(3, 3), point(4, 3, 2)}) {
    const std::string expected = straight(p);
    for (bool started : {false, true}) {
      TempFolder folder;
      save_half(p, folder.path(), started);
      EXPECT_EQ(go_on(p, folder.path()), expected) << p.name() << (started ? " started" : "");
      if (started) continue;
      EXPECT_NE(go_on(p, folder.path(), 1024, true), expected) << p.name() << ": errors matter";
    }
  }
}

// Errors are saved by tensor, so the buckets may change. The errors are reset at the same step as
// in an unbroken run.
TEST(Feedback, ResumesExactlyInOtherBucketsAndOverAReset) {
  Point p = point(2, 2), q = p;
  q.bucket_size = 3000;
  const std::string expected = straight(p, 7);
  EXPECT_EQ(straight(q, 7), expected);
  TempFolder folder;
  save_half(p, folder.path(), false, 7);
  EXPECT_EQ(go_on(p, folder.path(), 7), expected);
  EXPECT_EQ(go_on(q, folder.path(), 7), expected);
}

// A log sink that collects the process's lines as long as it lives.
class Lines {
 public:
  Lines() {
    set_log_sink([this](LogLevel, std::string_view line) {
      std::lock_guard lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~Lines() {
    flush_log();
    set_log_sink({});
  }
  std::string text() {
    flush_log();
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

TEST(Feedback, ErrorsStartAtZeroOnAnotherNumberOfRanks) {
  TempFolder folder;
  save_half(point(2, 2), folder.path(), false);
  Lines lines;
  EXPECT_EQ(go_on(point(4, 2), folder.path()), go_on(point(4, 2), folder.path(), 1024, true));
  EXPECT_NE(lines.text().find("no per-rank states of 4 ranks"), std::string::npos) << lines.text();
}

// A checkpoint without feedback loads into a run with feedback, and vice versa.
TEST(Feedback, ACheckpointLoadsEvenIfOnlyOneRunHasFeedback) {
  TempFolder folder, other;
  Point with = point(2, 2), without = with;
  without.err_beta = -1;
  save_half(without, folder.path(), false);
  EXPECT_EQ(go_on(with, folder.path()), go_on(with, folder.path(), 1024, true));
  save_half(with, other.path(), false);
  go_on(without, other.path());
}

}  // namespace
}  // namespace ds::test::feedback
