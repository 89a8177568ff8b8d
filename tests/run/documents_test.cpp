// Tests runs on jsonl files and on token files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/payload.h"
#include "core/base/error.h"
#include "data/token_file.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

class DocumentRun : public testing::Test {
 protected:
  void SetUp() override {
    make_folders(folder_ / "chats");
    std::string lines;
    static const char* words[] = {"tide", "bell", "lantern", "rope", "mast"};
    for (int i = 0; i < 60; ++i) {
      std::string word = words[i % 5];
      lines += R"({"messages": [{"role": "user", "content": "spell )" + word + " " +
               std::to_string(i) + R"("}, {"role": "assistant", "content": ")" + word + R"("}]})" +
               "\n";
    }
    write_file_atomic(folder_ / "chats/a.jsonl", lines);
    write_file_atomic(folder_ / "chat.jinja",
                      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}\n{% endfor %}"
                      "{% if add_generation_prompt %}<a>{% endif %}");
  }

  Json config(const std::string& dir, int steps, const std::string& changes = "{}") const {
    Json c = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "reproducible": true,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.005}},
      "zero_optimization": {"stage": 2},
      "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2},
      "data": {"format": "jsonl", "heldout": 0.1},
      "run": {"sequence": 32, "eval_samples": 4, "seed": 5, "threads": 1, "sample_tokens": 8}
    })");
    Json patch, run, data;
    run.set("dir", folder_ / dir);
    run.set("steps", steps);
    data.set("paths", Json::Array{folder_ / "chats"});
    data.set("chat_template", folder_ / "chat.jinja");
    patch.set("run", run);
    patch.set("data", data);
    merge_patch(c, patch);
    merge_patch(c, Json::parse(changes));
    return c;
  }

  static RunReport train_on(int ranks, Json config, TrainOptions options = {}) {
    if (options.resume.empty() || ranks > 1) {
      Json leaves;
      leaves.set("gradient_accumulation_steps", 4 / ranks);
      merge_patch(config, leaves);
    }
    options.quiet = 2;
    return test::train_on(ranks, config, options);
  }

  static std::string error_of(const Json& config, ds_status status = DS_ERROR_CONFIG) {
    TrainOptions options;
    options.quiet = 2;
    return test::train_error(config, status, options);
  }

  static std::vector<StepRecord> rows(const RunReport& report) {
    return read_metrics(report.folder + "/metrics.csv").steps;
  }

  // Trains uninterrupted runs on several numbers of ranks, and a run that is saved and resumed on
  // other numbers of ranks. All must have the same bits.
  void expect_same_bits(const std::string& changes) {
    std::set<std::string> hashes;
    for (int ranks : {1, 2, 4}) {
      hashes.insert(payload_hash(
          train_on(ranks, config("r" + std::to_string(ranks), 6, changes)).checkpoint));
    }
    RunReport part = train_on(2, config("part", 2, changes));
    for (auto [ranks, steps] : {std::pair{4, 4}, {1, 6}}) {
      TrainOptions options;
      options.resume = part.folder;
      Json patch = Json::parse(R"({"run": {}})"), run;
      run.set("steps", steps);
      patch.set("run", run);
      patch.set("gradient_accumulation_steps", 4 / ranks);
      part = train_on(ranks, patch, options);
    }
    hashes.insert(payload_hash(part.checkpoint));
    EXPECT_EQ(hashes.size(), 1u);
  }

  test::TempFolder folder_;
};

TEST_F(DocumentRun, LearnsAnswers) {
  RunReport report = train_on(2, config("a", 60));
  EXPECT_EQ(report.end, RunEnd::finished);
  EXPECT_LT(report.heldout_loss, 0.5 * rows(report).front().loss);
  TokenFile text(report.folder + "/data/train.tokens");
  EXPECT_TRUE(text.marked());
  EXPECT_GT(text.documents(), 40);
  // A sample continues one of the questions.
  ASSERT_FALSE(report.samples.empty());
  EXPECT_TRUE(report.samples[0].prompt.starts_with("<u>spell ")) << report.samples[0].prompt;
}

TEST_F(DocumentRun, SameBitsOverRanksAndResume) { expect_same_bits("{}"); }

TEST_F(DocumentRun, ATextInTheConfigurationTrainsAsAFile) {
  Json given = config("text", 2), data, patch;
  data.set("text", read_file(folder_ / "chats/a.jsonl"));
  data.set("paths", Json());
  patch.set("data", data);
  merge_patch(given, patch);
  const RunReport text = train_on(2, given), file = train_on(1, config("file", 2));
  EXPECT_EQ(payload_hash(text.checkpoint), payload_hash(file.checkpoint));
  TrainOptions options;
  options.resume = text.folder;
  EXPECT_EQ(train_on(1, Json::parse(R"({"run": {"steps": 3}})"), options).end, RunEnd::finished);
}

TEST_F(DocumentRun, SameBitsWithPacking) {
  expect_same_bits(R"({"data": {"packing": true}, "run": {"sequence": 64}})");
}

TEST_F(DocumentRun, SameBitsWithACurriculum) {
  expect_same_bits(
      R"({"curriculum_learning": {"enabled": true, "curriculum_type": "seqlen", "min_difficulty": 8,
      "max_difficulty": 32, "schedule_type": "fixed_linear",
      "schedule_config": {"total_curriculum_step": 5, "difficulty_step": 8}}})");
}

TEST_F(DocumentRun, SameBitsWithIsolatedDocuments) {
  expect_same_bits(
      R"({"data": {"packing": "isolated"}, "run": {"sequence": 64}, "model": {"dropout": 0.1}})");
}

// The bits depend on neither the ZeRO stage nor recomputation, both in f32 and in bf16.
TEST_F(DocumentRun, IsolatedDocumentsHaveTheSameBitsAtEveryStage) {
  for (const char* bf16 : {"false", "true"}) {
    std::set<std::string> hashes;
    for (int stage : {0, 1, 2, 3}) {
      for (const char* recompute : {"none", "layers"}) {
        std::string name = std::string(bf16) + std::to_string(stage) + recompute;
        RunReport report = train_on(
            2,
            config(name, 3,
                   R"({"data": {"packing": "isolated"}, "run": {"sequence": 64}, "recompute": ")" +
                       std::string(recompute) + R"(", "model": {"layers": 2, "layerdrop": 0.4},
          "bf16": {"enabled": )" +
                       bf16 + R"(}, "zero_optimization": {"stage": )" + std::to_string(stage) +
                       "}}"));
        hashes.insert(payload_hash(report.checkpoint));
      }
    }
    EXPECT_EQ(hashes.size(), 1u) << bf16;
  }
}

// The same conversations form one micro-batch, four micro-batches, or two of two, on one rank and
// on two. With loss_average "tokens", losses and norms are equal; with means of micro-batches they
// differ.
TEST_F(DocumentRun, AnyDivisionOfAStepHasOneLossByTokens) {
  make_folders(folder_ / "uneven");
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    const int length[] = {1, 2, 4, 20};
    lines += R"({"prompt": "Q)" + std::to_string(10 + i) + R"(: ", "completion": ")" +
             std::string(static_cast<size_t>(length[i % 4]), static_cast<char>('a' + i)) + "\"}\n";
  }
  write_file_atomic(folder_ / "uneven/a.jsonl", lines);
  struct Shape {
    int micro, accumulation, ranks;
  };
  for (const char* average : {"tokens", "micro_batch"}) {
    double loss = 0, norm = 0, most_loss = 0, most_norm = 0;
    for (const Shape& shape : {Shape{4, 1, 1}, {1, 4, 1}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}}) {
      Json c = config(
          std::string(average) +
              std::to_string(shape.micro * 100 + shape.accumulation * 10 + shape.ranks),
          1,
          R"({"reproducible": false, "loss_average": ")" + std::string(average) +
              R"(", "run": {"sample_tokens": 0}, "data": {"heldout": 0, "chat_template": null}})");
      Json sizes, data;
      sizes.set("train_micro_batch_size_per_gpu", shape.micro);
      sizes.set("gradient_accumulation_steps", shape.accumulation);
      data.set("paths", Json::Array{folder_ / "uneven"});
      sizes.set("data", data);
      merge_patch(c, sizes);
      TrainOptions options;
      options.quiet = 2;
      const StepRecord first = rows(test::train_on(shape.ranks, c, options)).front();
      if (loss == 0) loss = first.loss, norm = first.grad_norm;
      most_loss = std::max(most_loss, std::abs(first.loss / loss - 1));
      most_norm = std::max(most_norm, std::abs(first.grad_norm / norm - 1));
    }
    if (std::string(average) == "tokens") {
      EXPECT_LT(most_loss, 1e-5);
      EXPECT_LT(most_norm, 1e-4);
    } else {
      EXPECT_GT(most_norm, 0.05);
    }
  }
}

// Four documents packed into one row have the loss of the same documents in separate rows.
TEST_F(DocumentRun, APackedRowHasTheLossOfItsSeparateDocuments) {
  make_folders(folder_ / "few");
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    lines += R"({"text": ")" +
             std::string(static_cast<size_t>(20 + 3 * i), static_cast<char>('a' + i)) + "xyz\"}\n";
  }
  write_file_atomic(folder_ / "few/a.jsonl", lines);
  auto losses = [&](const std::string& name, int batch, const char* packing) {
    Json c =
        config(name, 4,
               R"({"gradient_accumulation_steps": 1, "train_micro_batch_size_per_gpu": )" +
                   std::to_string(batch) + R"(, "data": {"heldout": 0, "packing": )" + packing +
                   R"(, "paths": [")" + (folder_ / "few") + R"("]}, "run": {"sequence": 140}})");
    TrainOptions options;
    options.quiet = 2;
    return rows(test::train_on(1, c, options));
  };
  std::vector<StepRecord> packed = losses("packed", 1, "\"isolated\""),
                          alone = losses("alone", 4, "false"), joined = losses("joined", 1, "true");
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(packed[i].loss, alone[i].loss, 2e-6) << i;
  EXPECT_GT(std::abs(joined[1].loss - alone[1].loss), 1e-4);
}

// The token that separates the files of a text isolates them from each other.
TEST_F(DocumentRun, IsolatesTheFilesOfAText) {
  make_folders(folder_ / "text");
  for (int i = 0; i < 40; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) text += "line " + std::to_string(i * k % 7) + " of a log\n";
    write_file_atomic(folder_ / ("text/" + std::to_string(i) + ".txt"),
                      text.substr(0, 60 + 7 * i % 100));
  }
  std::string text = R"({"data": {"format": "text", "chat_template": null, "paths": [")" +
                     (folder_ / "text") + R"("], "packing": )";
  expect_same_bits(text + "\"isolated\"}}");
  double isolated = rows(train_on(1, config("i", 2, text + "\"isolated\"}}")))[0].loss;
  double whole = rows(train_on(1, config("w", 2, text + "false}}")))[0].loss;
  EXPECT_GT(std::abs(isolated - whole), 1e-6);
}

std::string dynamic_batching(const std::string& more) {
  return R"({"data": {"loss_on": "all"}, "data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
      "dynamic_batching": {"enabled": true, "max_tokens": 90, )" +
         more + "}}}}";
}

TEST_F(DocumentRun, SameBitsWithDynamicBatching) {
  expect_same_bits(dynamic_batching(R"("sequence_picking_order": "random")"));
}

TEST_F(DocumentRun, SameBitsWithBoundedBatches) {
  expect_same_bits(dynamic_batching(R"("max_batch_size": 2, "lr_scaling_method": "sqrt")"));
}

// A step has four groups of at most 3 documents each; train_batch_size is 4.
TEST_F(DocumentRun, DynamicBatchingScalesTheRate) {
  auto rates = [&](const std::string& name, const std::string& method) {
    return rows(
        train_on(1, config(name, 3,
                           dynamic_batching(R"("max_batch_size": 3, "lr_scaling_method": ")" +
                                            method + "\""))));
  };
  std::vector<StepRecord> linear = rates("linear", "linear"), root = rates("sqrt", "sqrt"),
                          none = rates("none", "none");
  for (size_t i = 0; i < 3; ++i) {
    double documents = 4 * linear[i].lr / 0.005;
    EXPECT_NEAR(documents, std::round(documents), 1e-6);
    EXPECT_GT(documents, 4);
    EXPECT_LE(documents, 12);
    EXPECT_NEAR(root[i].lr, 0.005 * std::sqrt(documents / 4), 1e-9);
    EXPECT_EQ(none[i].lr, 0.005);
    // A step has at most as many rows as its groups may have tokens; run.sequence does not matter.
    EXPECT_LE(linear[i].tokens_per_second * linear[i].seconds, 4 * 90 + 0.1);
  }
  EXPECT_EQ(linear[0].loss, none[0].loss);
  EXPECT_NE(linear[2].loss, none[2].loss);
}

TEST_F(DocumentRun, SameBitsWithLayerdrop) {
  expect_same_bits(R"({"model": {"layers": 3, "layerdrop": 0.4}})");
}

// The token files of one run are the data of another run.
TEST_F(DocumentRun, TrainsOnTokenFiles) {
  RunReport first = train_on(1, config("first", 1, R"({"data": {"heldout": 0}})"));
  std::string tokens = R"({"data": {"format": "tokens", "chat_template": null, "paths": [")" +
                       first.folder + R"(/data/train.tokens"]}})";
  expect_same_bits(tokens);
  std::string message = error_of(config("bad", 2,
                                        R"({"data": {"format": "tokens", "chat_template": null,
      "tokenizer": ")" + std::string(DS_SOURCE_DIR) +
                                            R"(/tests/data/tokenizers/gpt2", "paths": [")" +
                                            first.folder + R"(/data/train.tokens"]}})"));
  EXPECT_NE(message.find("was made by a tokenizer with hash"), std::string::npos) << message;
}

// Writes answers that are longer than a row, so that shorter rows have the same documents and fewer
// targets.
std::string long_answers(const test::TempFolder& folder) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines +=
        R"({"messages": [{"role": "user", "content": "r"}, {"role": "assistant", "content": ")" +
        std::string(static_cast<size_t>(20 + i % 20), static_cast<char>('a' + i % 26)) + R"("}]})" +
        "\n";
  }
  make_folders(folder / "long");
  write_file_atomic(folder / "long/a.jsonl", lines);
  return R"("data": {"paths": [")" + (folder / "long") + R"("]})";
}

// While a curriculum has some length, its run equals a run with sequences of that length, and
// computes no more.
TEST_F(DocumentRun, ACurriculumShortensSequences) {
  std::string data = long_answers(folder_);
  std::string on =
      R"("curriculum_learning": {"enabled": true, "curriculum_type": "seqlen", "min_difficulty": 16,
      "max_difficulty": 32, "schedule_type": "fixed_discrete",
      "schedule_config": {"difficulty": [16, 32], "max_step": [3]}})";
  for (int batch : {1, 4}) {
    std::string more =
        R"("train_micro_batch_size_per_gpu": )" + std::to_string(batch) + ", " + data;
    std::string name = std::to_string(batch);
    std::vector<StepRecord> cut =
        rows(train_on(1, config("cut" + name, 5, "{" + more + ", " + on + "}")));
    std::vector<StepRecord> shorter = rows(train_on(
        1, config("short" + name, 5,
                  "{" + more + R"(, "run": {"sequence": 16}, "model": {"positions": 32}})")));
    std::vector<StepRecord> whole = rows(train_on(1, config("whole" + name, 5, "{" + more + "}")));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(cut[i].loss, shorter[i].loss, 1e-5) << i;
      EXPECT_NEAR(cut[i].tokens_per_second * cut[i].seconds, 4 * batch * 16, 0.1) << i;
    }
    EXPECT_GT(std::abs(cut[0].loss - whole[0].loss), 1e-4);
    EXPECT_GT(std::abs(cut[3].loss - shorter[3].loss), 1e-4);
  }
}

TEST_F(DocumentRun, BadInputIsNamedAndLeavesNoFolder) {
  auto refused = [&](const std::string& changes, const char* part,
                     ds_status status = DS_ERROR_CONFIG) {
    std::string message = error_of(config("bad", 2, changes), status);
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
    EXPECT_FALSE(exists(folder_ / "bad"));
  };
  refused(R"({"data": {"chat_template": null}})", "need a chat template", DS_ERROR_NOT_FOUND);
  refused(R"({"data": {"chat_template": "none.jinja"}})", "data.chat_template: \"none.jinja\"",
          DS_ERROR_NOT_FOUND);
  refused(R"({"data": {"format": "text"}})",
          "data.chat_template: needs data.format \"jsonl\", got \"text\"");
  refused(R"({"data": {"format": "json"}})", "data.format: \"json\" is unknown");
  refused(R"({"data": {"loss_on": "questions"}})", "data.loss_on: \"questions\" is unknown");
  refused(R"({"data": {"packing": "some"}})",
          "data.packing: must be false, true or \"isolated\", got \"some\"");
  refused(R"({"data": {"packing": true, "format": "text", "chat_template": null}})",
          "data.packing: true needs data.format \"jsonl\", got \"text\"");
  refused(R"({"data": {"packing": "isolated"}, "model": {"documents": false}})",
          "model.documents: false");
  refused(dynamic_batching(R"("sequence_picking_order": "longest")"), "\"longest\" is unknown");
  refused(dynamic_batching(R"("min_batch_size": 5, "max_batch_size": 4)"),
          "4 is below min_batch_size 5");
  refused(dynamic_batching(R"("min_batch_size": 50)"),
          "do not fill a step of 4 groups of at most 90 tokens");
  refused(R"({"data": {"max_bytes": 5}})", "data.max_bytes: needs data.format \"text\"");
  refused(R"({"data": {"text": "{}"}})",
          "data.text: is a text in place of files, so data.paths must be empty, got '");
  refused(R"({"data": {"text": " \n", "paths": null}})", "data.text: holds no line of jsonl");
  refused(R"({"data": {"text": "\n[1", "paths": null}})", "data.text: line 2");
  refused(R"({"data": {"text": "x", "paths": null, "format": "tokens", "chat_template": null}})",
          "data.text: needs data.format \"text\" or \"jsonl\", got \"tokens\"");
  refused(R"({"data": {"tokenizer": "learn"}})",
          "data.tokenizer: \"learn\" needs data.format \"text\"");
  refused(R"({"train_micro_batch_size_per_gpu": 64})", "samples of 32 tokens, but one batch needs");
  write_file_atomic(folder_ / "chats/b.jsonl", "{\"messages\": 1}\n");
  refused("{}", "b.jsonl' line 1: \"messages\" must be a list");
  write_file_atomic(folder_ / "chats/b.jsonl", "\nprompt,completion\na,b\n");
  refused("{}", "b.jsonl' line 2: is a text that begins with \"prompt,completion\"; each line",
          DS_ERROR_CORRUPT);
  write_file_atomic(folder_ / "chats/b.jsonl", "");
  write_file_atomic(folder_ / "chat.jinja", "{% include 'x' %}");
  refused("{}", "line 1 of the chat template: tag {% include %} is unsupported",
          DS_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace ds
