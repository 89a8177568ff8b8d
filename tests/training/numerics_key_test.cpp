#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/device/cpu_features.h"
#include "engine/engine.h"
#include "engine/numerics.h"
#include "kernels/cpu/kernel_facts.h"
#include "support/errors.h"
#include "support/same_bits.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// The numerics key names everything that the bits depend on. Loading a checkpoint with another key
// logs the parts that differ.
namespace ds::test::numerics_key_test {
namespace {

const Point kPoint{.world = 1, .leaves = 1};

template <typename Body>
void with_engine(Body body) {
  auto comm = create_communicator("self", {});
  Engine engine(config_of(kPoint), graph_of(kPoint), *comm, {});
  body(engine);
}

std::string families(const char* names) { return std::string(names) + "/" + kernels_build(); }

// Returns the lines that are logged when the checkpoint is loaded.
std::vector<std::string> lines_of_load(Engine& engine, const std::string& folder) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  engine.checkpoints().load(folder);
  flush_log();
  set_log_sink({});
  return lines;
}

TEST(NumericsKey, NamesTheMachineAndTheVersions) {
  with_engine([](Engine& engine) {
    expect_names(
        engine.checkpoints().numerics_key(),
        {"ranks 1", "dtype bf16", std::string(" libds ") + library_version(), " device cpu",
         std::string(" isa ") + isa_name(effective_isa()),
         " kernels " + families("gemm,onednn,cpu,ref"), " highway ", " onednn ", " libc "});
  });
}

// The host, chaos and separate devices run the same kernels. A device of another kind has another
// key.
TEST(NumericsKey, NamesTheKindOfTheDevice) {
  std::string host;
  with_engine([&](Engine& engine) {
    host = engine.checkpoints().numerics_key();
    NumericsParts parts = numerics_of_kernels(engine.runtime().kernels(), "sm_90");
    EXPECT_EQ(parts[0], (NumericsParts::value_type{"device", "sm_90"}));
  });
  for (bool chaos : {true, false}) {
    Point p = kPoint;
    (chaos ? p.chaos : p.separate) = 1;
    EngineOptions options;
    set_device(options, p);
    auto comm = create_communicator("self", {});
    Engine engine(config_of(p), graph_of(p), *comm, options);
    EXPECT_EQ(engine.checkpoints().numerics_key(), host);
  }
}

// The CTest entry training.separate relies on this.
TEST(NumericsKey, TestsRunOnTheDeviceOfTheEnvironment) {
  const char* device = std::getenv("DS_TEST_DEVICE");
  with_engine([&](Engine& engine) {
    EXPECT_STREQ(engine.runtime().device()->name(), device && *device ? device : "host");
  });
}

TEST(NumericsKey, DifferencesAreNamedWithBothValues) {
  const std::string here = numerics_text({{"ranks", "2"}, {"isa", "avx512"}, {"libc", "2 36"}});
  EXPECT_EQ(here, "ranks 2 isa avx512 libc 2_36");
  const auto difference = [](const std::string& first, const std::string& second) {
    return numerics_difference({first, "there"}, {second, "here"});
  };
  EXPECT_EQ(difference(here, here), "");
  EXPECT_EQ(difference("ranks 4 isa avx2 libc 2_36", here),
            "ranks 4 there, 2 here; isa avx2 there, avx512 here");
  // Keys of versions that had fewer or more parts.
  EXPECT_EQ(difference("ranks 2 isa avx512", here), "libc none there, 2_36 here");
  EXPECT_EQ(difference(here + " device sm_90", here), "device sm_90 there, none here");
  EXPECT_EQ(difference(here + " quantized weights int8 above 600", here),
            "quantized weights int8 above 600 there, none here");
  EXPECT_EQ(difference("", "isa avx2"), "isa none there, avx2 here");
}

TEST(NumericsKey, ACheckpointWithAnotherKeyLoadsAndLogsALine) {
  TempFolder folder;
  std::vector<int> saved = spawn_processes(1, [&](int) {
    setenv("DS_MAX_ISA", "sse4", 1);
    setenv("DS_KERNELS", "ref", 1);
    with_engine([&](Engine& engine) { engine.checkpoints().save(folder.path()); });
  });
  ASSERT_EQ(saved, std::vector<int>{0});
  with_engine([&](Engine& engine) {
    std::vector<std::string> lines = lines_of_load(engine, folder.path());
    ASSERT_EQ(lines.size(), 1u);
    expect_names(lines[0], {"checkpoint '" + folder.path(), "has another numerics key: ",
                            "kernels " + families("ref") + " there, " +
                                families("gemm,onednn,cpu,ref") + " here"});
    std::string isa = isa_name(effective_isa());
    if (isa != "sse4") expect_names(lines[0], {"isa sse4 there, " + isa + " here"});
    for (const char* same : {"model", "libds", "device", "libc"})
      EXPECT_EQ(lines[0].find(std::string(same) + " "), std::string::npos) << lines[0];
    engine.checkpoints().save(folder.path());
    EXPECT_EQ(lines_of_load(engine, folder.path()), std::vector<std::string>{});
  });
}

}  // namespace
}  // namespace ds::test::numerics_key_test
