#include <gtest/gtest.h>

#include <algorithm>

#include "compile/pipeline.h"
#include "core/base/error.h"
#include "engine/engine.h"
#include "passes/fusion_rules.h"
#include "support/models.h"

namespace ds::test {
namespace {

constexpr int64_t kSeq = 8, kRows = 64, kVocab = 4500;

Graph gpt() { return make_tiny_gpt(1, 24, 2, kVocab, kSeq, kRows, 0.1); }

bool runs(const Program& program, const std::string& op) {
  return std::any_of(program.instrs.begin(), program.instrs.end(),
                     [&](const Instr& in) { return in.def->name == op; });
}

int64_t largest_transient(const Program& program) {
  int64_t most = 0;
  for (const Instr& in : program.instrs) {
    for (const Operand& o : in.operands) {
      if (program.buffers[o.buffer].residency != Residency::transient) continue;
      if (o.type.shape.symbolic()) {
        most = std::max(most, o.type.shape.numel(program.bound) * size_of(o.type.dtype));
      }
    }
  }
  return most;
}

// Builds a graph with a head of 8 words from the lines `head` and `use`. Returns how many heads
// were fused.
int fused(const std::string& head, const std::string& use, int64_t fewest = 1) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "input %t i32[n]\n"
      "input %b f32[8]\n"
      "param %w f32[8,4] = zeros\n"
      "param %v f32[4,8] = zeros\n" +
      head + use + "output l=%l z=%z\n");
  int count = rewrite(graph, head_rules(fewest));
  graph.check();
  return count;
}

TEST(FusedHead, FusesOnlyPlainLogitsThatNoOtherNodeReads) {
  const std::string plain = "%z = linear %x %w -> f32[n,8]\n",
                    loss = "%l %s = cross_entropy %z %t -> f32[] f32[n,2]\n";
  EXPECT_EQ(fused(plain, loss), 1);
  EXPECT_EQ(fused(plain, loss, 8), 1);
  EXPECT_EQ(fused(plain, loss, 9), 0) << "too few words";
  EXPECT_EQ(fused(plain, loss + "%q = gelu %z -> f32[n,8]\n"), 0) << "read elsewhere";
  EXPECT_EQ(fused("%z = linear %x %w %b -> f32[n,8]\n", loss), 0) << "a bias";
  EXPECT_EQ(fused("%z = linear %x %v {transposed=1} -> f32[n,8]\n", loss), 0)
      << "a transposed weight";
  EXPECT_EQ(fused("%y = linear %x %w -> f32[n,8]\n%z = softcap %y {cap=30.0} -> f32[n,8]\n", loss),
            0)
      << "capped logits";
}

TEST(FusedHead, KeepsTheAttributesOfTheLoss) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "input %t i32[n]\n"
      "param %w f32[8,4] = zeros\n"
      "%z = linear %x %w -> f32[n,8]\n"
      "%l %s = cross_entropy %z %t {label_smoothing=0.1 reduction=\"none\"} -> f32[n] f32[n,2]\n"
      "output l=%l\n");
  EXPECT_EQ(rewrite(graph, head_rules(1)), 1);
  graph.check();
  EXPECT_NE(graph.print().find(
                "linear_cross_entropy %x %w %t {label_smoothing=0.1 reduction=\"none\"} -> f32[n]"),
            std::string::npos)
      << graph.print();
}

TEST(FusedHead, FollowsTheConfiguration) {
  struct Row {
    const char* choice;
    DType compute;
    bool step, eval;
  };
  for (const Row& row :
       {Row{"auto", DS_DTYPE_F32, true, true}, Row{"auto", DS_DTYPE_BF16, false, true},
        Row{"always", DS_DTYPE_BF16, true, true}, Row{"never", DS_DTYPE_F32, false, false}}) {
    Config c = make_config(0, 1, 1);
    c.fused_head = row.choice;
    c.compute = row.compute;
    Plan plan = compile_plan(gpt(), c, 0, 1, Machine{});
    EXPECT_EQ(runs(plan.step(), "linear_cross_entropy_dx"), row.step) << row.choice;
    EXPECT_EQ(runs(plan.step(), "cross_entropy"), !row.step) << row.choice;
    EXPECT_EQ(runs(plan.program(ProgramKind::eval), "linear_cross_entropy"), row.eval)
        << row.choice;
    EXPECT_EQ(runs(plan.program(ProgramKind::eval), "cross_entropy"), !row.eval) << row.choice;
  }
  // On a GPU the fused head keeps its logits in 16 bits, in rows padded so that products read whole
  // vectors.
  Config c = make_config(0, 1, 1);
  c.compute = DS_DTYPE_BF16;
  Machine machine;
  c.device = "cuda:0";
  const std::string step = compile_plan(gpt(), c, 0, 1, machine).step().print();
  EXPECT_NE(step.find("kept=1"), std::string::npos);
  EXPECT_NE(step.find("bf16[n,4504]"), std::string::npos) << step;
  // A device that runs the CPU's kernels has the plans of the CPU, even where the CPU has separate
  // tiers.
  c.device = "separate";
  const Plan separate = compile_plan(gpt(), c, 0, 1, machine);
  c.device = "cpu";
  c.emulate_tiers = true;
  EXPECT_EQ(separate.step().print(), compile_plan(gpt(), c, 0, 1, machine).step().print());
  // A frozen weight has no gradient, so the step does not run the fused backward operation.
  c.device = "cuda:0";
  c.frozen = {"*wte*"};
  EXPECT_FALSE(runs(compile_plan(gpt(), c, 0, 1, machine).step(), "linear_cross_entropy_dx"));
  c = make_config(0, 1, 1);
  EXPECT_FALSE(
      runs(compile_plan(make_tiny_gpt(1, 24, 2, 300, kSeq, kRows, 0), c, 0, 1, Machine{}).step(),
           "linear_cross_entropy"))
      << "a small vocabulary has nothing to save";
}

TEST(FusedHead, NoBufferHoldsTheLogits) {
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Config c = make_config(0, 1, 1);
    c.compute = dtype;
    c.fused_head = "never";
    Plan stored = compile_plan(gpt(), c, 0, 1, Machine{});
    c.fused_head = "always";
    Plan blocks = compile_plan(gpt(), c, 0, 1, Machine{});
    int64_t logits = kRows * kVocab * size_of(dtype);
    EXPECT_EQ(largest_transient(stored.step()), logits);
    EXPECT_LT(largest_transient(blocks.step()), kRows * 1024 * 4 + 1);
    EXPECT_LT(largest_transient(blocks.program(ProgramKind::eval)), kRows * 1024 * 4 + 1);
    EXPECT_LT(blocks.step().arenas[0].transient, stored.step().arenas[0].transient - logits / 2);
  }
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> masters;
  double eval = 0;
};

Trained train(const std::string& choice, DType dtype, int threads, bool chaos,
              const Attrs& loss = {}) {
  Config c = make_config(0, 1, 1);
  c.fused_head = choice;
  c.compute = dtype;
  auto comm = create_communicator("self", {});
  EngineOptions options;
  options.threads = threads;
  if (chaos) options.chaos_seed = 3;
  Graph graph = gpt();
  for (NodeId i : graph.nodes.ids()) {
    if (graph.nodes[i].op == "cross_entropy") graph.nodes[i].attrs = loss;
  }
  Engine engine(c, graph, *comm, options);
  std::vector<int32_t> tokens(kRows), targets(kRows);
  for (size_t i = 0; i < kRows; ++i) {
    tokens[i] = static_cast<int32_t>(i * 531 % kVocab);
    targets[i] = i % 8 == 7 ? -100 : static_cast<int32_t>(i * 1117 % kVocab);
  }
  std::vector<InputView> inputs{{tokens.data(), DS_DTYPE_I32, kRows},
                                {targets.data(), DS_DTYPE_I32, kRows}};
  Trained run;
  for (int s = 0; s < 3; ++s) run.losses.push_back(engine.train_batch(inputs).loss);
  for (size_t p = 0; p < engine.store().param_names().size(); ++p) {
    run.masters.push_back(engine.store().read_tensor(ParamId(p), "master"));
  }
  run.eval = engine.eval_batch(inputs);
  return run;
}

TEST(FusedHead, HasTheSameBitsOnAnyTeamAndOrder) {
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Trained want = train("always", dtype, 1, false);
    for (bool chaos : {false, true}) {
      Trained got = train("always", dtype, 2, chaos);
      EXPECT_EQ(got.losses, want.losses);
      EXPECT_EQ(got.masters, want.masters);
      EXPECT_EQ(got.eval, want.eval);
    }
  }
}

TEST(FusedHead, TrainsLikeStoredLogits) {
  const Attrs plain, smooth{{"label_smoothing", 0.1}, {"z_loss", 1e-3}};
  for (auto [dtype, loss] : {std::pair{DS_DTYPE_F32, plain},
                             {DS_DTYPE_BF16, plain},
                             {DS_DTYPE_F32, smooth},
                             {DS_DTYPE_BF16, smooth}}) {
    Trained stored = train("never", dtype, 1, false, loss),
            blocks = train("always", dtype, 1, false, loss);
    double allowed = dtype == DS_DTYPE_F32 ? 1e-5 : 2e-3;
    for (size_t s = 0; s < stored.losses.size(); ++s)
      EXPECT_NEAR(blocks.losses[s], stored.losses[s], allowed);
    EXPECT_NEAR(blocks.eval, stored.eval, allowed);
    EXPECT_LT(blocks.losses.back(), blocks.losses.front());
  }
}

TEST(FusedHead, TargetsBeyondTheVocabularyAreRefused) {
  Config c = make_config(0, 1, 1);
  auto comm = create_communicator("self", {});
  Engine engine(c, gpt(), *comm, {});
  std::vector<int32_t> tokens(kRows, 1), targets(kRows, kVocab);
  std::vector<InputView> inputs{{tokens.data(), DS_DTYPE_I32, kRows},
                                {targets.data(), DS_DTYPE_I32, kRows}};
  EXPECT_THROW(engine.train_batch(inputs), Error);
}

}  // namespace
}  // namespace ds::test
