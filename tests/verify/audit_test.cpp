// Tests complete audits of small models, and what they report when a kernel, memory or a file is
// wrong.
#include "diagnostics/audit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "kernels/kernel.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

constexpr const char* kGpt =
    R"({"family": "gpt", "layers": 2, "hidden": 32, "heads": 2, "dropout": 0.1})";

std::string folder(const std::string& name) {
  return R"({"folder": ")" DS_SOURCE_DIR R"(/tests/data/models/)" + name + R"("})";
}

Json config_of(const std::string& model, const std::string& zero, bool bf16 = false,
               int accumulation = 1) {
  return Json::parse(fmt::format(
      R"({{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": {}, "gradient_clipping": 0.05,
          "optimizer": {{"type": "AdamW", "params": {{"lr": 0.005}}, "param_groups": [
              {{"params": "*weight", "weight_decay": 0.2, "betas": [0.8, 0.9]}}]}}, "bf16": {{"enabled": {}}},
          "zero_optimization": {}, "model": {}, "run": {{"sequence": 16, "threads": 1}}}})",
      accumulation, bf16, zero, model));
}

// Buckets and thresholds are small, so that stage 3 gathers and reduces often.
std::string zero_of(int stage, const std::string& files) {
  std::string out = fmt::format(
      R"({{"stage": {}, "reduce_bucket_size": 10000, "stage3_prefetch_bucket_size": 1000,
          "stage3_max_reuse_distance": 1000, "stage3_param_persistence_threshold": 100)",
      stage);
  std::string tier = fmt::format(R"({{"device": "nvme", "nvme_path": "{}"}})", files);
  if (!files.empty()) out += R"(, "offload_optimizer": )" + tier;
  if (!files.empty() && stage == 3) out += R"(, "offload_param": )" + tier;
  return out + "}";
}

AuditReport audit_on(int ranks, const Json& config, const EngineOptions& hooks = {}) {
  AuditReport report;
  test::run_ranks(ranks, [&](Communicator& comm) {
    AuditReport own = audit(config, {}, comm, hooks);
    if (comm.rank() == 0) report = std::move(own);
  });
  return report;
}

int64_t rows_of(const AuditReport& report, const std::string& op) {
  return std::count_if(report.rows.begin(), report.rows.end(),
                       [&](const AuditRow& row) { return row.label.starts_with(op + " "); });
}

class AuditOf : public testing::TestWithParam<const char*> {};

TEST_P(AuditOf, PassesAtEveryStageWithAndWithoutFiles) {
  std::string model = GetParam() == std::string("gpt") ? kGpt : folder(GetParam());
  for (int stage : {0, 3}) {
    for (int ranks : {1, 2}) {
      for (bool files : {false, true}) {
        test::TempFolder scratch;
        Json config = config_of(model, zero_of(stage, files ? scratch.path() : ""), files, 2);
        if (ranks == 2) config.set("device", "separate");
        if ((stage == 3) == (ranks == 2)) config.set("loss_average", "tokens");
        AuditReport report = audit_on(ranks, config);
        SCOPED_TRACE(report.title);
        EXPECT_EQ(report.failed(), 0) << report.text(5);
        EXPECT_TRUE(report.unaudited().empty()) << report.text(5);
        EXPECT_EQ(report.ending, "");
        EXPECT_GT(rows_of(report, "linear_dw"), 4);
        EXPECT_EQ(rows_of(report, "count_targets") > 0, (stage == 3) == (ranks == 2));
        EXPECT_EQ(rows_of(report, "load") > 0, files);
        EXPECT_EQ(rows_of(report, "save") > 0, files);
        EXPECT_GT(rows_of(report, "all_gather"), stage == 3 ? 4 : 0);
        EXPECT_NE(report.verdict().find("0 not audited"), std::string::npos) << report.verdict();
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Families, AuditOf, testing::Values("gpt", "llama", "mixtral"),
                         [](const auto& name) { return std::string(name.param); });

// Quantized weights and gradients, with two levels of ranks.
TEST(Audit, PassesWithQuantizedWeightsAndGradients) {
  Json config = config_of(kGpt, R"({"stage": 3, "stage3_param_persistence_threshold": 100,
      "zero_quantized_weights": true, "zero_quantized_gradients": true, "zero_hpz_partition_size": 2,
      "zeropp_loco_param": {"err_beta": 0.8}})");
  config.set("topology", Json::parse(R"({"nodes": 2})"));
  AuditReport report = audit_on(4, config);
  EXPECT_EQ(report.failed(), 0) << report.text(5);
  EXPECT_TRUE(report.unaudited().empty()) << report.text(5);
  for (const char* op : {"quantize", "dequantize", "all_to_all", "all_gather"}) {
    EXPECT_GT(rows_of(report, op), 0) << op;
  }
}

// The state of the broken kernel. It is global, because a kernel is a plain function: the kernel
// runs the reference kernel `exact`, then changes its results by `spoil`.
struct Broken {
  KernelFn exact = nullptr;
  std::function<void(const KernelContext&)> spoil;
} broken;

void run_broken(const KernelContext& c) {
  broken.exact(c);
  broken.spoil(c);
}

EngineOptions breaking(const std::string& op, std::function<void(const KernelContext&)> spoil) {
  KernelRegistry reference;
  register_ref(reference);
  for (const KernelImpl& impl : reference.all()) {
    if (impl.op == op) broken.exact = impl.run;
  }
  broken.spoil = std::move(spoil);
  EngineOptions hooks;
  hooks.kernel_filter = [op](KernelRegistry& kernels) {
    KernelRegistry changed;
    changed.add({op, "broken", run_broken});
    for (const KernelImpl& impl : kernels.all()) changed.add(impl);
    kernels = std::move(changed);
  };
  return hooks;
}

void scale(const TensorView& view, float factor) {
  for (int64_t e = 0; e < view.numel(); ++e) view.as<float>()[e] *= factor;
}

// The results of one rank are wrong by a factor of 1.0001.
TEST(Audit, NamesABrokenKernel) {
  for (const char* op : {"cross_entropy_dx", "position_dw", "embedding"}) {
    EngineOptions hooks = breaking(op, [](const KernelContext& c) {
      if (c.leaf == 1) scale(c.out[0], 1.0001F);
    });
    AuditReport report = audit_on(2, config_of(kGpt, zero_of(0, "")), hooks);
    ASSERT_EQ(report.failed(), 1) << report.text(5);
    EXPECT_TRUE(report.rows[0].label.starts_with(op)) << report.text(5);
    EXPECT_EQ(report.rows[0].rank, 1);
    std::string line =
        fmt::format("\nFAILED: 1 of {} instructions; the worst is {}, {}, on rank 1\n",
                    report.rows.size(), report.rows[0].instr, report.rows[0].label);
    EXPECT_TRUE(report.text(1).ends_with(line)) << report.text(1);
  }
}

// An update must have exactly one result; here one bit of it changes.
TEST(Audit, DetectsAWrongBitInAnUpdate) {
  EngineOptions hooks = breaking("adamw", [](const KernelContext& c) {
    if (c.scalars.step == 1) c.out[0].as<uint32_t>()[3] ^= 1;
  });
  AuditReport report = audit_on(1, config_of(kGpt, zero_of(0, "")), hooks);
  EXPECT_GT(report.failed(), 0);
  EXPECT_EQ(report.failed(), rows_of(report, "adamw")) << report.text(5);
  EXPECT_NE(report.rows[0].verdict.where.find("output 0[3]"), std::string::npos) << report.text(1);
}

TEST(Audit, DetectsAChangedInput) {
  EngineOptions hooks =
      breaking("cross_entropy", [](const KernelContext& c) { c.in[0].as<float>()[7] += 1; });
  AuditReport report = audit_on(1, config_of(kGpt, zero_of(0, "")), hooks);
  ASSERT_GT(report.failed(), 0);
  const AuditRow& first =
      *std::min_element(report.rows.begin(), report.rows.begin() + report.failed(),
                        [](const AuditRow& a, const AuditRow& b) { return a.instr < b.instr; });
  EXPECT_TRUE(first.label.starts_with("cross_entropy ")) << report.text(5);
  EXPECT_NE(first.verdict.where.find("changes its input[7]"), std::string::npos)
      << first.verdict.where;
}

// The kernel of the loss overwrites values that gelu stored for the backward part. The audit names
// the instruction that reads them and the one that wrote them.
TEST(Audit, DetectsMemoryOverwrittenByAnotherInstruction) {
  static float* victim;
  static KernelFn gelu;
  KernelRegistry reference;
  register_ref(reference);
  for (const KernelImpl& impl : reference.all()) {
    if (impl.op == "gelu") gelu = impl.run;
  }
  EngineOptions hooks = breaking("cross_entropy", [](const KernelContext& c) {
    if (c.scalars.step == 1) victim[5] += 1;
  });
  hooks.kernel_filter = [also = hooks.kernel_filter](KernelRegistry& kernels) {
    also(kernels);
    KernelRegistry changed;
    changed.add({"gelu", "watched", [](const KernelContext& c) {
                   gelu(c);
                   victim = c.out[0].as<float>();
                 }});
    for (const KernelImpl& impl : kernels.all()) changed.add(impl);
    kernels = std::move(changed);
  };
  AuditReport report = audit_on(1, config_of(kGpt, zero_of(0, "")), hooks);
  ASSERT_EQ(report.failed(), 1) << report.text(5);
  EXPECT_TRUE(report.rows[0].label.starts_with("linear_dw ")) << report.text(1);
  EXPECT_NE(report.rows[0].verdict.where.find("[5] is no longer what was written by instruction"),
            std::string::npos)
      << report.text(1);
}

// Overwrites bytes in this process's scratch file in `folder`, which no longer has a name.
void spoil_file(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!name.starts_with(folder)) continue;
    int fd = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0) << name;
    std::vector<std::byte> block(kFileBlock, std::byte{0x11});
    EXPECT_EQ(pwrite(fd, block.data(), block.size(), 0), kFileBlock);
    close(fd);
  }
}

TEST(Audit, DetectsAChangedFile) {
  test::TempFolder scratch;
  EngineOptions hooks;
  int steps = 0;
  hooks.before_instr = [&](size_t instr) {
    if (instr == 0 && ++steps == 2) spoil_file(scratch.path());
  };
  AuditReport report = audit_on(1, config_of(kGpt, zero_of(0, scratch.path())), hooks);
  ASSERT_EQ(report.failed(), 1) << report.text(5);
  EXPECT_TRUE(report.rows[0].label.starts_with("load ")) << report.text(1);
  EXPECT_NE(report.rows[0].verdict.where.find("the file no longer holds what was saved"),
            std::string::npos);
}

// An instruction added by a plugin has no reference.
TEST(Audit, NamesInstructionsWithoutReference) {
  static KernelFn add;
  KernelRegistry reference;
  register_ref(reference);
  for (const KernelImpl& impl : reference.all()) {
    if (impl.op == "add") add = impl.run;
  }
  InstrDef row = instruction("add");
  row.name = "audit_test_add";
  row.op = Op::added;
  row.graph = nullptr;
  const InstrDef& added = add_instruction(row);
  EngineOptions hooks;
  hooks.kernel_filter = [](KernelRegistry& kernels) {
    kernels.add({"audit_test_add", "plugin", [](const KernelContext& c) { add(c); }});
  };
  hooks.program_filter = [&](Program& program) {
    for (Instr& in : program.instrs) {
      if (in.def->name == "add") in.def = &added;
    }
  };
  AuditReport report = audit_on(1, config_of(kGpt, zero_of(0, "")), hooks);
  EXPECT_EQ(report.failed(), 0);
  ASSERT_EQ(report.unaudited().size(), 1u) << report.text(1);
  EXPECT_TRUE(report.unaudited().begin()->first.starts_with("audit_test_add (")) << report.text(1);
  EXPECT_NE(report.text(1).find("\nnot audited: "), std::string::npos) << report.text(1);
  EXPECT_TRUE(report.verdict().starts_with("passed: ")) << report.verdict();
}

TEST(Audit, RefusesUnsupportedOptions) {
  auto refuse = [](const char* options, const char* text) {
    test::expect_names(
        test::message_of([&] { audit_request(Json::parse(options)); }, DS_ERROR_CONFIG), {text});
  };
  refuse(R"({"step": 1})", "did you mean steps?");
  refuse(R"({"steps": 0})", "steps");
  refuse(R"({"top": -1})", "top");
  refuse(R"({"threads": 2000})", "threads");
  EXPECT_EQ(audit_request(Json::parse(R"({"top": 0})")).top, 0u);
}

}  // namespace
}  // namespace ds
