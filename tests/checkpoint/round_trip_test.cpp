#include <atomic>
#include <bit>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "support/flip_byte.h"

namespace ds::test {
namespace {

// Proves {checkpoint.load.any}.
TEST(Checkpoint, LoadsAtEveryWorldSizeAndPartition) {
  TempFolder folder;
  std::string path = save_fake(folder / "a", 12, 4);
  std::string hash = payload_hash(path);
  for (int world : {1, 2, 3, 4}) {
    for (bool partitioned : {false, true}) {
      std::string again;
      run_ranks(world, [&](Communicator& comm) {
        FakeState state(comm, partitioned);
        CheckpointInfo info = load_checkpoint(state, path);
        EXPECT_EQ(state.wrong(), 0) << "world " << world;
        std::string mine = save_checkpoint(state, folder / "b", info);
        if (comm.rank() == 0) again = mine;
      });
      EXPECT_EQ(payload_hash(again), hash) << "world " << world << " partitioned " << partitioned;
    }
  }
}

TEST(Checkpoint, TensorsLargerThanOneBlockAreReadBack) {
  TempFolder folder;
  std::vector<FakeParam> params = {{"big", {1100, 1000}}, {"small", {3}}};
  std::string path = save_fake(folder.path(), 1, 1, 0, "", false, params);
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true, params);
    load_checkpoint(state, path);
    EXPECT_EQ(state.wrong(), 0);
  });
}

// Writing part of a granule may lose bits of quantized states. Therefore each write must begin and
// end at a granule's boundary or at an end of the rank's part of a parameter, no matter where the
// pieces of the checkpoint and the blocks of the file end.
TEST(Checkpoint, StatesAreWrittenInWholeGranules) {
  TempFolder folder;
  std::vector<FakeParam> params = {{"a", {77}}, {"big", {1700, 1700}}, {"small", {3}}};
  std::string path = save_fake(folder.path(), 1, 3, 0, "", true, params);
  for (int world : {1, 2}) {
    for (bool once : {false, true}) {
      run_ranks(world, [&](Communicator& comm) {
        FakeState state(comm, true, params);
        state.on_write = [&](BucketId b, int64_t begin, int64_t end) {
          auto is_edge = [&](int64_t at) {
            const auto& places = state.layout().buckets[b].params;
            return at % kGranule == 0 || at == state.first(b) ||
                   at == state.first(b) + state.held(b) ||
                   std::any_of(places.begin(), places.end(), [&](const ParamPlace& p) {
                     return at == p.begin || at == p.begin + p.numel;
                   });
          };
          EXPECT_TRUE(is_edge(begin) && is_edge(end)) << begin << " to " << end;
        };
        LoadCalls calls;
        calls.restorable = [&](const CheckpointInfo&) { return once; };
        load_checkpoint(state, path, calls);
        EXPECT_EQ(state.wrong(), 0);
      });
    }
  }
}

// If all ranks can restore their states, a load may write before everything is verified, and ends
// with restore() on all ranks if it is refused. If one rank cannot, no rank writes.
TEST(Checkpoint, StatesAreRestoredOnAllRanksOrOnNone) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1, 3), file = path + "/exp_avg_sq.safetensors";
  flip_byte(file, read_safetensors_header(file).find("h.1.weight")->begin + 1000);
  for (int cannot : {-1, 0, 1}) {
    std::atomic<int> restored = 0, checked = 0, written = 0;
    run_ranks(2, [&](Communicator& comm) {
      FakeState state(comm, true);
      LoadCalls calls;
      calls.restorable = [&](const CheckpointInfo&) { return comm.rank() != cannot; };
      calls.checked = [&](const CheckpointInfo& info) { checked += info.step == 1; };
      calls.restore = [&] { ++restored; };
      expect_names(message_of([&] { load_checkpoint(state, path, calls); }, DS_ERROR_CORRUPT),
                   {"h.1.weight", file});
      written += state.written > 0;
    });
    EXPECT_EQ(restored, cannot < 0 ? 2 : 0);
    EXPECT_EQ(checked, cannot < 0 ? 2 : 0);
    EXPECT_EQ(written, cannot < 0 ? 2 : 0);
  }
}

TEST(Checkpoint, KindsAreThoseOfTheOptimizer) {
  TempFolder folder;
  const std::vector<std::string> sgd = {"master", "momentum_buffer"};
  std::string path;
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true, fake_params(), sgd);
    state.fill();
    std::string mine = save_checkpoint(state, folder.path(), fake_info(3));
    if (comm.rank() == 0) path = mine;
  });
  EXPECT_TRUE(exists(path + "/momentum_buffer.safetensors"));
  EXPECT_FALSE(exists(path + "/exp_avg.safetensors"));
  EXPECT_EQ(latest_checkpoint(folder.path()), path);
  run_ranks(1, [&](Communicator& comm) {
    FakeState state(comm, true, fake_params(), sgd);
    load_checkpoint(state, path);
    EXPECT_EQ(state.wrong(), 0);
  });
  auto [status, message] = load_error(path);
  EXPECT_EQ(status, DS_ERROR_CONFIG);
  EXPECT_EQ(message, "the optimizer has states master, exp_avg, exp_avg_sq, but checkpoint '" +
                         path + "' has master, momentum_buffer");
}

TEST(Checkpoint, InfoIsReadBack) {
  TempFolder folder;
  CheckpointInfo info = read_checkpoint_info(save_fake(folder.path(), 12)), saved = fake_info(12);
  EXPECT_EQ(info.step, 12);
  EXPECT_EQ(info.seed, saved.seed);
  EXPECT_EQ(info.numerics_key, saved.numerics_key);
  EXPECT_EQ(info.config.dump(), saved.config.dump());
  EXPECT_EQ(info.client.dump(), saved.client.dump());
}

TEST(Checkpoint, ClientTextNeedNotBeUtf8) {
  TempFolder folder;
  run_ranks(1, [&](Communicator& comm) {
    FakeState state(comm, true);
    state.fill();
    CheckpointInfo info = fake_info(1);
    info.client.set("bytes", "\xff\xfe");
    info.client.set("loss", std::numeric_limits<double>::quiet_NaN());
    std::string path = save_checkpoint(state, folder.path(), info);
    EXPECT_TRUE(read_checkpoint_info(path).client.at("loss").is_null());
  });
}

TEST(Checkpoint, PayloadHashDetectsOneBit) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1), hash = payload_hash(path), other;
  run_ranks(1, [&](Communicator& comm) {
    FakeState state(comm, false);
    state.fill();
    float value = 0;
    state.read_state(StateKind{1}, BucketId(0), 0, 1, &value);
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1);
    state.write_state(StateKind{1}, BucketId(0), 0, 1, &value);
    other = payload_hash(save_checkpoint(state, folder.path(), fake_info(1)));
  });
  EXPECT_NE(other, hash);
}

TEST(Checkpoint, FilesAreSafetensorsWithoutPadding) {
  TempFolder folder;
  SafetensorHeader header =
      read_safetensors_header(save_fake(folder.path(), 1, 3) + "/master.safetensors");
  ASSERT_EQ(header.entries.size(), fake_params().size());
  int64_t at = header.entries[0].begin;
  for (size_t i = 0; i < header.entries.size(); ++i) {
    EXPECT_EQ(header.entries[i].name, fake_params()[i].name);
    EXPECT_EQ(header.entries[i].begin, at);
    at += header.entries[i].bytes;
  }
  EXPECT_EQ(at, header.file_bytes);
}

}  // namespace
}  // namespace ds::test
