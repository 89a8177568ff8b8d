// Tests checkpoints of ranks that hold slices of tensors: any mesh reads what any other mesh has
// saved, and a damaged list of pieces is never accepted as complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/fake_state.h"
#include "checkpoint/manifest.h"
#include "checkpoint/payload.h"
#include "checkpoint/pieces.h"
#include "checkpoint/reader.h"
#include "checkpoint/weights_load.h"
#include "checkpoint/weights_save.h"
#include "checkpoint/writer.h"
#include "core/program/mesh.h"
#include "support/dice.h"
#include "support/random_slices.h"

namespace ds::test {
namespace {

// Returns the tensors, divided randomly for a mesh.
std::vector<FakeParam> cut_for(const std::vector<FakeParam>& params, Dice& dice, const Mesh& mesh) {
  std::vector<FakeParam> out;
  for (const FakeParam& p : params) {
    std::vector<ParamSlice> slices;
    ParamSlice whole = ParamSlice::whole(p.shape);
    int ranks = mesh.size("tensor");
    if (ranks > 1 && !p.shape.empty() && !dice.one_in(4)) {
      whole.dim = static_cast<size_t>(dice.below(static_cast<int64_t>(p.shape.size())));
      whole.axes = {"tensor"};
      whole.runs.clear();
      slices.assign(static_cast<size_t>(ranks), whole);
      for (int64_t at = 0, extent = p.shape[whole.dim]; at < extent;) {
        int64_t count = 1 + dice.below(std::min<int64_t>(extent - at, 12));
        slices[static_cast<size_t>(dice.below(ranks))].runs.push_back({at, count});
        at += count;
      }
    }
    out.push_back({p.name, p.shape, std::move(slices)});
  }
  return out;
}

Mesh random_mesh(Dice& dice) {
  int data = static_cast<int>(1 + dice.below(3)), tensor = static_cast<int>(1 + dice.below(3));
  return dice.one_in(2) ? Mesh({{"tensor", tensor}, {kData, data}})
                        : Mesh({{kData, data}, {"tensor", tensor}});
}

TEST(Slices, AnyMeshLoadsTheCheckpointOfAnyOther) {
  TempFolder folder;
  std::string hash = payload_hash(save_fake(folder / "plain", 12, 2));
  int strided = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    Dice dice(seed);
    Mesh from = random_mesh(dice), to = random_mesh(dice);
    std::vector<FakeParam> saved = cut_for(fake_params(), dice, from),
                           loaded = cut_for(fake_params(), dice, to);
    bool partitioned = dice.one_in(2);
    std::string path;
    run_ranks(from.ranks(), [&](Communicator& comm) {
      FakeState state(comm, from, partitioned, saved);
      state.fill();
      std::string mine = save_checkpoint(state, folder / std::to_string(seed), fake_info(12));
      if (comm.rank() == 0) path = mine;
    });
    EXPECT_EQ(payload_hash(path), hash) << "seed " << seed << " " << from.name();
    for (const Piece& p : read_manifest(path).pieces) strided += p.rows > 1;
    run_ranks(to.ranks(), [&](Communicator& comm) {
      FakeState state(comm, to, !partitioned, loaded);
      load_checkpoint(state, path);
      EXPECT_EQ(state.wrong(), 0) << "seed " << seed << " " << from.name() << " to " << to.name();
    });
  }
  EXPECT_GT(strided, 100);
}

TEST(Slices, WeightsAreWholeTensors) {
  TempFolder folder;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Dice dice(seed, 1);
    Mesh from = random_mesh(dice), to = random_mesh(dice);
    std::vector<FakeParam> saved = cut_for(fake_params(), dice, from),
                           loaded = cut_for(fake_params(), dice, to);
    std::string path = folder / std::to_string(seed);
    run_ranks(from.ranks(), [&](Communicator& comm) {
      FakeState state(comm, from, true, saved, {"master"});
      state.fill();
      save_weights(state, path, "");
    });
    run_ranks(to.ranks(), [&](Communicator& comm) {
      FakeState state(comm, to, dice.one_in(2), loaded, {"master"});
      load_weights(state, path);
      EXPECT_EQ(state.wrong(), 0) << "seed " << seed << " " << from.name() << " to " << to.name();
    });
  }
}

// The rank that verifies a piece detects a changed element in one of its rows.
TEST(Slices, DamageInARowIsFound) {
  TempFolder folder;
  std::vector<FakeParam> params = {{"w", {6, 8}}};
  for (int64_t first : {0, 4}) {
    ParamSlice slice{{6, 8}, 1, {{first, 4}}, {"tensor"}};
    params[0].slices.push_back(slice);
  }
  Mesh mesh({{"tensor", 2}, {kData, 1}});
  std::string path;
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, mesh, true, params);
    state.fill();
    std::string mine = save_checkpoint(state, folder.path(), fake_info(1));
    if (comm.rank() == 0) path = mine;
  });
  EXPECT_EQ(read_manifest(path).pieces.size(), 6u);
  File file(path + "/exp_avg.safetensors", File::Mode::write);
  char byte = 1;
  // Element 24 is in row 3 of the left half.
  file.write(&byte, 1, file.size() - 3 * 8 * 4);
  auto [status, message] = load_error(path, 1, {{"w", {6, 8}}});
  EXPECT_EQ(status, DS_ERROR_CORRUPT);
  EXPECT_NE(message.find("elements 0 to 43 (6 rows of 4) have hash"), std::string::npos) << message;
}

// Compares the verdict on random pieces of a tensor with an array that counts how often each
// element is covered.
TEST(Tiling, VerdictsEqualThoseOfCountingEachElement) {
  int good = 0, bad = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Dice dice(seed, 2);
    std::vector<ParamSlice> slices = random_slices(dice, 1 + dice.below(4));
    int64_t numel = slices[0].whole_numel();
    std::vector<Piece> pieces;
    for (const ParamSlice& slice : slices) {
      for (int64_t at = 0; at < slice.numel();) {
        int64_t count = 1 + dice.below(slice.numel() - at);
        for (const SliceBlock& b : slice.blocks(at, count))
          pieces.push_back({0, 0, b.begin, b.count, b.rows, b.stride});
        at += count;
      }
    }
    if (!pieces.empty() && dice.one_in(2)) {
      Piece& p = pieces[static_cast<size_t>(dice.below(static_cast<int64_t>(pieces.size())))];
      int64_t by = dice.pick<int64_t>({-1, 1, 7, -numel, INT64_MAX, INT64_MIN});
      int64_t* number = dice.pick({&p.begin, &p.count, &p.rows, &p.stride});
      *number = static_cast<int64_t>(static_cast<uint64_t>(*number) + static_cast<uint64_t>(by));
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::vector<int> owners(static_cast<size_t>(numel), 0);
    bool within = true;
    for (const Piece& p : pieces) {
      within = within && p.begin >= 0 && p.count > 0 && p.rows > 0 && p.begin < numel &&
               p.count <= numel && p.rows <= numel && p.stride >= 0 && p.stride <= numel &&
               (p.rows == 1) == (p.stride == 0);
      for (int64_t r = 0; within && r < p.rows; ++r) {
        for (int64_t i = 0; i < p.count; ++i) {
          int64_t e = p.begin + r * p.stride + i;
          within = within && e < numel;
          if (within) ++owners[static_cast<size_t>(e)];
        }
      }
    }
    bool once = within && std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; });
    std::string found = find_bad_tiling(pieces, numel);
    EXPECT_EQ(found.empty(), once) << "seed " << seed << ": " << found;
    (once ? good : bad) += 1;
  }
  EXPECT_GT(good, 1000);
  EXPECT_GT(bad, 500);
}

TEST(Tiling, MessagesNameTheError) {
  auto judge = [](std::vector<Piece> pieces, int64_t numel) {
    return find_bad_tiling(pieces, numel);
  };
  constexpr int64_t kMany = int64_t{1} << 50;
  EXPECT_EQ(judge({{0, 0, 0, 2, kMany, 4}, {0, 0, 2, 2, kMany, 4}}, 4 * kMany), "");
  EXPECT_EQ(judge({{0, 0, 0, 2, 3, 4}, {0, 0, 2, 2, 2, 4}}, 12), "pieces hold 10 of 12 elements");
  EXPECT_EQ(judge({{0, 0, 0, 3, 3, 4}, {0, 0, 2, 2, 3, 4}}, 12),
            "the pieces that begin at 0 and at 2 share elements");
  EXPECT_EQ(judge({{0, 0, 0, 2, 3, 5}}, 12),
            "a piece of 3 times 2 elements, 5 apart, begins at 0; its stride must divide the "
            "tensor's 12 elements");
  EXPECT_EQ(judge({{0, 0, 0, 2, 3, 4}, {0, 0, 2, 3, 3, 4}}, 12),
            "a piece of 3 times 3 elements, 4 apart, begins at 2, which is not within 3 rows of 4");
  EXPECT_EQ(judge({{0, 0, 0, 5}, {0, 0, 6, 6}}, 12),
            "a piece of 6 elements begins at 6, expected 5 of 12");
}

}  // namespace
}  // namespace ds::test
