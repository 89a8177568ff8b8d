// Compares the counters of a run with their closed form.
#include "training/ledger.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/error.h"
#include "io/file.h"
#include "support/same_bits.h"
#include "support/spawn.h"

namespace ds::test {
namespace {

constexpr int kLedgerSteps = 3;

// Returns the ledger case of the model and the settings that train_rank() uses.
LedgerCase ledger_case(const Point& p, int rank) {
  constexpr int64_t kWidth = 24, kSeq = 8, kTokens = 16;
  LedgerCase c;
  auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    c.parameters.push_back({name + ".weight", out * in});
    c.parameters.push_back({name + ".bias", out});
  };
  auto norm = [&](const std::string& name) {
    c.parameters.push_back({name + ".weight", kWidth});
    c.parameters.push_back({name + ".bias", kWidth});
  };
  int64_t named = p.sparse && !p.tied ? std::min(kTokens, p.vocab) : 0;
  c.parameters.push_back({"wte.weight", p.vocab * kWidth, named, kWidth});
  c.parameters.push_back({"wpe.weight", kSeq * kWidth});
  for (std::string h : {"h.0.", "h.1."}) {
    norm(h + "ln_1");
    linear(h + "attn.qkv", 3 * kWidth, kWidth);
    linear(h + "attn.proj", kWidth, kWidth);
    norm(h + "ln_2");
    linear(h + "mlp.fc", 4 * kWidth, kWidth);
    linear(h + "mlp.proj", kWidth, 4 * kWidth);
  }
  norm("ln_f");
  const char* head = p.tied ? "wte.weight" : "head.weight";
  if (!p.tied) c.parameters.push_back({head, p.vocab * kWidth});
  const char* layer[] = {"attn.qkv", "mlp.fc", "mlp.proj"};
  c.reads.push_back("wte.weight");
  for (const char* h : {"h.0.", "h.1."}) {
    for (const char* name : layer) c.reads.push_back(fmt::format("{}{}.weight", h, name));
  }
  // In backward, the embedding reads no weights.
  std::vector<std::string> back(c.reads.rbegin(), c.reads.rend() - 1);
  // The end of forward and the beginning of backward both read the head.
  c.reads.push_back(head);
  c.reads.insert(c.reads.end(), back.begin(), back.end());

  c.world = p.world;
  c.rank = rank;
  c.levels = {p.world};
  c.stage = p.stage;
  c.tier = tier_name(p.tier);
  c.emulate = p.emulate;
  c.overlap = p.overlap;
  c.tree = p.reproducible;
  c.boundary = p.boundary;
  c.accumulation = p.leaves / p.world;
  c.wire = size_of(p.compute);
  c.quantized_weights = p.quantized_weights;
  c.gradient_bits = p.gradient_bits;
  c.feedback = p.err_beta >= 0;
  c.bucket_size = p.bucket_size;
  c.persistence_threshold = 600;
  c.max_reuse_distance = p.max_reuse_distance;
  c.sub_group_size = 4096;
  // buffer_count sub-groups stay resident.
  c.resident_accumulators = int64_t{4} * 4096 * 4;
  return c;
}

template <typename Counts>
std::string lines(const Counts& counts, int steps) {
  std::string out;
  for (const auto& [name, count] : counts) {
    if (count.calls == 0 && count.bytes == 0) continue;
    out += fmt::format("{}: {} calls, {} bytes\n", name, count.calls * steps, count.bytes * steps);
  }
  return out;
}

void expect_ledger(const LedgerCase& given, const std::string& point, const RankLedger& counted) {
  ClosedForm form(given);
  std::string where = fmt::format("rank {} of {}, bucket {}, reuse {}", given.rank, point,
                                  given.bucket_size, given.max_reuse_distance);
  EXPECT_EQ(lines(counted.steps, 1), lines(form.step(), kLedgerSteps)) << where;
  std::map<std::pair<std::string, std::string>, int64_t> state;
  for (const auto& [key, bytes] : counted.state) state[{tier_name(key.first), key.second}] = bytes;
  EXPECT_EQ(state, form.state()) << where;
  EXPECT_EQ(counted.file_bytes, form.file_bytes()) << where;
}

void expect_ledger(const Point& p) {
  Outcome out = train_threads(p, kLedgerSteps);
  for (int r = 0; r < p.world; ++r)
    expect_ledger(ledger_case(p, r), p.name(), out.ledgers[static_cast<size_t>(r)]);
}

TEST(Ledger, AgreesOverStagesTiersAndOverlap) {
  for (int i = 0; i < 4 * 3 * 4; ++i) {
    Point p;
    p.stage = i / 12;
    p.tier = static_cast<Tier>(i / 4 % 3);
    p.emulate = i % 2 == 0;
    p.overlap = i / 2 % 2 == 0;
    expect_ledger(p);
  }
}

TEST(Ledger, AgreesOverRanksTypesAndBuckets) {
  int i = 0;
  for (int world : {1, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        Point p;
        p.world = world;
        p.stage = stage;
        p.tier = tier;
        p.reproducible = true;
        p.compute = ++i % 2 == 0 ? DS_DTYPE_F32 : DS_DTYPE_BF16;
        p.leaves = world * (i % 3 == 0 ? 3 : 4);
        p.bucket_size = i % 4 < 2 ? 500000000 : 4000;
        p.max_reuse_distance = i % 5 < 3 ? 2000 : 5000;
        expect_ledger(p);
      }
    }
  }
}

TEST(Ledger, CountsQuantizedWeightsAndGradients) {
  int i = 0;
  for (int world : {1, 2, 4}) {
    for (int stage : {2, 3}) {
      for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        Point p;
        p.world = world;
        p.stage = stage;
        p.tier = tier;
        p.leaves = 2 * world;
        ++i;
        p.quantized_weights = stage == 3 && i % 3 != 0;
        p.gradient_bits = i % 2 == 0 ? 4 : 8;
        p.err_beta = i % 4 < 2 ? 0.8 : -1;
        p.compute = i % 2 == 0 ? DS_DTYPE_F32 : DS_DTYPE_BF16;
        p.overlap = i % 3 != 1;
        p.bucket_size = i % 4 < 3 ? 500000000 : 4000;
        expect_ledger(p);
      }
    }
  }
}

// At stages 0 and 1, a step of k micro-steps has 1/k of the calls and bytes of all-reduces that it
// has under reduction "micro", on every tier.
TEST(Ledger, CountsReductionsAtTheBoundary) {
  int i = 0;
  for (int world : {1, 2, 3}) {
    for (int stage : {0, 1}) {
      for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        for (int64_t micros : {1, 4}) {
          Point p{.stage = stage, .tier = tier, .world = world, .leaves = micros * world};
          p.boundary = true;
          ++i;
          p.emulate = i % 3 != 0;
          p.overlap = i % 4 != 1;
          p.compute = i % 5 < 3 ? DS_DTYPE_BF16 : DS_DTYPE_F32;
          p.bucket_size = i % 4 < 2 ? 500000000 : 4000;
          expect_ledger(p);
          LedgerCase c = ledger_case(p, 0);
          const Traffic once = ClosedForm(c).step()["all_reduce"];
          c.boundary = false;
          const Traffic each = ClosedForm(c).step()["all_reduce"];
          EXPECT_EQ(once.calls * micros, each.calls) << p.name();
          EXPECT_EQ(once.bytes * micros, each.bytes) << p.name();
          EXPECT_EQ(once.calls > 0, world > 1) << p.name();
        }
      }
    }
  }
}

// The cases include tables whose rows need fewer bytes than the whole gradient and tables whose
// rows need more.
TEST(Ledger, CountsRowTables) {
  int i = 0, tables = 0;
  for (int world : {1, 2, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int64_t vocab : {29, 400}) {
        Point p{.stage = stage, .world = world, .vocab = vocab, .tied = false, .sparse = true};
        p.leaves = world * (1 + i % 2 * 2);
        p.boundary = stage < 2 && i % 4 >= 2;
        p.tier = static_cast<Tier>(++i % 3);
        p.compute = i % 4 < 2 ? DS_DTYPE_BF16 : DS_DTYPE_F32;
        p.overlap = i % 5 < 3;
        p.gradient_bits = stage >= 2 && i % 3 == 0 ? 8 : 0;
        p.err_beta = p.gradient_bits > 0 ? 0.8 : -1;
        p.bucket_size = i % 4 < 3 ? 500000000 : 4000;
        expect_ledger(p);
        LedgerCase c = ledger_case(p, 0);
        auto gathers = [&] { return ClosedForm(c).step()["all_gather"].calls; };
        int64_t with = gathers();
        c.parameters[0].named = 0;
        tables += with != gathers();
      }
    }
  }
  EXPECT_GE(tables, 8);
  EXPECT_LE(tables, 14);
}

struct Nested {
  Point point;
  std::vector<int64_t> levels;
  size_t state, parameter;
};

TEST(Ledger, CountsShardGroupsAndNodes) {
  std::vector<Nested> cases;
  for (int stage = 0; stage <= 3; ++stage)
    cases.push_back({{.stage = stage, .nodes = 2}, {4, 2}, 2, 2});
  for (int stage : {0, 1})
    cases.push_back({{.stage = stage, .boundary = true, .nodes = 2}, {4, 2}, 2, 2});
  cases.push_back({{.stage = 3, .nodes = 4, .hpz = 2}, {2, 4}, 2, 1});
  cases.push_back({{.stage = 3, .nodes = 2, .hpz = 2}, {2, 2, 2}, 3, 1});
  cases.push_back({{.stage = 3, .mics = 4}, {4, 2}, 1, 1});
  cases.push_back({{.stage = 3, .nodes = 4, .mics = 4}, {4, 2}, 1, 1});
  cases.push_back({{.stage = 3, .nodes = 4, .mics = 4, .gather_by_node = true}, {2, 2, 2}, 2, 2});
  // Every case at stage 2 or 3 is repeated with codes.
  for (size_t n = 0, plain = cases.size(); n < plain; ++n) {
    if (cases[n].point.stage < 2) continue;
    Nested coded = cases[n];
    coded.point.quantized_weights = coded.point.stage == 3;
    coded.point.gradient_bits = n % 2 == 0 ? 4 : 8;
    coded.point.err_beta = n % 3 == 0 ? 0.8 : -1;
    cases.push_back(coded);
  }
  // Half of the cases reduce embeddings as rows.
  for (size_t n = 0; n < cases.size(); n += 2) {
    cases[n].point.vocab = 400;
    cases[n].point.tied = false;
    cases[n].point.sparse = true;
  }
  for (Nested& n : cases) {
    for (Tier tier : {Tier::device, Tier::host}) {
      Point p = n.point;
      p.world = 8;
      p.leaves = 16;
      p.tier = tier;
      Outcome out = train_threads(p, kLedgerSteps);
      for (int r = 0; r < p.world; ++r) {
        LedgerCase c = ledger_case(p, r);
        c.levels = n.levels;
        c.state_levels = n.state;
        c.parameter_levels = n.parameter;
        expect_ledger(c, p.name(), out.ledgers[static_cast<size_t>(r)]);
      }
    }
  }
}

bool takes_direct(const std::string& folder) {
  try {
    make_folders(folder);
    return File::scratch(folder, true).direct();
  } catch (const Error&) {
    return false;
  }
}

// Compares with the kernel's own counters of the bytes that a rank's process read from and wrote to
// storage.
TEST(Ledger, FileBytesEqualTheKernelsCounters) {
  if (!takes_direct(scratch_folder()))
    GTEST_SKIP() << scratch_folder() << " does not support O_DIRECT";
  for (int stage = 0; stage <= 3; ++stage) {
    Point p;
    p.stage = stage;
    p.tier = Tier::nvme;
    p.overlap = stage % 2 == 0;
    std::string url = fmt::format("shm://ledger-{}-{}", getpid(), stage);
    std::vector<int> codes = spawn_processes(p.world, [&](int rank) {
      CommOptions options;
      options.rank = rank;
      options.size = p.world;
      std::unique_ptr<Communicator> comm = create_communicator(url, options);
      RankLedger counted = train_rank(p, 40, *comm).ledgers[0];
      auto near = [&](const char* what, int64_t storage) {
        int64_t bytes = counted.steps.at(what).bytes;
        EXPECT_GT(bytes, 0) << what;
        EXPECT_NEAR(static_cast<double>(storage), static_cast<double>(bytes),
                    0.01 * static_cast<double>(bytes))
            << what << ", rank " << rank << " of " << p.name();
      };
      near("load", counted.process.read);
      near("save", counted.process.written);
    });
    EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
  }
}

}  // namespace
}  // namespace ds::test
