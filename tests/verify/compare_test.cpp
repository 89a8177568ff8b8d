// Tests comparisons and tolerances with invented numbers.
#include "diagnostics/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "diagnostics/verify.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string models() { return std::string(DS_SOURCE_DIR) + "/tests/data/models"; }

TEST(Compare, AFindingKeepsTheErrorWithTheLargestShareOfItsTolerance) {
  Finding f{"grad", "rel", 0, 1, "", {}};
  f.see(0.5, 1, "a");
  // This error is the largest share of its tolerance, 0.8.
  f.see(0.4, 0.5, "b");
  f.see(0.6, 1, "c");
  EXPECT_EQ(f.where, "b");
  EXPECT_EQ(f.error, 0.4);
  EXPECT_EQ(f.tolerance, 0.5);
  EXPECT_TRUE(f.passed());
  f.see(2, 1, "d");
  f.see(3, 1, "e");
  EXPECT_EQ(f.where, "e");
  EXPECT_EQ(f.beyond, (std::vector<std::string>{"d", "e"}));
}

TEST(Compare, AFindingNamesAPlaceEvenIfItsErrorIsZero) {
  Finding f{"loss", "abs", 0, 1, "", {}};
  f.see(0, 1, "only");
  EXPECT_EQ(f.where, "only");
  EXPECT_EQ(f.share(), 0);
}

TEST(Compare, NanIsBeyondEveryTolerance) {
  Finding f{"loss", "abs", 0, 1, "", {}};
  f.see(std::nan(""), 1, "bad");
  f.see(2, 1, "also");
  EXPECT_FALSE(f.passed());
  EXPECT_EQ(f.where, "bad");
  EXPECT_TRUE(std::isinf(f.error));
}

TEST(Compare, LogitsOfHiddenTokensAreNotCompared) {
  GoldenBatch batch;
  batch.rows = 1;
  batch.tokens = 2;
  batch.mask = {1, 0};
  std::vector<float> want{1, 2, 3, 4}, got{1, 2.5f, 9, kNan};
  Finding f = compare_logits(batch, got, want, 0.6);
  EXPECT_TRUE(f.passed());
  EXPECT_EQ(f.error, 0.5);
  EXPECT_EQ(f.where, "row 0 token 0 id 1");
  batch.mask.clear();
  f = compare_logits(batch, got, want, 0.6);
  EXPECT_EQ(f.beyond, std::vector<std::string>{"row 0 token 1 id 1"});
  EXPECT_TRUE(std::isinf(f.error));
  expect_names(
      message_of([&] { compare_logits(batch, std::span(got).first(2), want, 1); }, DS_ERROR_CONFIG),
      {"2", "4"});
}

TEST(Compare, GradientsOfZeroTensorsHaveNoRelativeError) {
  Golden golden(models() + "/bert");
  golden.grad_abs = 1e-3;
  golden.grad_rel = 1e-2;
  golden.grad_zero = {"zero"};
  GradComparison c(golden);
  std::vector<float> tiny{1e-9f, 0}, noise{0, 1e-9f}, want{10, 0}, got{10, 5e-4f};
  c.see("zero", noise, tiny);
  c.see("w", got, want);
  EXPECT_TRUE(c.absolute().passed());
  EXPECT_EQ(c.absolute().where, "w");
  EXPECT_TRUE(c.relative().passed());
  EXPECT_NEAR(c.relative().error, 5e-5, 1e-8);
  c.see("other", noise, tiny);
  EXPECT_EQ(c.relative().beyond, std::vector<std::string>{"other"});
  std::vector<float> nan{kNan, 0};
  c.see("nan", nan, want);
  EXPECT_EQ(c.absolute().beyond, std::vector<std::string>{"nan"});
}

TEST(Compare, RunsCompareLossesAbsolutelyAndNormsRelatively) {
  GoldenRun want;
  want.name = "adamw";
  want.loss = {4, 2};
  want.grad_norm = {100, 50};
  want.final_loss = 1;
  want.loss_abs = 0.1;
  want.grad_norm_rel = 0.01;
  std::vector<Finding> good = compare_run(want, {{4.05, 2}, {100.5, 50}, 1.02});
  EXPECT_TRUE(good[0].passed() && good[1].passed());
  EXPECT_EQ(good[0].where, "step 1");
  EXPECT_NEAR(good[1].error, 0.005, 1e-12);
  std::vector<Finding> bad = compare_run(want, {{4, 2}, {100, 51}, 1.2});
  EXPECT_EQ(bad[0].beyond, std::vector<std::string>{"after the last step"});
  EXPECT_EQ(bad[1].beyond, std::vector<std::string>{"step 2"});
}

TEST(Compare, NumbersRecordedAsZeroAreComparedAbsolutely) {
  GoldenRun want;
  want.loss = {1, 1};
  want.grad_norm = {0, 0};
  want.grad_norm_rel = 1e-5;
  Finding norm = compare_run(want, {{1, 1}, {0, 1e-6}, 0})[1];
  EXPECT_TRUE(norm.passed());
  EXPECT_EQ(norm.error, 1e-6);
  EXPECT_EQ(compare_run(want, {{1, 1}, {0, 1e-4}, 0})[1].beyond,
            std::vector<std::string>{"step 2"});

  Golden golden(models() + "/bert");
  golden.grad_abs = 1e-6;
  GradComparison c(golden);
  std::vector<float> zero{0, 0}, noise{0, 1e-7f}, wrong{0, 1e-3f};
  c.see("w", noise, zero);
  EXPECT_TRUE(c.absolute().passed() && c.relative().passed());
  c.see("x", wrong, zero);
  EXPECT_EQ(c.absolute().beyond, std::vector<std::string>{"x"});
}

TEST(Compare, ImpossibleComparisonsAreNamed) {
  VerifyReport report;
  report.findings = {{"loss", "abs", 0, 1, "", {}},
                     {"greedy", "other tokens", 0, 0, "", {}, {"prompt 0: no"}}};
  report.findings[0].see(0.5, 1, "the batch");
  EXPECT_EQ(report.failed(), 0);
  EXPECT_EQ(report.refused(), 1);
  expect_names(report.text(),
               {"not compared: greedy prompt 0: no", "passed: 1 comparisons; not compared: 1"});
  EXPECT_EQ(report.json().at("findings").array()[1].at("refused").array()[0].string(),
            "prompt 0: no");
}

TEST(Compare, ParamsAreComparedBySumAndNorm) {
  ParamComparison c;
  std::vector<float> values{3, -4};
  c.see({"w", -1, 5, 1e-6, 1e-6}, values);
  EXPECT_TRUE(c.sum().passed() && c.l2().passed());
  c.see({"x", -0.5, 5.2, 0.4, 0.3}, values);
  EXPECT_EQ(c.sum().beyond, std::vector<std::string>{"x"});
  EXPECT_TRUE(c.l2().passed());
}

TEST(Compare, ADifferentTokenIsAcceptedOnlyNearATie) {
  GoldenText text{{1}, {5, 6, 7}, {0.5, 1e-6, 0.5}};
  std::vector<int32_t> tie{5, 9, 9}, wrong{5, 6, 9}, same{5, 6, 7};
  Finding f{"greedy", "other tokens", 0, 0, "", {}};
  compare_text(text, 0, same, 1e-5, f);
  // Tokens after an accepted difference are not compared.
  compare_text(text, 1, tie, 1e-5, f);
  EXPECT_TRUE(f.passed());
  compare_text(text, 2, tie, 1e-7, f);
  compare_text(text, 3, wrong, 1e-5, f);
  ASSERT_EQ(f.beyond.size(), 2u);
  expect_names(f.beyond[1], {"prompt 3", "token 2", "9 instead of 7"});
}

TEST(Compare, TextNamesPlacesBeyondTheTolerance) {
  Finding f{"grad", "rel", 0, 1, "", {}};
  for (int i = 0; i < 20; ++i) f.see(2, 1, "t" + std::to_string(i));
  std::vector<Finding> all{f};
  expect_names(findings_text(all), {"beyond tolerance: grad rel: t0, t1, ", "and 8 more"});
  EXPECT_EQ(findings_json(all).array()[0].at("beyond").array().size(), 20u);
}

TEST(Options, AreCheckedByKey) {
  VerifyRequest o = verify_request(Json::parse(
      R"({"stage": 3, "tier": "nvme", "dtype": "f32", "kinds": ["grad", "loss"], "nvme_path": "x", "threads": 2})"));
  EXPECT_EQ(o.stage, 3);
  EXPECT_EQ(o.tier, Tier::nvme);
  EXPECT_TRUE(o.f32 && !o.bf16);
  EXPECT_EQ(o.kinds, (std::vector<std::string>{"grad", "loss"}));
  EXPECT_EQ(o.nvme_path, "x");
  EXPECT_EQ(o.threads, 2);
  auto refusal = [](const char* text) {
    return message_of([&] { verify_request(Json::parse(text)); }, DS_ERROR_CONFIG);
  };
  expect_names(refusal(R"({"stage": 4})"), {"stage", "4"});
  expect_names(refusal(R"({"tier": "host"})"), {"tier", "device, cpu, nvme", "host"});
  expect_names(refusal(R"({"kinds": ["grads"]})"), {"kinds", "grads"});
  expect_names(refusal(R"({"stages": 1})"), {"stages", "did you mean stage?"});
  EXPECT_EQ(refusal(R"({"kinds": 3})"), "options.kinds: must be an array, got integer 3");
  EXPECT_EQ(refusal(R"({"kinds": [3]})"), "options.kinds[0]: must be a string, got integer 3");
  EXPECT_EQ(refusal(R"({"nvme_path": 3})"), "options.nvme_path: must be a string, got integer 3");
  EXPECT_EQ(refusal("null"), "options: must be an object, got null");
}

// A copy of a model folder whose golden.json a test may edit.
class GoldenFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(models() + "/opt", folder_.path(),
                          std::filesystem::copy_options::recursive);
  }
  void edit(const std::string& from, const std::string& to) {
    std::string path = folder_ / "golden.json", text = read_file(path);
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    write_file_atomic(path, text.replace(at, from.size(), to));
  }
  std::string refusal(ds_status status = DS_ERROR_CORRUPT) {
    return message_of([&] { Golden golden(folder_.path()); }, status);
  }
  TempFolder folder_;
};

TEST_F(GoldenFiles, ErrorsNameFileAndKey) {
  edit("\"loss_abs\": ", "\"loss_abs\": \"x\", \"was\": ");
  expect_names(refusal(),
               {"golden.json: tolerance.", ".loss_abs: must be a number, got string \"x\""});
}

TEST_F(GoldenFiles, ACircularLinkIsNotReportedAsAnAbsentFile) {
  std::filesystem::remove(folder_ / "golden.json");
  std::filesystem::create_symlink("golden.json", folder_ / "golden.json");
  expect_names(refusal(DS_ERROR_IO), {"golden.json", "Too many levels"});
}

TEST_F(GoldenFiles, AreRead) {
  Golden golden(folder_.path());
  EXPECT_EQ(golden.batch.rows, 3);
  EXPECT_EQ(golden.batch.tokens, 16);
  EXPECT_EQ(golden.micro.size(), 2u);
  EXPECT_EQ(golden.batch.mask.size(), 48u);
  EXPECT_EQ(golden.runs.size(), 5u);
  EXPECT_EQ(golden.run("sgd")->optimizer.at("type").string(), "SGD");
  EXPECT_EQ(golden.run("sgd")->clip, 0);
  EXPECT_EQ(golden.run("adamw")->clip, 1);
  EXPECT_FALSE(golden.run("bf16")->final_loss.has_value());
  EXPECT_EQ(golden.greedy.size(), 2u);
  EXPECT_EQ(golden.logits().size(), 48u * 136u);
  EXPECT_EQ(golden.grad_names.size(), golden.final_params.size());
  EXPECT_EQ(golden.grad(golden.grad_zero[0]).size(), 40u);
}

TEST_F(GoldenFiles, ErrorsNameFileAndMember) {
  edit("\"tolerance\"", "\"tolerances\"");
  expect_names(refusal(), {"golden.json", "tolerance"});
  std::filesystem::remove(folder_ / "golden.safetensors");
  expect_names(refusal(DS_ERROR_NOT_FOUND), {"golden.safetensors"});
}

TEST_F(GoldenFiles, OtherOptimizersAreRefused) {
  edit("torch.optim.AdamW", "torch.optim.Lamb");
  expect_names(refusal(DS_ERROR_UNSUPPORTED), {"torch.optim.Lamb"});
}

}  // namespace
}  // namespace ds::test
