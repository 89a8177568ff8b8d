// Embedding gradients that are reduced as rows have the same bits as those that are reduced whole.
// Also tests which features exclude rows.
#include <gtest/gtest.h>

#include <atomic>

#include "compile/pipeline.h"
#include "engine/delegate.h"
#include "nn/models/hf.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test::sparse_test {
namespace {

constexpr int kSteps = 3;

// Returns a point with an embedding of 160 rows and a separate head. The 16 tokens of a micro-step
// name few rows, and those of several ranks name more.
Point table_point() { return {.vocab = 160, .tied = false}; }

std::string hash_of(const Point& p) {
  std::atomic<int> packs = 0;
  std::string hash = train_threads(p, kSteps, [&](Program& program) {
                       for (const Instr& in : program.instrs) packs += in.def->name == "pack_rows";
                     }).bits();
  EXPECT_EQ(packs, p.sparse ? p.leaves : 0) << p.name();
  return hash;
}

// Returns the point with rows. The settings that must not affect the result vary with i.
Point varied(Point p, int i) {
  p.sparse = true;
  p.tier = static_cast<Tier>(i % 3);
  p.emulate = i % 4 != 1;
  p.overlap = i / 2 % 2 == 0;
  p.threads = 1 + i / 3 % 2;
  if (i % 2 == 1) p.chaos = static_cast<uint64_t>(i);
  if (i % 4 == 0) p.separate = static_cast<uint64_t>(i);
  if (i % 4 == 2) p.bucket_size = 4000;
  return p;
}

TEST(SparseGradients, HaveTheSameBitsAsWholeReductions) {
  int i = 0;
  for (int world : {2, 4}) {
    for (int64_t accumulation : {1, 3}) {
      Point plain = table_point();
      plain.world = world;
      plain.leaves = world * accumulation;
      // With f32 gradients the order of additions matters, because sums of bf16 values are exact in
      // any order.
      if (world == 4) plain.compute = DS_DTYPE_F32;
      std::string expected = hash_of(plain);
      for (int stage = 0; stage <= 3; ++stage) {
        Point p = varied(plain, i++);
        p.stage = stage;
        EXPECT_EQ(hash_of(p), expected) << p.name();
      }
    }
  }
}

TEST(SparseGradients, HaveTheSameBitsAsWholeReductionsOverLevels) {
  Point plain = table_point();
  plain.world = plain.leaves = 8;
  plain.compute = DS_DTYPE_F32;
  std::string expected = hash_of(plain);
  std::vector<Point> points = {
      {.stage = 0, .nodes = 2}, {.stage = 1, .nodes = 4},
      {.stage = 2, .nodes = 2}, {.stage = 3, .nodes = 2},
      {.stage = 3, .mics = 4},  {.stage = 3, .nodes = 4, .mics = 4, .gather_by_node = true},
      {.stage = 3, .hpz = 2},   {.stage = 3, .nodes = 2, .hpz = 2}};
  int i = 0;
  for (Point& p : points) {
    p.world = p.leaves = 8;
    p.vocab = plain.vocab;
    p.compute = plain.compute;
    p.tied = false;
    p = varied(p, i++);
    EXPECT_EQ(hash_of(p), expected) << p.name();
  }
}

// The vocabulary is far larger than the number of tokens in a step, as in language models.
TEST(SparseGradients, MoveFewerBytesInALlama) {
  constexpr const char* kLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16, "vocab_size": 5000, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": false})";
  HfModel model = hf_model(Json::parse(kLlama, "llama"), 16, 8, HfMode::training);
  std::vector<std::string> hashes;
  int64_t received[2] = {};
  for (bool sparse : {false, true}) {
    run_ranks(2, [&](Communicator& comm) {
      Config c = make_config(3, 1, 2);
      c.sparse_gradients = sparse;
      Engine engine(c, model.graph, comm, {});
      for (int step = 0; step < kSteps; ++step) {
        std::vector<int32_t> tokens(16), targets(16);
        for (int t = 0; t < 16; ++t) {
          tokens[static_cast<size_t>(t)] = (step * 311 + comm.rank() * 7 + t * t * 41) % 5000;
          targets[static_cast<size_t>(t)] = (tokens[static_cast<size_t>(t)] + 1) % 5000;
        }
        InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, 16},
                              {targets.data(), DS_DTYPE_I32, 16}};
        engine.train_batch(inputs);
      }
      std::map<std::string, CommCount> ledger = engine.runtime().ledger();
      std::string hash = state_hash(engine.store());
      if (comm.rank() != 0) return;
      received[sparse] = ledger["reduce_scatter"].bytes;
      hashes.push_back(hash);
    });
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  // Half of 5000 x 32 elements, padded to granules of both ranks, in f32.
  EXPECT_EQ(received[0] - received[1], kSteps * 160256 / 2 * 4);
}

TEST(SparseGradients, AreReproducibleOverWorldSizes) {
  std::string expected;
  for (int world : {1, 2, 4, 8}) {
    Point p = table_point();
    p.world = world;
    p.leaves = 8;
    p.stage = world % 4;
    p.reproducible = true;
    p.compute = DS_DTYPE_F32;
    if (world == 1) {
      expected = hash_of(p);
      continue;
    }
    EXPECT_EQ(hash_of(varied(p, world)), expected) << world << " ranks";
  }
}

// Trains batches shorter than the bound by forward, backward and step.
TEST(SparseGradients, WorkWithShortBatchesInPieces) {
  std::vector<std::string> hashes;
  for (bool sparse : {false, true}) {
    Point p = table_point();
    p.stage = 2;
    p.sparse = sparse;
    run_ranks(p.world, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      // This full batch leaves its ids in memory after those of the short batches.
      train_step_in_pieces(p, engine, 0, [] {});
      for (int64_t m = 0; m < p.leaves / p.world; ++m) {
        std::vector<int32_t> tokens(8), targets(8, 5);
        for (size_t t = 0; t < tokens.size(); ++t)
          tokens[t] = static_cast<int32_t>(static_cast<int64_t>(t * t) + 20 * m + 50 * comm.rank());
        InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, 8}, {targets.data(), DS_DTYPE_I32, 8}};
        engine.forward(inputs);
        engine.backward();
      }
      engine.step();
      std::string hash = state_hash(engine.store());
      if (comm.rank() == 0) hashes.push_back(hash);
    });
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(SparseGradients, WorkWithTablesThatAreFrozenOrThawed) {
  std::vector<std::string> hashes;
  for (bool sparse : {false, true}) {
    Point p = table_point();
    p.stage = 3;
    p.sparse = sparse;
    run_ranks(p.world, [&](Communicator& comm) {
      Config c = config_of(p);
      c.frozen = {"wte.weight"};
      Engine engine(c, graph_of(p), comm, {});
      int32_t table = 0;
      std::vector<float> drawn = engine.store().read_tensor(ParamId(table), "param");
      train_step(p, engine, 0);
      EXPECT_EQ(engine.store().read_tensor(ParamId(table), "param"), drawn);
      engine.trained().freeze({&table, 1}, false);
      train_step(p, engine, 1);
      train_step(p, engine, 2);
      EXPECT_NE(engine.store().read_tensor(ParamId(table), "param"), drawn);
      std::string hash = state_hash(engine.store());
      if (comm.rank() == 0) hashes.push_back(hash);
    });
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// A table reduced as rows is exact even if other gradients are quantized, on any layout.
TEST(SparseGradients, AreExactBesideQuantizedGradients) {
  Point base = table_point();
  base.stage = 2;
  base.gradient_bits = 4;
  base.err_beta = 0.8;
  std::string coded = hash_of(base);
  base.sparse = true;
  std::string expected = hash_of(base);
  EXPECT_NE(expected, coded);
  for (int i = 1; i <= 5; ++i) {
    Point p = varied(base, i);
    p.stage = 2 + i % 2;
    EXPECT_EQ(hash_of(p), expected) << p.name();
  }
  auto first_gradient = [&](bool sparse, int bits) {
    Point p = table_point();
    p.stage = 2;
    p.sparse = sparse;
    p.gradient_bits = bits;
    std::vector<float> out;
    run_ranks(p.world, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      train_step(p, engine, 0);
      std::vector<float> grad = engine.store().read_tensor(ParamId(0), "grad");
      if (comm.rank() == 0) out = grad;
    });
    return out;
  };
  EXPECT_EQ(first_gradient(true, 4), first_gradient(false, 0));
  EXPECT_NE(first_gradient(false, 4), first_gradient(false, 0));
}

std::string notes_of(const Graph& graph, int world,
                     const std::function<void(Config&)>& change = {}) {
  Config c = make_config(2, 1, world);
  c.compute = DS_DTYPE_BF16;
  c.sparse_gradients = true;
  if (change) change(c);
  std::string text;
  for (const std::string& note : compile_plan(graph, c, 0, world, Machine{}).notes)
    text += note + "\n";
  return text;
}

TEST(SparseGradients, NotesNameTheTablesAndTheReasons) {
  auto gpt = [](int64_t vocab, bool tied) {
    return make_tiny_gpt(1, 24, 2, vocab, 8, 16, 0, tied);
  };
  // 16 rows of 24 bf16 elements and their row numbers, against a quarter of 1024 padded elements;
  // each from 3 other ranks.
  EXPECT_EQ(notes_of(gpt(29, false), 4),
            "sparse_gradients: 'wte.weight' is reduced as a whole: 2496 bytes received in a "
            "micro-step as rows, 1536 as a whole\n");
  EXPECT_EQ(notes_of(gpt(400, false), 4),
            "sparse_gradients: 'wte.weight' is reduced as rows: 2496 bytes received in a "
            "micro-step as rows, 15360 as a whole\n");
  EXPECT_EQ(
      notes_of(gpt(400, true), 4),
      "sparse_gradients: no parameter is read by an embedding of input ids and by nothing else\n");
  EXPECT_EQ(notes_of(gpt(400, false), 1), "");
  EXPECT_EQ(notes_of(gpt(400, false), 4, [](Config& c) { c.sparse_gradients = false; }), "");
}

// A parameter that is read twice, or that is also an output, is not a table.
TEST(SparseGradients, TablesAreReadOnlyByInputIds) {
  Graph g;
  g.bound = 8;
  TensorType ids{DS_DTYPE_I32, Shape{Dim::n()}};
  ValueId first = g.add_input("first", ids), second = g.add_input("second", ids);
  auto table = [&](const char* name) {
    return g.add_param(name, {DS_DTYPE_F32, Shape{300, 4}}, {"ones", 0});
  };
  ValueId once = table("once"), twice = table("twice"), shown = table("shown");
  ValueId x = g.add("embedding", {once, second});
  x = g.add("add", {x, g.add("embedding", {twice, first})});
  x = g.add("add", {x, g.add("embedding", {twice, second})});
  x = g.add("add", {x, g.add("embedding", {shown, first})});
  g.add_output("loss", x);
  g.add_output("shown", shown);
  std::vector<RowTable> tables = find_row_tables(g);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].param, ParamId(0));
  EXPECT_EQ(tables[0].input, InputId(1));
  EXPECT_EQ(tables[0].rows, 300);
  EXPECT_EQ(tables[0].width, 4);
  EXPECT_EQ(tables[0].bound, 8);
}

TEST(SparseGradients, ADelegateHasNoIds) {
  auto comm = create_communicator("self", {});
  Config c = make_config(2, 1, 1);
  c.sparse_gradients = true;
  EXPECT_EQ(message_of([&] { DelegateEngine(c, *comm, {}); }, DS_ERROR_CONFIG),
            "sparse_gradients: true needs a graph, whose ids name rows; a delegate has none");
}

}  // namespace
}  // namespace ds::test::sparse_test
