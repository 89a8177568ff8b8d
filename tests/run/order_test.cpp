// Checks that runs that are resumed with other batch sizes use samples in the order of the formula
// in docs/reference/data.md. Also tests held-out losses on any layout, and padding rows.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "data/keys.h"
#include "data/masking.h"
#include "data/token_file.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/data.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

using Words = std::array<uint32_t, 4>;

// The order of samples as docs/reference/data.md defines it, computed without functions of the
// library.
struct Order {
  uint64_t seed = 0;

  Words words(int64_t epoch, uint32_t purpose, uint64_t index) const {
    Words c{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32) ^ (purpose << 16),
            static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)};
    auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
      c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
           static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }
  uint64_t draw(int64_t epoch, uint32_t purpose, uint64_t index) const {
    const Words w = words(epoch, purpose, index);
    return uint64_t{w[0]} << 32 | w[1];
  }
  int64_t permute(int64_t epoch, int64_t i, int64_t rows) const {
    int bits = 0;
    while ((rows - 1) >> bits != 0) ++bits;
    const int half = (bits + 1) / 2;
    const uint64_t mask = (uint64_t{1} << half) - 1;
    auto v = static_cast<uint64_t>(i);
    do {
      uint64_t left = v >> half, right = v & mask;
      for (uint64_t round = 0; round < 4; ++round) {
        const uint64_t next = left ^ (draw(epoch, 2, round << 40 | right) & mask);
        left = right;
        right = next;
      }
      v = left << half | right;
    } while (v >= static_cast<uint64_t>(rows));
    return static_cast<int64_t>(v);
  }
};

// Returns the token rows of all ranks in one step, in the order of leaves, and advances `at`.
std::vector<std::vector<int32_t>> rows_of_step(const Json& document, int ranks,
                                               const std::string& folder, CheckpointInfo& at) {
  const Config config = parse_config(document, ranks);
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(config.train_batch));
  CheckpointInfo after = at;
  for (int rank = 0; rank < ranks; ++rank) {
    RunData data(config, 256, TextUse::next, rank, ranks, folder, nullptr);
    data.go_on(at);
    for (int64_t micro = 0; micro < config.accumulation; ++micro) {
      std::vector<int32_t> tokens(static_cast<size_t>(config.micro_batch * config.sequence)),
          targets = tokens;
      EXPECT_TRUE(data.fill(at.step, static_cast<int32_t>(micro), {tokens, targets}));
      for (int64_t i = 0; i < config.micro_batch; ++i) {
        auto from = tokens.begin() + i * config.sequence;
        const int64_t leaf = micro * ranks + rank;
        rows[static_cast<size_t>(leaf * config.micro_batch + i)] = {from, from + config.sequence};
      }
    }
    data.end_step();
    after.client = data.place();
  }
  after.step = at.step + 1;
  at = after;
  return rows;
}

class DataOrder : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 dice(3);
    std::string lines, text;
    for (int i = 0; i < 37; ++i) {
      std::string line;
      for (uint32_t n = 3 + dice() % 8; n > 0; --n) line += static_cast<char>('a' + dice() % 14);
      lines += R"({"text": ")" + line + "\"}\n";
      text += line + " of a file\n";
    }
    write_file_atomic(folder_ / "a.jsonl", lines);
    write_file_atomic(folder_ / "a.txt", text);
  }

  Json config(const std::string& dir, const std::string& format,
              const std::string& changes = "{}") const {
    Json c = Json::parse(fmt::format(
        R"({{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
      "optimizer": {{"type": "SGD", "params": {{"lr": 0}}}},
      "model": {{"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 256,
      "positions": 30}},
      "data": {{"format": "{0}", "paths": ["{1}"], "tokenizer": "bytes", "heldout": 0}},
      "run": {{"dir": "{2}", "steps": 4, "sequence": 12, "seed": 5, "threads": 1, "sample_tokens": 0}}}})",
        format, folder_ / (format == "text" ? "a.txt" : "a.jsonl"), folder_ / dir));
    merge_patch(c, Json::parse(changes));
    return c;
  }

  static std::vector<StepRecord> rows(const std::string& run) {
    return read_metrics(run + "/metrics.csv").steps;
  }
  static std::string batch(int micro, int accumulation) {
    return fmt::format(R"("train_micro_batch_size_per_gpu": {}, "gradient_accumulation_steps": {})",
                       micro, accumulation);
  }

  // Takes steps with random batch sizes, each of which must continue where the previous one ended.
  void follow(unsigned seed) {
    std::mt19937 dice(seed);
    for (const char* format : {"text", "jsonl"}) {
      for (const char* packing : {"false", "true"}) {
        if (format == std::string("text") && packing == std::string("true")) continue;
        const Json document =
            config("x", format, fmt::format(R"({{"data": {{"packing": {}}}}})", packing));
        const Config whole = parse_config(document, 1);
        const std::string to = folder_ / fmt::format("{}{}{}", seed, format, packing);
        prepare_run_data(whole.get<DataKeys>(), 256, TextUse::next, to, nullptr);
        TokenFile file(to + "/train.tokens");
        const Order order{5};
        std::vector<int32_t> all(static_cast<size_t>(file.size()));
        file.copy(0, all);
        std::vector<std::vector<int32_t>> pieces;
        int64_t begin = 0;
        for (const DocumentEnd& end : file.ends()) {
          std::vector<int32_t> row(all.begin() + begin, all.begin() + end.end);
          row.resize(12);
          pieces.push_back(row);
          begin = end.end;
        }
        auto expected = [&](int64_t sample) {
          if (file.documents() > 0) {
            const auto count = static_cast<int64_t>(pieces.size());
            return pieces[static_cast<size_t>(
                order.permute(sample / count, sample % count, count))];
          }
          const int64_t size = file.size(), count = std::max<int64_t>(size / 12 - 1, 1),
                        epoch = sample / count;
          const auto room = static_cast<uint64_t>(std::min<int64_t>(12, size - count * 12));
          const int64_t at = static_cast<int64_t>(order.draw(epoch, 1, 0) % room) +
                             order.permute(epoch, sample % count, count) * 12;
          return std::vector<int32_t>(all.begin() + at, all.begin() + at + 12);
        };
        // Rows of a packed run without interruptions; the test does not recompute them.
        std::vector<std::vector<int32_t>> unbroken;
        CheckpointInfo at, straight;
        int64_t taken = 0;
        while (taken < 90) {
          const int ranks = 1 + static_cast<int>(dice() % 3),
                    micro = 1 + static_cast<int>(dice() % 2);
          Json now = document;
          merge_patch(now, Json::parse("{" + batch(micro, 1 + static_cast<int>(dice() % 2)) + "}"));
          for (const std::vector<int32_t>& row : rows_of_step(now, ranks, to, at)) {
            while (static_cast<int64_t>(unbroken.size()) <= taken)
              unbroken.push_back(rows_of_step(document, 1, to, straight)[0]);
            ASSERT_EQ(row, unbroken[static_cast<size_t>(taken)]) << format << " sample " << taken;
            if (packing == std::string("false")) {
              ASSERT_EQ(row, expected(taken)) << format << " sample " << taken;
            }
            ++taken;
          }
        }
        EXPECT_EQ(at.client.at("samples").integer(), taken);
        EXPECT_GT(taken, 2 * static_cast<int64_t>(pieces.size()));
      }
    }
  }

  test::TempFolder folder_;
};

// Each step continues where the previous one ended, whatever the batch size: the samples follow the
// formula. DS_SEEDS=1000:5000 draws batch sizes from seeds 1000 to 4999.
TEST_F(DataOrder, FollowsTheFormulaWithAnyBatch) {
  unsigned first_seed = 17, end_seed = 18;
  if (const char* wanted = std::getenv("DS_SEEDS")) {
    ASSERT_EQ(std::sscanf(wanted, "%u:%u", &first_seed, &end_seed), 2) << wanted;
  }
  for (unsigned seed = first_seed; seed < end_seed; ++seed) follow(seed);
}

// Checkpoints of whole runs keep the position: with a learning rate near 0, the loss reveals which
// samples a step had.
TEST_F(DataOrder, AResumedRunContinuesWithTheNextSample) {
  RunReport one = test::train_quietly(1, config("one", "jsonl", R"({"run": {"steps": 80}})"));
  std::vector<StepRecord> each = rows(one.folder);
  int64_t steps = 0, taken = 0;
  // First sample, number of samples, and micro-batch of each step.
  std::vector<std::array<int64_t, 3>> made;
  std::string folder;
  std::mt19937 dice(4);
  for (int phase = 0; phase < 5; ++phase) {
    const int ranks = 1 + static_cast<int>(dice() % 3),
              accumulation = 1 + static_cast<int>(dice() % 2);
    std::string changes =
        fmt::format(R"({{"run": {{"steps": {}}}, {}}})", steps + 3, batch(1, accumulation));
    Json c = phase == 0 ? config("part", "jsonl", changes) : Json::parse(changes);
    folder = test::train_quietly(ranks, c, folder).folder;
    for (int i = 0; i < 3; ++i, ++steps) {
      made.push_back({taken, ranks * accumulation, 1});
      taken += ranks * accumulation;
    }
  }
  ASSERT_LT(taken, 80);
  // A position computed from the current batch size would be wrong.
  ASSERT_NE(taken, steps * made.back()[1]);
  std::vector<StepRecord> got = rows(folder);
  ASSERT_EQ(got.size(), made.size());
  for (size_t i = 0; i < got.size(); ++i) {
    double sum = 0;
    for (int64_t k = 0; k < made[i][1]; ++k) sum += each[static_cast<size_t>(made[i][0] + k)].loss;
    EXPECT_NEAR(got[i].loss, sum / static_cast<double>(made[i][1]), 2e-6) << i;
  }
  auto refused = [&](const std::string& changes, const char* part) {
    TrainOptions options;
    options.quiet = 2;
    options.resume = folder;
    std::string message = test::train_error(Json::parse(changes), DS_ERROR_CONFIG, options);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused(R"({"run": {"sequence": 11}})", "has 12, but the configuration has 11");
  refused(R"({"run": {"seed": 6}})", "run.seed: a resumed run");
  refused(R"({"data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
             "dynamic_batching": {"enabled": true, "max_tokens": 30}}}})",
          "dynamic_batching.enabled: a resumed run");
}

// Groups of dynamic batching continue in the same way, with the factor of each step's learning
// rate.
TEST_F(DataOrder, DynamicBatchesContinueWithTheNextGroup) {
  const std::string on = R"("data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
      "dynamic_batching": {"enabled": true, "max_tokens": 25, "lr_scaling_method": "linear"}}})";
  const std::string rate = R"("optimizer": {"params": {"lr": 1e-30}})";
  RunReport one = test::train_quietly(
      1, config("one", "jsonl", "{" + on + ", " + rate + R"(, "run": {"steps": 40}})"));
  std::vector<StepRecord> each = rows(one.folder);
  // The losses repeat when the list of groups starts again.
  size_t groups = 1;
  while (std::abs(each[groups].loss - each[0].loss) > 1e-7) ++groups;
  ASSERT_GT(groups, 8u);
  ASSERT_LT(groups, 20u);
  std::string folder;
  size_t next = 0, steps = 0;
  for (auto [ranks, accumulation] : {std::pair{1, 3}, {2, 2}, {3, 1}, {1, 1}, {2, 1}, {1, 4}}) {
    const auto count = static_cast<size_t>(ranks * accumulation);
    std::string changes =
        fmt::format(R"({{"run": {{"steps": {}}}, {}}})", steps + 3, batch(1, accumulation));
    Json c = Json::parse(changes);
    if (folder.empty()) {
      c = config("part", "jsonl", "{" + on + ", " + rate + "}");
      merge_patch(c, Json::parse(changes));
    }
    folder = test::train_quietly(ranks, c, folder).folder;
    std::vector<StepRecord> got = rows(folder);
    for (int i = 0; i < 3; ++i, ++steps) {
      if (groups - next % groups < count) next = 0;
      double loss = 0, factor = 0;
      for (size_t g = next; g < next + count; ++g) {
        loss += each[g].loss / static_cast<double>(count);
        factor += each[g].lr / static_cast<double>(count);
      }
      EXPECT_NEAR(got[steps].loss, loss, 2e-6) << steps;
      EXPECT_NEAR(got[steps].lr / factor, 1, 1e-6) << steps;
      next = (next + count) % groups;
    }
  }
}

// In a checkpoint of a version that did not count samples, the position is the number of steps
// times the run's own batch size.
TEST_F(DataOrder, AnOldCheckpointHasThePositionOfItsStepsTimesItsBatch) {
  const std::string to = folder_ / "old";
  prepare_run_data(parse_config(config("x", "jsonl"), 1).get<DataKeys>(), 256, TextUse::next, to,
                   nullptr);
  CheckpointInfo old;
  old.step = 7;
  old.config = Json::parse(R"({"config": {"train_batch_size": 3}})");
  RunData data(parse_config(config("x", "jsonl"), 1), 256, TextUse::next, 0, 1, to, nullptr);
  data.go_on(old);
  EXPECT_EQ(data.samples(), 21);
  old.client = Json::parse(R"({"samples": -1, "next": 2})");
  EXPECT_THROW(data.go_on(old), Error);
}

// Every held-out target counts once: the bits are equal on any number of ranks, and the value is
// equal for any micro-batch, with and without packing. The loss is also compared with a training
// loss over the same targets.
TEST_F(DataOrder, HeldOutLossCountsEveryTargetOnceOnAnyLayout) {
  auto heldout = [&](const char* format, int ranks, int micro, const std::string& more) {
    static int serial = 0;
    Json c = config("h" + std::to_string(serial++), format,
                    R"({"data": {"heldout": 0.3}, "run": {"steps": 1}})");
    merge_patch(c, Json::parse("{" + batch(micro, 1) + more + "}"));
    return test::train_quietly(ranks, c);
  };
  const std::string packed = R"(, "data": {"packing": "isolated"})";
  std::map<std::string, double> of;
  for (const char* format : {"text", "jsonl"}) {
    std::set<double> bits;
    for (int ranks : {1, 2, 3}) bits.insert(heldout(format, ranks, 1, "").heldout_loss);
    ASSERT_EQ(bits.size(), 1u) << format;
    of[format] = *bits.begin();
    for (int micro : {2, 5})
      EXPECT_NEAR(heldout(format, 2, micro, "").heldout_loss, of[format], 1e-6);
  }
  RunReport report = heldout("jsonl", 2, 2, packed);
  EXPECT_NEAR(report.heldout_loss, of["jsonl"], 1e-6);
  // run.eval_samples limits the number of rows, independently of the layout.
  const std::string capped = R"(, "run": {"eval_samples": 3})";
  const double some = heldout("jsonl", 1, 1, capped).heldout_loss;
  EXPECT_EQ(some, heldout("jsonl", 3, 1, capped).heldout_loss);
  EXPECT_GT(std::abs(some - of["jsonl"]), 1e-5);

  TokenFile file(report.folder + "/data/heldout.tokens");
  Json c = config("each", "jsonl");
  merge_patch(c,
              Json::parse(fmt::format(
                  R"({{"data": {{"format": "tokens", "paths": ["{}"]}}, "run": {{"steps": {}}}}})",
                  report.folder + "/data/heldout.tokens", file.documents())));
  std::vector<StepRecord> each = rows(test::train_quietly(1, c).folder);
  const Order order{5};
  double sum = 0, targets = 0;
  const std::vector<DocumentEnd> ends = file.ends();
  for (int64_t i = 0; i < file.documents(); ++i) {
    const auto row = static_cast<size_t>(order.permute(0, i, file.documents()));
    const int64_t length = ends[row].end - (row == 0 ? 0 : ends[row - 1].end);
    sum += each[static_cast<size_t>(i)].loss * static_cast<double>(length - 1);
    targets += static_cast<double>(length - 1);
  }
  EXPECT_NEAR(of["jsonl"], sum / targets, 1e-6);
}

// Only data.packing decides which documents of a packed sample see each other, even if the graph
// could separate documents.
TEST_F(DataOrder, PackingAloneDecidesWhichDocumentsAreSeparate) {
  const std::string curriculum =
      R"("curriculum_learning": {"enabled": true, "curriculum_type": "seqlen",
      "min_difficulty": 24, "max_difficulty": 24, "schedule_type": "fixed_discrete",
      "schedule_config": {"difficulty": [24, 24], "max_step": [1]}})";
  std::vector<double> joined, isolated;
  int serial = 0;
  for (const char* packing : {"true", "\"isolated\""}) {
    for (const std::string& more :
         {std::string(), curriculum, std::string(R"("model": {"documents": true})")}) {
      Json c = config("p" + std::to_string(serial++), "jsonl");
      merge_patch(c, Json::parse(fmt::format(
                         R"({{{}, "data": {{"packing": {}}}, "run": {{"sequence": 24}}}})",
                         batch(2, 1), packing)));
      if (!more.empty()) merge_patch(c, Json::parse("{" + more + "}"));
      (packing[0] == 't' ? joined : isolated)
          .push_back(rows(test::train_quietly(1, c).folder)[0].loss);
    }
  }
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_NEAR(joined[i], joined[0], 1e-6) << i;
    EXPECT_NEAR(isolated[i], isolated[0], 1e-6) << i;
  }
  EXPECT_GT(std::abs(joined[0] - isolated[0]), 1e-5);
}

// The amount of padding affects neither Mixtral's router loss and its gradient nor the token count
// of a step.
TEST_F(DataOrder, PaddingHasNoEffect) {
  const std::string model = folder_ / "mixtral";
  std::filesystem::copy(std::string(DS_SOURCE_DIR) + "/tests/data/models/mixtral", model);
  Json own = Json::parse(read_file(model + "/config.json"));
  own.set("router_aux_loss_coef", 1.0);
  write_file_atomic(model + "/config.json", own.dump());
  auto run = [&](const std::string& name, int sequence, const std::string& more) {
    Json c = config(name, "jsonl", R"({"model": null})");
    merge_patch(c,
                Json::parse(fmt::format(
                    R"({{{}, "model": {{"folder": "{}"}}, "optimizer": {{"params": {{"lr": 0.1}}}},
        "run": {{"sequence": {}}}, "data": {{"heldout": 0.2}}}})",
                    batch(2, 2), model, sequence)));
    merge_patch(c, Json::parse(more));
    return test::train_quietly(1, c);
  };
  const std::string dynamic =
      R"({"data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
      "dynamic_batching": {"enabled": true, "max_tokens": 12, "max_batch_size": 1, "lr_scaling_method": "none",
      "sequence_picking_order": "dataloader"}}}})";
  RunReport narrow = run("narrow", 12, "{}");
  std::vector<StepRecord> a = rows(narrow.folder);
  for (const char* more : {"{}", R"({"recompute": "layers"})", R"({"model": {"documents": true}})",
                           R"({"model": {"mask": true}})"}) {
    static int serial = 0;
    RunReport wide = run("wide" + std::to_string(serial++), 30, more);
    std::vector<StepRecord> b = rows(wide.folder);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i].loss, b[i].loss, 5e-6) << more << " " << i;
      EXPECT_NEAR(a[i].grad_norm / b[i].grad_norm, 1, 1e-4) << more << " " << i;
      EXPECT_NEAR(a[i].tokens_per_second * a[i].seconds, b[i].tokens_per_second * b[i].seconds,
                  1e-3);
      EXPECT_LT(a[i].tokens_per_second * a[i].seconds, 4 * 12);
    }
    EXPECT_NEAR(narrow.heldout_loss, wide.heldout_loss, 5e-6);
  }
  // The router loss is about 2 here, and is not included in the held-out loss.
  EXPECT_LT(narrow.heldout_loss + 1, a.back().loss);
  // The micro-batches of one step have equal lengths; shorter ones are padded.
  std::vector<StepRecord> c = rows(run("dynamic", 12, dynamic).folder);
  EXPECT_TRUE(std::isfinite(c.back().loss));
}

}  // namespace
}  // namespace ds
