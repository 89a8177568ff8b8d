#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "checkpoint/model_folder.h"
#include "compile/decode_plan.h"
#include "core/base/error.h"
#include "core/config/parse_config.h"
#include "diagnostics/golden.h"
#include "engine/engine.h"
#include "generation/generate.h"
#include "generation/generation_engine.h"
#include "passes/decode_graph.h"
#include "support/errors.h"
#include "support/hf_golden.h"
#include "support/interpret.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

constexpr int64_t kPositions = 14;

std::vector<std::string> causal_models() {
  std::vector<std::string> names = golden_models();
  std::erase(names, "bert");
  return names;
}

HfModel model_of(const std::string& name, int64_t positions = kPositions) {
  return build_hf_model(golden_path(name), positions, positions);
}

Config config_of(int world, int stage = 0, DType compute = DS_DTYPE_F32) {
  Json document, zero;
  document.set("train_micro_batch_size_per_gpu", 1);
  zero.set("stage", stage);
  zero.set("stage3_param_persistence_threshold", 0);
  zero.set("reduce_bucket_size", 5000);
  document.set("zero_optimization", std::move(zero));
  Config config = parse_config(document, world);
  config.compute = compute;
  return config;
}

std::vector<int32_t> some_tokens(uint64_t seed) {
  Tensor ids = random_ids(kPositions, 90, seed);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < kPositions; ++i) out.push_back(static_cast<int32_t>(ids.at(i)));
  return out;
}

std::unique_ptr<GenerationEngine> engine_of(const std::string& name, Communicator& comm,
                                            int stage = 0, int64_t chunk = 64,
                                            int64_t positions = kPositions,
                                            DType compute = DS_DTYPE_F32) {
  HfModel model = model_of(name, positions);
  EngineOptions options;
  options.programs.decode = {positions, model.position_offset, chunk, true};
  auto engine = std::make_unique<GenerationEngine>(config_of(comm.size(), stage, compute),
                                                   model.graph, comm, options);
  engine->load_weights(golden_path(name));
  return engine;
}

// Returns the logits after every token, computed by a full forward pass over the text.
std::vector<std::vector<float>> full_logits(Engine& engine, const HfModel& model,
                                            const std::vector<int32_t>& text) {
  std::vector<int32_t> none(text.size(), -100), ones(text.size(), 1), rows(text.size());
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<int32_t>(model.position_offset) + static_cast<int32_t>(i);
  std::vector<InputView> inputs;
  for (ValueId in : model.graph.inputs) {
    const std::string& input = model.graph.values[in].name;
    const auto& data = input == "tokens"    ? text
                       : input == "targets" ? none
                       : input == "mask"    ? ones
                                            : rows;
    inputs.push_back({data.data(), DS_DTYPE_I32, static_cast<int64_t>(data.size())});
  }
  std::vector<float> all = engine.infer(inputs).values;
  std::vector<std::vector<float>> out;
  size_t vocabulary = all.size() / text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    out.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i * vocabulary),
                     all.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocabulary));
  }
  return out;
}

std::vector<std::vector<float>> full_logits(const std::string& name,
                                            const std::vector<int32_t>& text, Communicator& comm,
                                            DType compute = DS_DTYPE_F32) {
  HfModel model = model_of(name);
  Engine engine(config_of(1, 0, compute), model.graph, comm, {});
  engine.checkpoints().load_weights(golden_path(name));
  return full_logits(engine, model, text);
}

float distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class Decode : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Decode, testing::ValuesIn(causal_models()));

TEST_P(Decode, CachedLogitsEqualThoseOfFullPassesInAnyChunks) {
  auto comm = create_communicator("self", {});
  std::vector<int32_t> text = some_tokens(3);
  std::vector<std::vector<float>> want = full_logits(GetParam(), text, *comm);
  for (int64_t chunk : {1, 3, 64}) {
    auto engine = engine_of(GetParam(), *comm, 0, chunk);
    std::span<const int32_t> all(text);
    // In the second pass, the caches hold more tokens than are reused.
    for (size_t first : {size_t{0}, size_t{5}}) {
      EXPECT_LT(distance(engine->generation().decode(all.first(first + 6), 0), want[first + 5]),
                2e-5f);
      for (size_t i = first + 6; i < text.size(); ++i) {
        ASSERT_LT(distance(engine->generation().decode(all.subspan(i, 1), static_cast<int64_t>(i)),
                           want[i]),
                  2e-5f)
            << "chunk " << chunk << " token " << i;
      }
    }
  }
}

// Returns |a - b| / |b|.
double relative(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double off = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += std::pow(a[i] - b[i], 2);
    size += std::pow(b[i], 2);
  }
  return std::sqrt(off / size);
}

// The cached and the full computation round different values to bf16 (such as attention weights)
// and sum in different orders.
TEST_P(Decode, CachedLogitsInBf16EqualThoseOfFullPassesInBf16) {
  // Bounds the accumulated effect of rounding errors of 2^-9 over a few layers.
  constexpr double kRounding = 0.05;
  auto comm = create_communicator("self", {});
  std::vector<int32_t> text = some_tokens(3);
  std::vector<std::vector<float>> want = full_logits(GetParam(), text, *comm, DS_DTYPE_BF16);
  auto engine = engine_of(GetParam(), *comm, 0, 3, kPositions, DS_DTYPE_BF16);
  std::span<const int32_t> all(text);
  for (size_t i = 5; i < text.size(); ++i) {
    std::vector<float> got =
        i == 5 ? engine->generation().decode(all.first(6), 0)
               : engine->generation().decode(all.subspan(i, 1), static_cast<int64_t>(i));
    EXPECT_LT(relative(got, want[i]), kRounding) << "token " << i;
    EXPECT_GT(relative(got, want[i - 1]), 8 * kRounding) << "token " << i;
  }
}

// Configurations without recorded numbers. They have windows shorter than the text, softcaps, rope
// over half a head, and scaled rope.
constexpr std::array<const char*, 4> kMoreFamilies{
    R"({"model_type": "mistral", "vocab_size": 90, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "initializer_range": 0.5, "sliding_window": 4,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}})",
    R"({"model_type": "phi3", "vocab_size": 90, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "initializer_range": 0.5, "sliding_window": 7})",
    R"({"model_type": "gemma2", "vocab_size": 90, "hidden_size": 16, "intermediate_size": 24, "head_dim": 4,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 4,
        "initializer_range": 0.5, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 4,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 30.0})",
    R"({"model_type": "gpt_neox", "vocab_size": 90, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "rotary_pct": 0.5, "hidden_act": "gelu",
        "initializer_range": 0.5, "use_parallel_residual": true})"};

class DecodeFamilies : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, DecodeFamilies, testing::ValuesIn(kMoreFamilies));

TEST_P(DecodeFamilies, CachedLogitsEqualThoseOfFullPasses) {
  auto comm = create_communicator("self", {});
  HfModel model = hf_model(Json::parse(GetParam(), "config.json"), kPositions, kPositions);
  EngineOptions options;
  options.programs.decode = {kPositions, model.position_offset, 3};
  Engine engine(config_of(1), model.graph, *comm, options);
  std::vector<int32_t> text = some_tokens(6);
  std::vector<std::vector<float>> want = full_logits(engine, model, text);
  EXPECT_LT(distance(engine.generation().decode(std::span(text).first(5), 0), want[4]), 5e-5f);
  for (size_t i = 5; i < text.size(); ++i) {
    EXPECT_LT(
        distance(engine.generation().decode(std::span(text).subspan(i, 1), static_cast<int64_t>(i)),
                 want[i]),
        5e-5f)
        << "token " << i;
  }
}

// Configurations whose ropes depend on the length of the text. Beyond 6 tokens all use other
// rotations; all but longrope then use a different rotation for each length.
constexpr std::array<const char*, 3> kLengthRopes{
    R"({"model_type": "phi3", "vocab_size": 90, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "initializer_range": 0.5, "pad_token_id": null,
        "max_position_embeddings": 24, "original_max_position_embeddings": 6,
        "rope_scaling": {"type": "longrope", "short_factor": [1, 1.2, 2, 3], "long_factor": [4, 1, 1.5, 9]}})",
    R"({"model_type": "llama", "vocab_size": 90, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.5,
        "max_position_embeddings": 6, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})",
    R"({"model_type": "gpt_neox", "vocab_size": 90, "hidden_size": 32, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "rotary_pct": 0.3125, "hidden_act": "gelu",
        "initializer_range": 0.5, "max_position_embeddings": 6,
        "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})"};

class DecodeByLength : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kSwitch = 6;

  HfModel model(int64_t seq) const {
    return hf_model(Json::parse(GetParam(), "config.json"), seq, seq);
  }

  // Returns an engine with randomly initialized parameters. If by_length is set, ropes depend on
  // the length of the text, otherwise on a fixed length of kPositions.
  std::unique_ptr<Engine> engine(Communicator& comm, int stage = 0, int64_t chunk = 64,
                                 bool by_length = true, DType compute = DS_DTYPE_F32) const {
    EngineOptions options;
    options.programs.decode = {kPositions, 0, chunk, by_length};
    return std::make_unique<Engine>(config_of(comm.size(), stage, compute), model(kPositions).graph,
                                    comm, options);
  }

  // Returns the logits after the first `length` tokens, by a forward pass of a graph with that
  // length.
  std::vector<float> forward(Communicator& comm, const std::vector<int32_t>& text, int64_t length,
                             DType compute = DS_DTYPE_F32) const {
    HfModel whole = model(length);
    Engine engine(config_of(1, 0, compute), whole.graph, comm, {});
    std::vector<int32_t> part(text.begin(), text.begin() + length);
    return full_logits(engine, whole, part).back();
  }

  // Decodes the first `length` tokens of the text. Passes the engine only the tokens that cannot be
  // reused, and always the last one.
  template <typename E>
  static std::vector<float> grown(E& engine, const std::vector<int32_t>& text, int64_t length) {
    int64_t first = std::min(engine.generation().reusable(length), length - 1);
    return engine.generation().decode(
        std::span(text).subspan(static_cast<size_t>(first), static_cast<size_t>(length - first)),
        first);
  }

  bool grows() const { return std::string(GetParam()).find("dynamic") != std::string::npos; }
};
INSTANTIATE_TEST_SUITE_P(All, DecodeByLength, testing::ValuesIn(kLengthRopes));

TEST_P(DecodeByLength, EveryLengthEqualsAFullPass) {
  auto comm = create_communicator("self", {});
  std::vector<int32_t> text = some_tokens(8);
  std::vector<std::vector<float>> want{{}};
  for (int64_t length = 1; length <= kPositions; ++length)
    want.push_back(forward(*comm, text, length));
  for (int64_t chunk : {1, 3, 64}) {
    for (int64_t prompt : {1, 2, 5, 6, 7, 11}) {
      auto cached = engine(*comm, 0, chunk);
      for (int64_t length = prompt; length <= kPositions; ++length) {
        ASSERT_LT(distance(grown(*cached, text, length), want[static_cast<size_t>(length)]), 5e-5f)
            << "chunk " << chunk << " prompt " << prompt << " length " << length;
        EXPECT_EQ(cached->generation().reusable(length), length);
        bool same = length < kSwitch || (length > kSwitch && !grows());
        EXPECT_EQ(cached->generation().reusable(length + 1), same ? length : 0) << length;
      }
    }
  }
}

// Keys computed for a shorter text are refused. They would change the logits by more than the
// tolerance.
TEST_P(DecodeByLength, StaleKeysAreRefused) {
  auto comm = create_communicator("self", {});
  std::vector<int32_t> text = some_tokens(8);
  auto cached = engine(*comm), fixed = engine(*comm, 0, 64, false);
  std::span<const int32_t> all(text);
  cached->generation().decode(all.first(kSwitch), 0);
  std::string message =
      message_of([&] { cached->generation().decode(all.subspan(kSwitch, 1), kSwitch); },
                 DS_ERROR_INVALID_ARGUMENT);
  expect_names(message, {"first must be 0, got 6", "text of 7 tokens", "text of 6 tokens"});
  std::vector<float> beyond = forward(*comm, text, kSwitch + 1);
  // The refused call has not changed the caches.
  EXPECT_LT(distance(cached->generation().decode(all.first(kSwitch + 1), 0), beyond), 5e-5f);
  // A shorter text that consists of the first tokens of the longer one is refused as well.
  expect_names(message_of([&] { cached->generation().decode(all.subspan(2, 2), 2); },
                          DS_ERROR_INVALID_ARGUMENT),
               {"got 2", "text of 4 tokens", "text of 7 tokens"});
  // Without by_length, as in a run, the rotation of the run's sequence length is used for all
  // lengths.
  std::vector<float> run = fixed->generation().decode(all.first(kSwitch), 0);
  EXPECT_GT(distance(run, forward(*comm, text, kSwitch)), 1e-3f);
  fixed->generation().decode(all.subspan(kSwitch, 1), kSwitch);
  std::vector<float> last = fixed->generation().decode(all.subspan(kSwitch + 1), kSwitch + 1);
  EXPECT_LT(distance(last, forward(*comm, text, kPositions)), 5e-5f);
}

TEST_P(DecodeByLength, EqualsFullPassesInBf16AndOnShards) {
  // This is the bound of CachedLogitsInBf16EqualThoseOfFullPassesInBf16.
  constexpr double kRounding = 0.05;
  auto comm = create_communicator("self", {});
  std::vector<int32_t> text = some_tokens(8);
  auto half = engine(*comm, 0, 3, true, DS_DTYPE_BF16), whole = engine(*comm);
  std::vector<std::vector<float>> logits;
  for (int64_t length : {5, 6, 7, 8}) {
    EXPECT_LT(relative(grown(*half, text, length), forward(*comm, text, length, DS_DTYPE_BF16)),
              kRounding)
        << length;
    logits.push_back(grown(*whole, text, length));
  }
  run_ranks(2, [&](Communicator& pair) {
    auto shards = engine(pair, 3);
    for (int64_t length : {5, 6, 7, 8}) {
      EXPECT_EQ(grown(*shards, text, length), logits[static_cast<size_t>(length - 5)]) << length;
    }
  });
}

// Compares greedy decoding with the tokens recorded from Transformers.
void expect_recorded(const std::string& name, Communicator& comm, int stage) {
  Golden golden(golden_path(name));
  ASSERT_FALSE(golden.greedy.empty());
  for (const GoldenText& text : golden.greedy) {
    auto count = static_cast<int64_t>(text.tokens.size());
    auto length = static_cast<int64_t>(text.prompt.size()) + count;
    auto engine = engine_of(name, comm, stage, 4, length);
    EXPECT_EQ(generate(engine->generation(), text.prompt, {count}), text.tokens);
  }
}

TEST_P(Decode, GreedyTextsEqualTheRecording) {
  auto comm = create_communicator("self", {});
  expect_recorded(GetParam(), *comm, 0);
  run_ranks(2, [&](Communicator& pair) { expect_recorded(GetParam(), pair, 3); });
}

// The rotations change beyond 8 tokens: one recorded prompt is shorter, the other longer.
TEST(Decode, GreedyTextsAcrossAChangeOfRotationsEqualTheRecording) {
  auto comm = create_communicator("self", {});
  for (const char* name : {"phi3_longrope", "llama_dynamic"}) {
    SCOPED_TRACE(name);
    expect_recorded(name, *comm, 0);
    run_ranks(2, [&](Communicator& pair) { expect_recorded(name, pair, 3); });
  }
}

TEST_P(Decode, ShardsOnTwoRanksGiveTheSameBits) {
  auto comm = create_communicator("self", {});
  std::vector<int32_t> text = some_tokens(4);
  std::vector<float> want = engine_of(GetParam(), *comm)->generation().decode(text, 0);
  run_ranks(2, [&](Communicator& pair) {
    auto engine = engine_of(GetParam(), pair, 3);
    EXPECT_EQ(engine->generation().decode(text, 0), want);
    EXPECT_GT(engine->runtime().ledger()["all_gather"].calls, 0);
  });
}

TEST(Decode, RefusesTextsThatDoNotFit) {
  auto comm = create_communicator("self", {});
  auto engine = engine_of("gpt2", *comm);
  std::vector<int32_t> text(kPositions - 2, 1), high{1, 500};
  auto refusal = [&](const std::function<void()>& body) {
    return message_of(body, DS_ERROR_INVALID_ARGUMENT);
  };
  expect_names(refusal([&] { generate(engine->generation(), text, {3}); }), {"12", "3", "14"});
  expect_names(refusal([&] { generate(engine->generation(), {}, {3}); }), {"at least one", "none"});
  expect_names(refusal([&] { engine->generation().decode(high, 0); }), {"token 1", "127", "500"});
  expect_names(refusal([&] { engine->generation().decode(text, 1); }), {"0 to 0", "got 1"});
  engine->generation().decode(text, 0);
  expect_names(refusal([&] { engine->generation().decode(text, 12); }), {"14", "24"});
  // With `roll`, a text may be longer than the caches.
  EXPECT_EQ(generate(engine->generation(), text, {9, {}, {}, true}).size(), 9u);
}

TEST(Decode, NeedsExactlyTheMemoryOfItsPlan) {
  auto comm = create_communicator("self", {});
  HfModel model = model_of("gpt2");
  EngineOptions options;
  options.programs.decode = {kPositions, model.position_offset};
  Config config = config_of(1);
  int64_t total = compile_generation(model.graph, config, options.programs.decode, 0, 1, {})
                      .memory.total(Tier::device);
  config.memory_budget.device = total;
  EXPECT_EQ(GenerationEngine(config, model.graph, *comm, options).runtime().mapped(Tier::device),
            total);
  config.memory_budget.device = total - 1;
  std::string message = message_of([&] { GenerationEngine(config, model.graph, *comm, options); },
                                   DS_ERROR_OUT_OF_MEMORY);
  expect_names(message,
               {"memory_budget", std::to_string(total), fmt::format("  budget {}\n", total - 1),
                "parameters", "activations and buffers", "nvme"});
}

TEST(Decode, EndsAtAnEndToken) {
  auto comm = create_communicator("self", {});
  auto engine = engine_of("gpt2", *comm);
  std::vector<int32_t> text{1, 2, 3}, all = generate(engine->generation(), text, {8});
  EXPECT_EQ(generate(engine->generation(), text, {8, {}, {all[0]}}), std::vector<int32_t>{all[0]});
}

TEST(Decode, GraphRefusesRowsThatSeeLaterRows) {
  HfModel model = model_of("bert");
  std::string message = message_of(
      [&] {
        decode_graph(model.graph, {kPositions, 4});
      },
      DS_ERROR_UNSUPPORTED);
  expect_names(message, {"attention", "later rows"});
}

// Caches share memory with the activations of a step. Any other work in between ends the text, and
// the text does not affect training.
TEST(Decode, TextsAndStepsShareMemoryButNoBits) {
  auto comm = create_communicator("self", {});
  HfModel model = model_of("gpt2");
  std::vector<int32_t> text = some_tokens(5);
  InputView ids{text.data(), DS_DTYPE_I32, kPositions};
  const std::vector<InputView> batch{ids, ids};
  for (int stage : {0, 3}) {
    for (std::optional<uint64_t> chaos : {std::optional<uint64_t>(), {1}, {8}}) {
      EngineOptions plain, with;
      plain.chaos_seed = with.chaos_seed = chaos;
      with.programs.decode = {kPositions, model.position_offset, 3};
      Config config = config_of(1, stage);
      config.device = chaos ? "cpu" : "separate";
      Engine engine(config, model.graph, *comm, with), alone(config, model.graph, *comm, plain);
      for (const Buffer& buffer : engine.plan().program(ProgramKind::decode).buffers)
        EXPECT_EQ(buffer.kept(), buffer.holds == Holds::cache) << buffer.name;
      for (Engine* e : {&engine, &alone}) e->checkpoints().load_weights(golden_path("gpt2"));
      for (int step = 0; step < 3; ++step) {
        const std::vector<float> whole = engine.generation().decode(text, 0);
        engine.generation().decode(std::span(text).first(5), 0);
        EXPECT_EQ(engine.generation().reusable(6), 5);
        const double loss = engine.eval_batch(batch);
        EXPECT_EQ(engine.generation().reusable(6), 0) << "eval has run where the caches are";
        EXPECT_THROW(engine.generation().decode(std::span(text).subspan(5, 1), 5), Error);
        EXPECT_EQ(engine.generation().decode(text, 0), whole);
        EXPECT_EQ(alone.eval_batch(batch), loss);
        EXPECT_EQ(engine.train_batch(batch).loss, alone.train_batch(batch).loss);
      }
      for (ParamId p : engine.store().param_names().ids())
        EXPECT_EQ(engine.store().read_tensor(p, "param"), alone.store().read_tensor(p, "param"));
    }
  }
}

TEST(Decode, TrainingEnginesContinueWithTheirNewestParameters) {
  auto comm = create_communicator("self", {});
  HfModel model = model_of("gpt2");
  EngineOptions options;
  options.programs.decode.positions = kPositions;
  Engine engine(config_of(1), model.graph, *comm, options);
  engine.checkpoints().load_weights(golden_path("gpt2"));
  std::vector<int32_t> text = some_tokens(5);
  std::vector<float> before = engine.generation().decode(text, 0);
  EXPECT_LT(distance(before, engine_of("gpt2", *comm)->generation().decode(text, 0)), 1e-6f);
  InputView ids{text.data(), DS_DTYPE_I32, kPositions};
  engine.train_batch(std::vector<InputView>{ids, ids});
  // The caches are stale, because a step has used their memory.
  EXPECT_THROW(engine.generation().decode(std::span(text).last(1), kPositions - 1), Error);
  EXPECT_GT(distance(engine.generation().decode(text, 0), before), 1e-4f);
}

}  // namespace
}  // namespace ds::test
